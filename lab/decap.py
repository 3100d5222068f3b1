"""GRE decapsulation in user space, for kernels without GRE: raw sockets in, a TUN device out.

Run inside a backend's namespace as `python -m lab.decap DEVICE`. The TUN's receive counters say how many
packets came out; what is not GRE of version 0 around IPv4 or IPv6 is left out of them.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
SO_RCVBUFFORCE = 33
VERSIONS = {0x0800: 4, 0x86DD: 6}  # of the inner packet, by its ethertype


def inner_offset(packet: bytes | bytearray | memoryview, start: int, length: int) -> int | None:
    """Where the inner packet begins behind the GRE header at `start`, or None if it is not ours to open."""
    if length < start + 4:
        return None
    flags, ethertype = struct.unpack_from("!HH", packet, start)
    if flags & 0x4007 or ethertype not in VERSIONS:  # routing present, or another version of GRE
        return None
    optional = ((flags >> 15) + (flags >> 13 & 1) + (flags >> 12 & 1)) * 4  # checksum, key, sequence number
    offset: int = start + 4 + optional
    if length <= offset or packet[offset] >> 4 != VERSIONS[ethertype]:  # a TUN refuses such a packet
        return None
    return offset


def open_tun(device: str) -> int:
    """Attach to an existing TUN device, without the packet information header."""
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH14x", device.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def open_raw(family: socket.AddressFamily) -> socket.socket:
    """A raw GRE socket with room for the packets that come while this process waits for a CPU."""
    raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_GRE)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    raw.setblocking(False)
    return raw


def drain(raw: socket.socket, tun: int, buffer: bytearray) -> None:
    """Move every waiting packet from the socket to the TUN."""
    view = memoryview(buffer)
    outer_ipv4 = raw.family == socket.AF_INET  # an IPv6 raw socket leaves the outer header away
    while True:
        try:
            length = raw.recv_into(buffer)
        except BlockingIOError:
            return
        start = (buffer[0] & 0x0F) * 4 if outer_ipv4 else 0
        offset = inner_offset(buffer, start, length)
        if offset is not None:
            os.write(tun, view[offset:length])


def main() -> None:
    """Decapsulate until killed."""
    tun = open_tun(sys.argv[1])
    sockets = [open_raw(socket.AF_INET), open_raw(socket.AF_INET6)]
    buffer = bytearray(65536)
    while True:
        for raw in select.select(sockets, [], [])[0]:
            drain(raw, tun, buffer)


if __name__ == "__main__":
    main()
