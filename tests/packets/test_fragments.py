"""Fragments: each goes where its datagram's flow goes, though only the first one tells the ports (DESIGN 7)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, defragment, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.packet import Packet

from packets.cluster import pieces, pieces6
from packets.road import BURST, End, Road, wait_until
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
    road = make_road(workers=workers, pool=32768)  # with RSS all wait in the share of one worker
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


@pytest.mark.parametrize("on_lcores", [False, True])
def test_what_waits_when_all_is_closed_goes_back_to_the_pool(layout: str, on_lcores: bool) -> None:
    road = Road(node="short", layout=layout)
    road.apply(WORLD)
    if on_lcores:
        road.start()
        road.give([bytes(ether(pieces()[1]))])
        wait_until(lambda: road.dataplane.held, "it waits")
        road.stop()
    else:
        road.send(bytes(ether(pieces()[1])))
        assert road.dataplane.held == 1
    road.close()


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


def numbered(packet: Packet, ids: range) -> list[bytes]:
    """Frames of a packet with each of these ids, fast to make."""
    frame = bytearray(bytes(ether(packet)))
    made = []
    for number in ids:
        frame[18:20] = number.to_bytes(2, "big")
        frame[24:26] = b"\0\0"
        total = sum(int.from_bytes(frame[at : at + 2], "big") for at in range(14, 34, 2))
        total = (total & 0xFFFF) + (total >> 16)
        frame[24:26] = (0xFFFF - (total & 0xFFFF) - (total >> 16)).to_bytes(2, "big")
        made.append(bytes(frame))
    return made


def test_a_flood_of_early_fragments_does_not_keep_others_from_being_matched(make_road: MakeRoad) -> None:
    """Whoever comes takes the place of the one that has waited longest."""
    road = make_road(pool=8192)
    road.apply(WORLD)
    junk = numbered(IP(src=CLIENT, dst=VIP, frag=9, proto=17) / bytes(8), range(4000))
    for number in range(5000, 5010):
        first, middle, last = (bytes(ether(part)) for part in pieces(number=number))
        road.send(*junk[:2000], last, middle, *junk[2000:2100])
        assert len(road.send(first)) == 3
        junk = junk[100:] + junk[:100]
    assert road.fates()["fragment"] == 30


def test_a_flood_of_first_fragments_does_not_keep_those_that_follow_at_once_from_being_matched(road: Road) -> None:
    junk = numbered(IP(src=CLIENT, dst=VIP, flags="MF") / UDP(dport=9), range(40000))
    road.send(*junk)
    for number in range(50000, 50020):
        first, middle, last = (bytes(ether(part)) for part in pieces(number=number))
        assert len(road.send(first, *junk[:200], middle, last)) == 3


@pytest.mark.layout("software")
@pytest.mark.parametrize("workers", [1, 2])
def test_more_at_once_than_the_workers_rings_have_room_for(make_road: MakeRoad, workers: int) -> None:
    """One burst of first fragments lets all that wait go: what does not fit is counted as such, and for no vip."""
    road = make_road(workers=workers, ring_size=64, trace=True)
    road.apply(WORLD)
    firsts = []
    for number in range(1, 5):
        later = [IP(src=CLIENT, dst=VIP, id=number, frag=i, proto=17) / bytes(8) for i in range(1, 51)]
        road.send(*(bytes(ether(part)) for part in later))
        firsts.append(bytes(ether(pieces(number=number)[0])))
    held = road.dataplane.held
    assert held == 200
    road.send(*firsts)
    fates = road.fates()
    assert fates["ring_full"] > 0
    assert sum(fates.values()) == held + len(firsts)
    assert {end for end in road.ends().values() if end.reason == "ring_full"} == {End("ring_full")}


@pytest.mark.layout("software")
def test_when_the_vip_goes_before_their_worker_has_them_they_are_told_of_no_vip(make_road: MakeRoad) -> None:
    road = make_road(trace=True)
    road.apply(WORLD)
    for number in (1, 2):
        later = [IP(src=CLIENT, dst=VIP, id=number, frag=i, proto=17) / bytes(8) for i in range(1, 51)]
        road.send(*(bytes(ether(part)) for part in later))
    road.give([bytes(ether(pieces(number=number)[0])) for number in (1, 2)])
    road.dataplane.step(road.now)  # all of them to the worker, which takes a burst
    ends = Counter(end.reason for end in road.ends().values())
    assert ends == {"fragment_first": 2, "fragment_later": BURST - 2}
    road.apply(state({}))
    road.step()
    assert Counter(road.ends().values()) == {End("other_address"): 102 - BURST}


def test_a_tcp_segment_in_fragments_goes_with_its_connection(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(state(MANY["backends"], vip("www", VIP, MANY["backends"])))
    for number in range(1, 40):
        header = {"sport": 1024 + number, "dport": 80}
        (syn,) = road.send(bytes(ether(IP(src=CLIENT, dst=VIP, flags="DF") / TCP(**header, flags="S"))))
        segment = IP(src=CLIENT, dst=VIP, id=number) / TCP(**header, flags="PA") / bytes(2000)
        out = road.send(*(bytes(ether(part)) for part in reversed(fragment(segment, fragsize=1000))))
        assert {backend_address(frame) for frame in out} == {backend_address(syn)}
        assert len(out) == 3
    assert road.connections() == 39


def test_a_later_fragment_makes_no_entry_and_keeps_none_alive(road: Road) -> None:
    first, middle, _ = (bytes(ether(part)) for part in pieces())
    road.send(first)
    assert road.connections() == 1
    for _ in range(16):
        road.now += 4
        assert len(road.send(middle)) == 1
    assert road.connections() == 0  # of 60 seconds
    assert road.fates() == {"fragment": 17}


def test_fragments_in_several_buffers_wait_and_go_whole(make_road: MakeRoad) -> None:
    road = make_road(mtu=9000)
    road.apply(WORLD)
    whole = IP(src=CLIENT, dst=VIP, id=7) / UDP(sport=5000, dport=80) / (bytes(range(256)) * 60)
    first, later = fragment(whole, fragsize=8000)
    out = road.send(bytes(ether(later)) + bytes(3000), bytes(ether(first)))
    assert out == [dns(first), outer(later, BACKENDS["dns1"], id=1)]


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
