"""Ports from settings: a kernel interface under af_packet or af_xdp, a NIC on PCI, or a DPDK device by its string.

Beside a port that the kernel does not see stands a tap, as a port of its own behind all others.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

from forwarder import af_xdp
from forwarder._dataplane import DataplaneError, PacketPool, Port
from forwarder.offloads import MERGING, interfaces, switched_on
from forwarder.own_sockets import own_sockets
from forwarder.settings import KERNEL_DRIVERS, PortSettings, Refused
from forwarder.taps import Tap

SO_ATTACH_FILTER = 26  # asm-generic/socket.h
SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40  # linux/sockios.h, linux/if.h
# Classic BPF: only packets of type PACKET_HOST (0) are for us; none to all, to a group, to another MAC (1 to 3), and
# none that goes out (4). The socket option for the latter has no effect on a socket of a fanout group, and DPDK puts
# every one of its sockets into one.
FOR_US = struct.pack(
    "=HBBI HBBI HBBI HBBI",
    *(0x30, 0, 0, 0xFFFFF004),  # load the packet's type
    *(0x35, 0, 1, 1),
    *(0x06, 0, 0, 0),  # 1 or more: nothing of it
    *(0x06, 0, 0, 0xFFFFFFFF),  # else all of it
)
FRAME_BYTES = 2048  # one ring slot of the kernel; larger frames do not fit
FRAMES = 2048
ETHERNET_MTU = 1500


def devargs(port: PortSettings, index: int) -> str:
    """The device string that DPDK is given."""
    if port.driver != "af_packet":
        return port.device
    return (
        f"net_af_packet{index},iface={port.device},qpairs=1,"
        f"framesz={FRAME_BYTES},blocksz={FRAME_BYTES * 32},framecnt={FRAMES}"
    )


def interface_index(port: PortSettings) -> int | None:
    """Index of the kernel interface that the port is, None when it is none. Raises Refused when it is missing."""
    if port.driver not in KERNEL_DRIVERS:
        return None
    try:
        return socket.if_nametoindex(port.device)
    except OSError as error:
        present = ", ".join(sorted(name for _, name in socket.if_nameindex() if name != "lo")) or "none"
        raise Refused(
            f"there is no network interface {port.device} here (forwarder.ports); present: {present}."
        ) from error


def _receive_only_ours(descriptors: set[int]) -> None:
    # What the kernel itself sends by the interface (BGP, ARP) would be received as if it had come in, and what a
    # switch floods would be forwarded by every node that sees it.
    program = ctypes.create_string_buffer(FOR_US, len(FOR_US))
    filter_ = struct.pack("HP", len(FOR_US) // 8, ctypes.addressof(program))
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as packet:
            packet.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)


def link_up(settings: PortSettings, port: Port) -> bool:
    """Whether the port's link is up. DPDK takes every link of a kernel interface for up, so the kernel is asked."""
    if settings.driver not in KERNEL_DRIVERS:
        return port.link_up
    request = struct.pack("16sH22x", settings.device.encode(), 0)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            (flags,) = struct.unpack_from("16xH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
    except OSError:
        return False  # the interface is gone
    return bool(flags & IFF_RUNNING)


def _refuse_merging(device: str) -> None:
    """Packets that the kernel merged before we see them fit neither a ring slot nor any path behind it."""
    on = " ".join(f"{name} off" for name in MERGING if switched_on(device, name))
    if on:
        raise Refused(
            f"the kernel merges packets that come in by {device}, and merged ones cannot be forwarded: "
            f"run `ethtool -K {device} {on}`."
        )


def _own_mtu(port: PortSettings) -> int:
    """What nobody but us sets at a NIC: at least what everybody may send."""
    return max(port.mtu, ETHERNET_MTU) if port.driver == "pci" else 0


def _why_not(port: PortSettings, error: DataplaneError) -> str:
    if error.errno == errno.EMSGSIZE:
        return f"port {port.device} takes no packets of {_own_mtu(port)} bytes: write a smaller mtu for it."
    return f"port {port.device} could not be opened: {error}."


def open_taps(
    ports: Sequence[PortSettings], nics: Sequence[Port], taps: Sequence[Tap | None], pool: PacketPool
) -> list[Port]:
    """The ports of the taps, behind those of the NICs, each with the queues of its NIC. Raises Refused."""
    opened: list[Port] = []
    for settings, nic, tap in zip(ports, nics, taps, strict=True):
        if tap is not None:
            tap.open(nic.mac, settings.mtu, nic.queues)
            index = len(nics) + len(opened)
            opened.append(Port.kernel_side(tap.name, index, nics.index(nic), pool, tap.files))
    return opened


def open_ports(ports: Sequence[PortSettings], pool: PacketPool, queues: int, claims: af_xdp.Claims) -> list[Port]:
    """Open all ports, in order, with so many queues where they can. Raises Refused; then none stays open."""
    opened: list[Port] = []
    for port in ports:
        interface_index(port)
        if port.driver == af_xdp.DRIVER:
            af_xdp.prepare(port)
        for device in interfaces(port):
            _refuse_merging(device)
    for index, port in enumerate(ports):
        before = own_sockets(socket.AF_PACKET)
        try:
            if port.driver == af_xdp.DRIVER:
                opened.append(claims.open(port, index, pool, queues))
            else:
                opened.append(Port.device(devargs(port, index), index, pool, queues, _own_mtu(port)))
        except (DataplaneError, Refused) as error:
            claims.end()
            for done in opened:
                done.close()
            if isinstance(error, Refused):
                raise
            raise Refused(_why_not(port, error)) from error
        _receive_only_ours(own_sockets(socket.AF_PACKET) - before)
    return opened
