"""Offloads of kernel interfaces that a port's packets come in by, asked of the kernel. No DPDK in it."""

import ctypes
import fcntl
import re
import socket
import struct

from forwarder.settings import KERNEL_DRIVERS, PortSettings

SIOCETHTOOL = 0x8946
GET = {  # linux/ethtool.h: the question, and the bits of the answer that mean yes
    "gro": (0x2B, ~0),
    "lro": (0x25, 1 << 15),
    "tso": (0x1E, ~0),
    "gso": (0x23, ~0),
}
MERGING = ("gro", "lro")
"""Those that make packets larger than the MTU of what comes in; a port cannot have them."""
RECEIVES_FROM = re.compile(r",(?:iface|rx_iface|rx_iface_in)=([^,]+)")


def interfaces(port: PortSettings) -> list[str]:
    """The kernel interfaces that packets come in by; a virtual device names them in its string.

    That of a tap is none of them: by it the kernel sends.
    """
    if port.driver in KERNEL_DRIVERS:
        return [port.device]
    return [] if port.device.startswith("net_tap") else RECEIVES_FROM.findall(port.device)


def switched_on(interface: str, offload: str) -> bool:
    """Whether an offload is on; no where the driver does not know the question."""
    command, yes = GET[offload]
    value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    except OSError:
        return False
    return bool(struct.unpack("II", value.raw)[1] & yes)
