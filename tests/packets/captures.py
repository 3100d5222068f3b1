"""Capture files for tests, written and read with struct: fast, and independent of the library that replay uses."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from pathlib import Path

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP

from packets.world import (
    ANY_PORT,
    BACKENDS,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    EMPTY,
    OVER4,
    OVER6,
    TUNNEL,
    VIP,
    VIP6,
    ether,
    outer,
    tcp,
    udp,
)

Record = tuple[int, bytes]  # nanoseconds, frame

NANOSECONDS = 10**9
MAGIC_NANO, MAGIC_MICRO, ETHERNET, SNAP = 0xA1B23C4D, 0xA1B2C3D4, 1, 262144
START = 1_700_000_000 * NANOSECONDS


def pcap(
    records: Iterable[Record], link: int = ETHERNET, snap: int = SNAP, micro: bool = False, order: str = "<"
) -> bytes:
    """A capture file; frames are cut at `snap` bytes."""
    unit = 1000 if micro else 1
    parts = [struct.pack(order + "IHHiIII", MAGIC_MICRO if micro else MAGIC_NANO, 2, 4, 0, 0, snap, link)]
    for at, frame in records:
        kept = frame[:snap]
        seconds, rest = divmod(at, NANOSECONDS)
        parts.append(struct.pack(order + "IIII", seconds, rest // unit, len(kept), len(frame)) + kept)
    return b"".join(parts)


def read(path: Path) -> list[Record]:
    """The records of a little-endian capture with nanoseconds."""
    raw = path.read_bytes()
    magic, *_, link = struct.unpack_from("<IHHiIII", raw)
    assert (magic, link) == (MAGIC_NANO, ETHERNET)
    records, at = [], 24
    while at < len(raw):
        seconds, nanoseconds, kept, length = struct.unpack_from("<IIII", raw, at)
        assert kept == length
        records.append((seconds * NANOSECONDS + nanoseconds, raw[at + 16 : at + 16 + kept]))
        at += 16 + kept
    assert at == len(raw)
    return records


def templates() -> list[bytes]:
    """A frame of every kind there is; those of a flow are varied by their client's port (client_port)."""
    packets = [
        *(
            tcp(dst, flags=flags)
            for dst in (VIP, VIP6, OVER4, OVER6, ANY_PORT)
            for flags in ("S", "A", "PA", "FA", "R")
        ),
        *(tcp(VIP, flags="PA", payload=bytes(length)) for length in (1, 100, 1000, 1436)),
        *(udp(dst, dport=port) for dst, port in ((VIP, 80), (VIP6, 53), (OVER4, 53), (OVER6, 53), (ANY_PORT, 9))),
        tcp(EMPTY),
        tcp(ELSEWHERE),
        tcp(dport=81),
        tcp(ttl=0),
        tcp(payload=bytes(1437)),
        tcp(tos=0xB8),
        IP(src=CLIENT, dst=VIP) / TCP(dport=80),
        IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrHopByHop() / TCP(dport=80),
        IP(src=CLIENT, dst=VIP, flags="MF") / UDP(dport=80) / bytes(64),
        IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrFragment(offset=9, nh=17) / bytes(64),
        IP(src=CLIENT, dst=VIP) / ICMP(),
        IP(src=CLIENT, dst=VIP) / ICMP(id=7, seq=1) / b"abcdefghi",
        IP(src=VIP, dst=VIP) / ICMP(),
        IPv6(src=CLIENT6, dst=VIP6) / ICMPv6EchoRequest(id=7, seq=1, data=b"abcdefghi"),
        IP(src=ELSEWHERE, dst=VIP) / ICMP(type=3, code=4) / bytes(tcp(CLIENT, 80, src=VIP))[:28],
        IP(src=ELSEWHERE, dst=VIP) / ICMP(type=4) / bytes(tcp(CLIENT, 80, src=VIP))[:28],
        IP(src=CLIENT, dst=VIP) / TCP(dport=80) / bytes(1460),
        tcp(src="127.0.0.1", payload=bytes(1437)),
        IP(src=ELSEWHERE, dst=TUNNEL) / ICMP(type=3, code=4, nexthopmtu=1400) / outer(tcp(), BACKENDS["web1"])[14:42],
        IP(src=CLIENT, dst=VIP, version=5) / TCP(dport=80),
        IP(src=CLIENT, dst=VIP, chksum=1) / TCP(dport=80),
        IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=4),
        ARP(pdst=VIP),
    ]
    frames = [bytes(ether(packet)) for packet in packets]
    return [*frames, frames[0] + bytes(6), frames[0][:33], b"\0", frames[0][:12] + b"\x12\x34" + bytes(46)]


def client_port(frame: bytes) -> int:
    """Where the client's port stands in a frame: in an ICMP error it is the quoted packet's destination port."""
    if frame[12:14] != b"\x08\x00":
        return 54 if frame[20:21] != b"\x3a" else len(frame)
    if frame[23:24] == b"\x01":
        about_a_flow = frame[34:35] == b"\x03" and frame[51] != 47  # and not about a packet of the tunnel
        return 34 + 8 + 20 + 2 if about_a_flow else len(frame)
    return 34


def mixed(count: int, seed: int = 1) -> list[Record]:
    """`count` frames of all kinds, of 50 flows each, some milliseconds apart and now and then a minute."""
    dice = random.Random(seed)
    kinds = templates()
    at = START
    records = []
    for _ in range(count):
        at += dice.randrange(1, 5_000_000) + (61 * NANOSECONDS if dice.random() < 0.001 else 0)
        frame = bytearray(dice.choice(kinds))
        port, number = client_port(frame), dice.randrange(50)
        if len(frame) >= port + 2:
            frame[port : port + 2] = (1024 + number).to_bytes(2, "big")
        records.append((at, bytes(frame)))
    return records
