"""Outer packets in pieces: how a frame must be cut, by a twin of our own, and what pieces make, by scapy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from scapy.layers.inet import IP, TCP, defragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, defragment6
from scapy.packet import Packet, Raw

from packets.table import FRAGMENT, IPV4, IPV6, is_ipv4, l3_of
from packets.world import CLIENT, CLIENT6, VIP


def cut(frame: bytes, mtu: int, id: int = 0) -> list[bytes]:
    """The frames that must leave instead of `frame`, which is longer than `mtu`; `id` is that of IPv6 fragments."""
    at = l3_of(frame)
    link, packet = frame[:at], frame[at:]
    four = is_ipv4(frame)
    payload = packet[IPV4 if four else IPV6 :]
    step = (mtu - (IPV4 if four else IPV6 + FRAGMENT)) // 8 * 8
    made = []
    for offset in range(0, len(payload), step):
        part = Raw(payload[offset : offset + step])
        more = offset + step < len(payload)
        if four:
            head = IP(packet[:IPV4])
            head.frag, head.flags = offset // 8, "MF" if more else 0
            del head.len, head.chksum
            made.append(link + bytes(head / part))
        else:
            head = IPv6(packet[:IPV6])
            del head.plen
            head.nh = 44
            made.append(link + bytes(head / IPv6ExtHdrFragment(nh=47, offset=offset // 8, m=more, id=id) / part))
    return made


def reassemble(frames: Sequence[bytes]) -> bytes:
    """The frame whose pieces these are, in their order, as the stack of a backend sees it."""
    at = l3_of(frames[0])
    (link,) = {frame[:at] for frame in frames}
    if is_ipv4(frames[0]):
        (whole,) = defragment([IP(frame[at:]) for frame in frames])
        del whole.len, whole.chksum
        return link + bytes(whole)
    assert len({IPv6(frame[at:])[IPv6ExtHdrFragment].id for frame in frames}) == 1
    whole = defragment6([IPv6(frame[at:]) for frame in frames])
    del whole.plen
    return link + bytes(whole)


def lengths(frames: Sequence[bytes]) -> list[int]:
    """Of the outer packets, Ethernet left out."""
    return [len(frame) - l3_of(frame) for frame in frames]


def sized(length: int, to: str = VIP, sport: int = 40000, **ip: object) -> Packet:
    """A TCP packet whose IP length is `length`, without DF, of data that differs everywhere."""
    header = IPv6(src=CLIENT6, dst=to, **ip) if ":" in to else IP(**{"src": CLIENT, "dst": to, "flags": 0, **ip})
    packet = header / TCP(sport=sport, dport=80, flags="A")
    return packet / Raw(random.Random(length).randbytes(length - len(packet)))
