"""The AF_XDP sockets of this process, which net_af_xdp made, and the packets that they hold.

DPDK 22.11's driver neither closes its socket with its port nor gives back the packets in the socket's rings.
"""

import mmap
import os
import socket
import struct

from forwarder.own_sockets import own_sockets

AF_XDP, SOL_XDP, XDP_MMAP_OFFSETS, XDP_STATISTICS = 44, 283, 1, 7  # linux/if_xdp.h
RECEIVE, TRANSMIT, FILL, COMPLETION = range(4)  # in the order of the offsets
PAGES = {RECEIVE: 0, TRANSMIT: 0x80000000, FILL: 0x100000000, COMPLETION: 0x180000000}
PRODUCER, CONSUMER = range(2)


def sockets() -> set[int]:
    """Their file descriptors."""
    return own_sockets(AF_XDP)


def ring_full(descriptor: int) -> int:
    """Packets that were dropped since nobody took those before them."""
    with socket.socket(AF_XDP, socket.SOCK_RAW, fileno=os.dup(descriptor)) as xsk:
        statistics = struct.unpack("6Q", xsk.getsockopt(SOL_XDP, XDP_STATISTICS, 48))
    return int(statistics[3])


def held(descriptor: int) -> int:
    """How many packets a socket has: given to it to be filled or sent, and not received or returned yet.

    These four indices are moved by the driver alone, so the number stands while no lcore runs.
    """
    with socket.socket(AF_XDP, socket.SOCK_RAW, fileno=os.dup(descriptor)) as xsk:
        offsets = struct.unpack("16Q", xsk.getsockopt(SOL_XDP, XDP_MMAP_OFFSETS, 128))

    def index(ring: int, which: int) -> int:
        with mmap.mmap(descriptor, mmap.PAGESIZE, prot=mmap.PROT_READ, offset=PAGES[ring]) as page:
            (value,) = struct.unpack_from("I", page, offsets[ring * 4 + which])
        return int(value)

    filled = index(FILL, PRODUCER) - index(RECEIVE, CONSUMER)
    sent = index(TRANSMIT, PRODUCER) - index(COMPLETION, CONSUMER)
    return filled % (1 << 32) + sent % (1 << 32)
