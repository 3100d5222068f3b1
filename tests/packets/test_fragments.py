"""Fragments: each goes where its datagram's flow goes, though only the first one tells the ports (DESIGN 7)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, defragment, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, fragment6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.packet import Packet

from packets.road import Road
from packets.table import Row
from packets.world import (
    BACKENDS,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    EMPTY,
    TUNNEL,
    VIP,
    VIP6,
    WORLD,
    backend_address,
    ether,
    outer,
    state,
    vip,
)

MakeRoad = Callable[..., Road]


def pieces(sport: int = 5000, size: int = 3000, number: int = 1, **ip: object) -> list[Packet]:
    """A UDP datagram to the vip, in fragments of an MTU of 1500 less the encapsulation."""
    whole = IP(**{"src": CLIENT, "dst": VIP, "id": number, **ip}) / UDP(sport=sport, dport=80) / bytes(size)
    return fragment(whole, fragsize=1400)


def pieces6(sport: int = 5000, size: int = 3000, number: int = 1) -> list[Packet]:
    whole = IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrFragment(id=number) / UDP(sport=sport, dport=53) / bytes(size)
    return fragment6(whole, 1400)


def dns(packet: Packet) -> bytes:
    """The frame that must leave for a fragment to the vip's UDP service; DF is clear, so it has an id."""
    return outer(packet, BACKENDS["dns1"])


FIRST, MIDDLE, LAST = pieces()
UNMATCHED = [
    Row(description, ether(inner), "fragment_unmatched")
    for description, inner in {
        "a later fragment alone": MIDDLE,
        "the last fragment alone": LAST,
        "a later fragment whose data looks like the vip's port": IP(src=CLIENT, dst=VIP, frag=1, proto=6)
        / TCP(dport=80),
        "the farthest offset": IP(src=CLIENT, dst=VIP, frag=0x1FFF, proto=17) / bytes(64),
        "a fragment of an echo": IP(src=CLIENT, dst=VIP, flags="MF") / ICMP() / bytes(64),
        "a later fragment of an echo": IP(src=CLIENT, dst=VIP, frag=9, proto=1) / bytes(64),
        "IPv6: a later fragment alone": IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrFragment(offset=9, nh=17) / bytes(64),
        "IPv6: a later fragment that seems to go on with options": IPv6(src=CLIENT6, dst=VIP6)
        / IPv6ExtHdrFragment(offset=9, nh=60)
        / (b"\xff" * 16),
    }.items()
]
TCP_START = bytes(TCP(dport=80))[:8]
REFUSED = [
    Row("no TCP header in the first fragment", ether(IP(src=CLIENT, dst=VIP, flags="MF", proto=6)), "malformed"),
    Row("8 bytes of TCP in the first", ether(IP(src=CLIENT, dst=VIP, flags="MF", proto=6) / TCP_START), "malformed"),
    Row("to a port that is no vip's", ether(IP(src=CLIENT, dst=VIP, flags="MF") / UDP(dport=9)), "not_vip"),
    Row(
        "to an address that is no vip's", ether(IP(src=CLIENT, dst=ELSEWHERE, flags="MF") / UDP(dport=80)), "not_vip"
    ),
    Row("TTL 0", ether(IP(src=CLIENT, dst=VIP, flags="MF", ttl=0) / UDP(dport=80)), "ttl_expired"),
    Row("to a vip without backend", ether(IP(src=CLIENT, dst=EMPTY, flags="MF") / TCP(dport=80)), "no_backend"),
    Row(
        "IPv6: two fragment headers",
        ether(IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrFragment(m=1) / IPv6ExtHdrFragment(m=1) / UDP(dport=53)),
        "malformed",
    ),
    Row(
        "IPv6: behind options, the first without the whole TCP header",
        ether(IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrHopByHop() / IPv6ExtHdrFragment(m=1, nh=6) / TCP_START),
        "malformed",
    ),
]


def test_a_fragment_that_may_not_be_fragmented_further_is_answered_when_it_is_the_first(road: Road) -> None:
    parts = fragment(IP(src=CLIENT, dst=VIP, id=7) / UDP(sport=5000, dport=80) / bytes(2952), fragsize=1480)
    for part in parts:
        part.flags = part.flags | 2  # DF
    assert road.fate_of(bytes(ether(parts[0]))) == "too_big_reply"
    assert road.fate_of(bytes(ether(parts[1]))) == "too_big"


@pytest.mark.parametrize("row", UNMATCHED + REFUSED, ids=str)
def test_refused(road: Road, row: Row) -> None:
    row.check(road)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)], ids=str)
def test_a_datagram_arrives_whole_in_any_order(road: Road, order: tuple[int, ...]) -> None:
    parts = pieces()
    out = road.send(*(bytes(ether(parts[i])) for i in order))
    assert road.fates() == {"fragment": 3}
    assert sorted(frame[42:] for frame in out) == sorted(dns(part)[42:] for part in parts)
    assert {backend_address(frame) for frame in out} == {BACKENDS["dns1"]}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
def test_an_ipv6_datagram_too(road: Road, order: tuple[int, ...]) -> None:
    parts = pieces6()
    out = road.send(*(bytes(ether(parts[i])) for i in order))
    assert road.fates() == {"fragment": 3}
    flow = IPv6(src=CLIENT6, dst=VIP6) / UDP(sport=5000, dport=53)
    assert sorted(out) == sorted(outer(part, BACKENDS["six2"], of=flow) for part in parts)


MANY = state(
    {f"b{i}": f"10.0.8.{i}" for i in range(1, 9)},
    vip("www", VIP, [f"b{i}" for i in range(1, 9)], "udp", 80),
)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_500_shuffled_datagrams_each_at_the_backend_of_its_flow(make_road: MakeRoad, workers: int) -> None:
    road = make_road(workers=workers, pool=16384)
    road.apply(MANY)
    datagrams = {number: pieces(1024 + number, number=number) for number in range(1, 501)}
    frames = [bytes(ether(part)) for parts in datagrams.values() for part in parts]
    random.Random(workers).shuffle(frames)
    out = road.send(*frames)
    assert road.fates() == {"fragment": 1500}
    went: dict[int, set[str]] = {}
    for frame in out:
        went.setdefault(int.from_bytes(frame[42:44], "big"), set()).add(backend_address(frame))
    assert sorted(went) == sorted(datagrams)
    for number, backends in went.items():
        whole = bytes(ether(IP(src=CLIENT, dst=VIP, flags="DF") / UDP(sport=1024 + number, dport=80)))
        assert backends == {backend_address(road.send(whole)[0])}


def test_a_datagram_that_was_given_up_does_not_come_later(road: Road) -> None:
    first, middle, last = (bytes(ether(part)) for part in pieces())
    assert road.send(middle) == []
    assert road.dataplane.held == 1
    road.outwait_fragments()
    assert road.fates() == {"fragment_unmatched": 1}
    assert len(road.send(first, last)) == 2


def test_the_same_id_later_is_another_datagram(road: Road) -> None:
    first, middle, _ = (bytes(ether(part)) for part in pieces())
    road.send(first)
    road.now += 5
    assert road.send(middle) == []
    assert road.dataplane.held == 1


def test_more_early_fragments_than_may_wait_are_dropped_and_counted(make_road: MakeRoad) -> None:
    road = make_road(pool=4096)
    road.apply(WORLD)
    road.send(*(bytes(ether(pieces(number=number)[1])) for number in range(1, 1101)))
    held = road.dataplane.held
    assert 0 < held < 1000
    assert road.fates() == {"fragment_unmatched": 1100 - held}
    assert road.fate_of(bytes(ether(pieces(number=2000)[0]))) == "fragment"


def test_the_fragments_of_one_datagram_do_not_take_all_places(road: Road) -> None:
    road.send(*(bytes(ether(IP(src=CLIENT, dst=VIP, id=9, frag=i, proto=17) / bytes(8))) for i in range(1, 200)))
    assert road.dataplane.held == 64
    assert road.fates() == {"fragment_unmatched": 199 - 64}
    assert len(road.send(bytes(ether(pieces(number=9)[0])))) == 65


CLUSTER = WORLD | {"cluster": {"lb1": TUNNEL, "lb2": "10.0.2.6"}}
FAR_CLIENT = "198.51.100.4"  # whose fragments are lb2's


@pytest.mark.parametrize("tags", [[], [Dot1Q(vlan=7)], [Dot1Q(vlan=7), Dot1Q(vlan=9)]], ids=["no tag", "one", "two"])
def test_a_fragment_that_goes_on_and_does_not_fit_is_cut_before_it_is_wrapped(
    make_road: MakeRoad, tags: list[Packet]
) -> None:
    """The other node must find a whole fragment in each packet; an outer fragment it could make nothing of."""
    road = make_road()
    road.apply(CLUSTER)
    datagram = IP(src=FAR_CLIENT, dst=VIP, id=7) / UDP(sport=5000, dport=80) / (bytes(range(256)) * 12)
    parts = fragment(datagram, fragsize=1480)
    link = ether()
    for tag in tags:
        link = link / tag
    out = road.send(*(bytes(link / part) + bytes(3) for part in parts))
    assert road.fates() == {"fragment": len(parts)}
    assert road.dataplane.pieces == len(out) - len(parts) == 2
    inner = []
    for frame in out:
        packet = Ether(frame)
        assert len(packet[IP]) <= 1500
        assert (packet[IP].dst, packet[IP].flags.MF, packet[IP].frag) == ("10.0.2.6", 0, 0)
        assert [layer.vlan for layer in (packet.getlayer(Dot1Q, i + 1) for i in range(len(tags)))] == [
            tag.vlan for tag in tags
        ]
        assert bytes(packet[GRE])[:4] == b"\x01\0\x08\0"
        inner.append(packet[GRE][IP])
    (whole,) = defragment(inner)
    assert bytes(whole[UDP]) == bytes(datagram[UDP])
