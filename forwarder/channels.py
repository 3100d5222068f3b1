"""Queues of a kernel interface, asked of the kernel as `ethtool -l` does. No DPDK in it."""

import ctypes
import fcntl
import socket
import struct
from dataclasses import dataclass

SIOCETHTOOL, ETHTOOL_GCHANNELS = 0x8946, 0x3C  # linux/sockios.h, linux/ethtool.h
FIELDS = 9  # the command; most of receive, transmit, other, combined; and how many of each there are


@dataclass(frozen=True, slots=True)
class Channels:
    """`receive`: queues that packets come by. `one`: what has `ethtool -L INTERFACE` make it a single one."""

    receive: int
    one: str


def channels(interface: str) -> Channels:
    """Those of an interface; one where its driver does not know the question."""
    question = struct.pack(f"{FIELDS}I", ETHTOOL_GCHANNELS, *[0] * (FIELDS - 1))
    answer = ctypes.create_string_buffer(question, len(question))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(answer))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    except OSError:
        return Channels(1, "combined 1")
    _, _, _, _, most_combined, receive, _, _, combined = struct.unpack(f"{FIELDS}I", answer.raw)
    return Channels(max(1, receive + combined), "combined 1" if most_combined else "rx 1")
