"""Packets larger than the tunnel takes, from senders who forbade to fragment them: answered from the vip.

The error says what would fit, quotes the packet as it came, and is small enough that nobody must fragment it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from forwarder.next_hops import KernelView
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    ANY_PORT,
    BACKENDS,
    CLIENT,
    CLIENT6,
    EMPTY,
    GATEWAY_MAC,
    NODE_MAC,
    OVER4,
    OVER6,
    QUOTED,
    VIP,
    VIP6,
    WORLD,
    answer,
    ether,
    member,
    outer,
    state,
    tcp,
    too_big_error,
    vip,
)

MakeRoad = Callable[..., Road]
PER_SECOND = 1000  # answers of one worker
GRE4, GRE6 = 24, 44


def of_length(length: int, to: str = VIP, protocol: str = "tcp", dport: int = 80, **ip: object) -> Packet:
    """A TCP or UDP packet with DF whose IP length is `length`, of data that differs everywhere."""
    transport = TCP(sport=40000, dport=dport, flags="A") if protocol == "tcp" else UDP(sport=40000, dport=dport)
    if ":" in to:
        header: Packet = IPv6(**{"src": CLIENT6, "dst": to, **ip})
    else:
        header = IP(**{"src": CLIENT, "dst": to, "flags": "DF", **ip})
    packet = header / transport
    return packet / Raw(random.Random(length).randbytes(length - len(packet)))


def answered(description: str, packet: Packet, mtu: int) -> Row:
    return Row(description, ether(packet), "too_big_reply", answer(too_big_error(packet, mtu)))


def fits(description: str, packet: Packet, vip: str, backend: str) -> Row:
    return Row(description, ether(packet), "hash_new", outer(packet, BACKENDS[backend]), vip, backend)


def refused(description: str, packet: Packet, fate: str = "too_big") -> Row:
    return Row(description, ether(packet), fate, reason="too_big_silent" if fate == "too_big" else None)


ANSWERED = [
    answered("1500 bytes with DF over IPv4: 1476", of_length(1500), 1476),
    answered("1500 bytes with DF over IPv6: 1456", of_length(1500, OVER6), 1456),
    answered("IPv6 of 1500 bytes over IPv4: 1476", of_length(1500, OVER4), 1476),
    answered("IPv6 of 1500 bytes over IPv6: 1456", of_length(1500, VIP6), 1456),
    fits("1476 bytes go through over IPv4", of_length(1476), "www", "web1"),
    answered("1477 bytes do not", of_length(1477), 1476),
    fits("1456 bytes go through over IPv6", of_length(1456, OVER6), "www over 6", "six1"),
    answered("1457 bytes do not", of_length(1457, OVER6), 1456),
    fits("IPv6 of 1476 bytes goes through over IPv4", of_length(1476, OVER4), "www over 4", "web1"),
    answered("IPv6 of 1477 bytes does not", of_length(1477, OVER4), 1476),
    fits("IPv6 of 1456 bytes goes through over IPv6", of_length(1456, VIP6), "www6", "six1"),
    answered("IPv6 of 1457 bytes does not", of_length(1457, VIP6), 1456),
    answered("UDP", of_length(1500, protocol="udp"), 1476),
    answered("UDP over IPv6", of_length(1500, OVER6, "udp", 53), 1456),
    answered("IPv6 UDP over IPv4", of_length(1500, OVER4, "udp", 53), 1476),
    answered("IPv6 UDP over IPv6", of_length(1500, VIP6, "udp", 53), 1456),
    answered("a vip of any port", of_length(1500, ANY_PORT, dport=9999), 1476),
    answered("the quote has id, class and TTL as they came", of_length(1500, id=77, tos=0xB9, ttl=3), 1476),
    answered("the quote has class, flow label and hop limit", of_length(1500, VIP6, tc=0xB9, fl=9, hlim=3), 1456),
    answered("a packet with options", of_length(1500, options=[IPOption_NOP()] * 40), 1476),
    answered(
        "an IPv6 packet with options",
        IPv6(src=CLIENT6, dst=VIP6)
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / TCP(sport=40000, dport=80)
        / bytes(1424),
        1456,
    ),
    answered("TTL 1", of_length(1500, ttl=1), 1476),
    answered("SYN", tcp(payload=bytes(1460)), 1476),
    answered("FIN", tcp(flags="FA", payload=bytes(1460)), 1476),
    answered("RST", tcp(flags="R", payload=bytes(1460)), 1476),
    answered(
        "a wrong TCP checksum", IP(src=CLIENT, dst=VIP, flags="DF") / TCP(dport=80, chksum=7) / bytes(1460), 1476
    ),
    answered("from a private address", of_length(1500, src="10.0.0.1"), 1476),
    answered("from a link-local address", of_length(1500, VIP6, src="fe80::7"), 1456),
    answered("from another vip", of_length(1500, src=ANY_PORT), 1476),
]

LAYER2 = [
    Row(
        "back to the station that sent it",
        Ether(src="02:00:00:00:00:aa", dst=NODE_MAC) / of_length(1500),
        "too_big_reply",
        answer(too_big_error(of_length(1500), 1476), mac="02:00:00:00:00:aa"),
    ),
    Row(
        "one VLAN tag stays",
        ether(Dot1Q(vlan=5, prio=3) / of_length(1500)),
        "too_big_reply",
        Ether(src=NODE_MAC, dst=GATEWAY_MAC) / Dot1Q(vlan=5, prio=3) / too_big_error(of_length(1500), 1476),
    ),
    Row(
        "two VLAN tags stay",
        ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / of_length(1500, VIP6)),
        "too_big_reply",
        Ether(src=NODE_MAC, dst=GATEWAY_MAC)
        / Dot1AD(vlan=5)
        / Dot1Q(vlan=6)
        / too_big_error(of_length(1500, VIP6), 1456),
    ),
    Row(
        "1476 bytes behind a tag go through",
        ether(Dot1Q(vlan=5) / of_length(1476)),
        "hash_new",
        outer(of_length(1476), BACKENDS["web1"])[:12]
        + b"\x81\x00\x00\x05"
        + outer(of_length(1476), BACKENDS["web1"])[12:],
        "www",
        "web1",
    ),
    Row("to all stations", Ether(src=GATEWAY_MAC, dst="ff:ff:ff:ff:ff:ff") / of_length(1500), "too_big"),
    Row("to a group of stations", Ether(src=GATEWAY_MAC, dst="33:33:00:00:00:01") / of_length(1500, VIP6), "too_big"),
    Row("from a group of stations", Ether(src="01:00:5e:00:00:01", dst=NODE_MAC) / of_length(1500), "too_big"),
]

REFUSED = [
    *(
        refused(f"from {source}", of_length(1500, src=source))
        for source in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", VIP)
    ),
    *(
        refused(f"from {source}", of_length(1500, VIP6, src=source))
        for source in ("::", "::1", "ff02::1", "ff0e::7", VIP6)
    ),
    refused(
        "an ICMP error",
        IP(src=CLIENT, dst=VIP, flags="DF")
        / ICMP(type=3)
        / Raw(bytes(IP(src=VIP, dst=CLIENT) / TCP(sport=80) / bytes(1432))),
    ),
    refused(
        "an ICMPv6 error",
        IPv6(src=CLIENT6, dst=VIP6)
        / ICMPv6PacketTooBig()
        / Raw(bytes(IPv6(src=VIP6, dst=CLIENT6) / TCP(sport=80) / bytes(1392))),
    ),
    refused("too big to a vip without backend", of_length(1500, EMPTY), "no_backend"),
    refused("too big with TTL 0", of_length(1500, ttl=0), "ttl_expired"),
    refused("too big to another port", of_length(1500, dport=81), "not_vip"),
    refused("too big and broken", of_length(1500, chksum=1), "malformed"),
]


@pytest.mark.parametrize("row", ANSWERED + LAYER2 + REFUSED, ids=str)
def test_too_big(road: Road, row: Row) -> None:
    row.check(road)


@pytest.mark.parametrize(
    ("to", "mtu"), [(VIP, 1476), (OVER6, 1456), (OVER4, 1476), (VIP6, 1456)], ids=["4in4", "4in6", "6in4", "6in6"]
)
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_the_error_read_field_by_field(road: Road, to: str, mtu: int, protocol: str) -> None:
    """Not by the twin that builds the rows' frames, but as the client's stack reads it."""
    dport = 80 if protocol == "tcp" or to == VIP else 53
    packet = of_length(1500, to, protocol, 53 if to == OVER6 and protocol == "udp" else dport)
    (frame,) = road.send(bytes(ether(packet)))
    got = Ether(frame)
    assert (got.src, got.dst) == (NODE_MAC, GATEWAY_MAC)
    if ":" in to:
        ip, icmp = got[IPv6], got[ICMPv6PacketTooBig]
        assert (ip.src, ip.dst, ip.nh, ip.hlim, ip.plen) == (to, CLIENT6, 58, 64, len(frame) - 14 - 40)
        assert (icmp.type, icmp.code, icmp.mtu) == (2, 0, mtu)
        assert len(frame) == 14 + 1280
    else:
        ip, icmp = got[IP], got[ICMP]
        assert (ip.src, ip.dst, ip.proto, ip.ttl, ip.len) == (to, CLIENT, 1, 64, len(frame) - 14)
        assert (int(ip.flags), ip.frag, ip.ihl, ip.tos) == (0, 0, 5, 0), "no fragment bits, no options"
        assert (icmp.type, icmp.code, icmp.nexthopmtu, icmp.reserved) == (3, 4, mtu, 0)
        assert len(frame) == 14 + 576
    quote = frame[-QUOTED[6 if ":" in to else 4] :]
    assert quote == bytes(packet)[: len(quote)]
    again = got[IPv6 if ":" in to else IP].copy()
    if ":" in to:
        del again[ICMPv6PacketTooBig].cksum
    else:
        del again.chksum
        del again[ICMP].chksum
    assert bytes(again) == frame[14:], "checksums are those that scapy computes"


@pytest.mark.parametrize(
    ("mtu", "to", "over"),
    [
        (mtu, to, over)
        for mtu in (576, 1280, 1304, 1324, 1400, 1600, 2000)
        for to, over, least in ((VIP, GRE4, 576), (OVER6, GRE6, 576), (OVER4, GRE4, 1304), (VIP6, GRE6, 1324))
        if mtu >= least  # nobody is told less than the 1280 bytes that IPv6 needs
    ],
)
def test_the_mtu_that_is_said_is_the_largest_that_goes_through(
    make_road: MakeRoad, mtu: int, to: str, over: int
) -> None:
    road = make_road(mtu=mtu)
    road.apply(WORLD)
    answered("one byte more", of_length(mtu - over + 1, to), mtu - over).check(road)
    assert road.fate_of(bytes(ether(of_length(mtu - over, to)))) == "conn_hit"


@pytest.mark.parametrize("length", [101, 200, 547, 548, 549, 1500])
def test_the_quote_is_the_packet_as_far_as_there_is_room(make_road: MakeRoad, length: int) -> None:
    """A small packet is quoted whole, and nothing that follows it in the frame."""
    road = make_road(mtu=124)
    road.apply(WORLD)
    packet = of_length(length)
    error = answer(too_big_error(packet, 100))
    assert len(error) == 14 + min(28 + length, 576)
    Row("padded", bytes(ether(packet)) + b"\xff" * 9, "too_big_reply", error).check(road)


@pytest.mark.parametrize("length", [1281, 1500, 4000])
def test_the_quote_of_an_ipv6_packet(make_road: MakeRoad, length: int) -> None:
    """It is never quoted whole: what is answered is longer than the answer may be."""
    road = make_road(mtu=1324)
    road.apply(WORLD)
    packet = of_length(length, VIP6)
    error = answer(too_big_error(packet, 1280))
    assert len(error) == 14 + 1280
    Row("padded", bytes(ether(packet)) + b"\xff" * 9, "too_big_reply", error).check(road)


@pytest.mark.parametrize("to", [VIP, VIP6])
@pytest.mark.parametrize("length", [1894, 1906, 1907, 1920, 2048, 4000, 8999])
def test_packets_of_several_buffers(road: Road, to: str, length: int) -> None:
    """The buffers behind the quote go back to the pool."""
    row = answered("large", of_length(length, to), 1476 if to == VIP else 1456)
    row.check(road)
    assert road.pool.available == road.pool.size
    Row("large and bad", ether(of_length(length, to, src=to)), "too_big").check(road)


def test_a_vip_with_backends_of_both_families_says_the_mtu_of_the_flows_backend(road: Road) -> None:
    road.apply(state(BACKENDS, vip("mixed", VIP, ["web1", "six1"])))
    said = set()
    for port in range(40000, 40050):
        small = IP(src=CLIENT, dst=VIP, flags="DF") / TCP(sport=port, dport=80)
        (forwarded,) = road.send(bytes(ether(small)))
        mtu = 1476 if forwarded[12:14] == b"\x08\x00" else 1456
        (error,) = road.send(bytes(ether(small / bytes(1460))))
        assert Ether(error)[ICMP].nexthopmtu == mtu
        said.add(mtu)
    assert said == {1476, 1456}


def test_the_way_back_is_the_port_of_the_packet_and_the_mtu_that_of_the_way_on(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mtu=1500), port_settings(mtu=9000)])
    road.apply(WORLD)
    packet = of_length(1500)
    Row("by 1", ether(packet), "too_big_reply", answer(too_big_error(packet, 1476)), port=1, by=1).check(road)


def test_no_neighbor_comes_before_too_big(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mac=None)], view=KernelView())
    road.apply(WORLD)
    assert road.fate_of(bytes(ether(of_length(1500)))) == "no_neighbor"


# -- the flow


def test_a_flow_whose_packet_is_too_big_keeps_its_backend(road: Road) -> None:
    """It was seen: the entry is made by the first packet although it was not sent on, and lives by the next ones."""
    two = {"b1": "10.0.3.2", "b2": "10.0.4.2"}
    road.apply(state(two, vip("www", VIP, [member("b1"), member("b2", 100, "drain")])))
    assert road.fate_of(bytes(ether(of_length(1500)))) == "too_big_reply"
    assert road.connections() == 1
    road.apply(state(two, vip("www", VIP, [member("b1", 100, "drain"), member("b2")])))
    small = of_length(1476)
    Row("smaller", ether(small), "conn_hit", outer(small, "10.0.3.2"), "www", "b1").check(road)
    for _ in range(20):
        road.now += 9
        assert road.fate_of(bytes(ether(of_length(1500)))) == "too_big_reply"
    assert road.connections() == 1


def test_path_mtu_discovery_of_one_flow(road: Road) -> None:
    """The client sends again what the error says: at most as much as fits."""
    (error,) = road.send(bytes(ether(of_length(1500))))
    mtu = Ether(error)[ICMP].nexthopmtu
    assert road.fate_of(bytes(ether(of_length(mtu)))) == "conn_hit"


def test_an_error_that_comes_back_is_not_answered(road: Road) -> None:
    """Two vips, a forged source: the error to the second vip goes to that one's backend, and there it ends."""
    forged = IP(src=ANY_PORT, dst=VIP, flags="DF") / TCP(sport=443, dport=80) / bytes(1460)
    (error,) = road.send(bytes(ether(forged)))
    back = Ether(error)[IP]
    assert back.dst == ANY_PORT
    assert road.fate_of(bytes(ether(back))) == "icmp_error"
    echo = IP(src=ANY_PORT, dst=VIP) / ICMP()
    (reply,) = road.send(bytes(ether(echo)))
    assert road.fate_of(bytes(ether(Ether(reply)[IP]))) == "not_vip"


# -- no more than so many in a second


def test_a_thousand_in_a_second_and_again_in_the_next(road: Road) -> None:
    big = bytes(ether(of_length(1500)))
    assert road.fates_of(*[big] * (PER_SECOND + 1)) == {"too_big_reply": PER_SECOND, "too_big": 1}
    assert road.fate_of(bytes(ether(of_length(1476)))) == "conn_hit", "forwarding goes on"
    road.now += 1
    assert road.fates_of(*[big] * (PER_SECOND + 1)) == {"too_big_reply": PER_SECOND, "too_big": 1}


def test_a_flood_of_pings_stops_no_error(road: Road) -> None:
    """Else anybody could make a black hole for packets that are too big."""
    big, ping = bytes(ether(of_length(1500))), bytes(ether(IP(src=CLIENT, dst=VIP) / ICMP()))
    assert road.fates_of(*[ping] * (PER_SECOND + 9)) == {"echo_reply": PER_SECOND, "echo_suppressed": 9}
    assert road.fates_of(*[big] * (PER_SECOND + 1)) == {"too_big_reply": PER_SECOND, "too_big": 1}


def test_what_may_not_be_answered_uses_nothing_up(road: Road) -> None:
    big, bad = bytes(ether(of_length(1500))), bytes(ether(of_length(1500, src="127.0.0.1")))
    to_be_cut = bytes(ether(of_length(1500, flags=0)))
    assert road.fates_of(*[bad, to_be_cut] * 600) == {"too_big": 600, "hash_new": 1, "conn_hit": 599}
    assert road.fates_of(*[big] * PER_SECOND) == {"too_big_reply": PER_SECOND}


def test_each_error_has_an_id_of_its_own_and_no_two_workers_the_same(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(WORLD)
    bigs = [
        bytes(ether(IP(src=CLIENT, dst=VIP, flags="DF") / TCP(sport=p, dport=80) / bytes(1460))) for p in range(100)
    ]
    ids = [int.from_bytes(frame[18:20], "big") for frame in road.send(*bigs)]
    assert len(set(ids)) == 100
    assert {number % 2 for number in ids} == {0, 1}
    assert road.fates() == {"too_big_reply": 100}


def test_credit_comes_back_from_answers(make_road: MakeRoad) -> None:
    """Packets of five buffers, far more than the pool has, and none taken."""
    road = make_road(ring_size=64, pool=2048)
    road.apply(WORLD)
    jumbo = bytes(ether(of_length(8999)))
    for _ in range(100):
        assert road.give([jumbo] * 32) == 32
        road.step()
        road.now += 1
    assert road.fates() == {"transmit_full": 3200 - 64, "too_big_reply": 64}
    assert len(road.take()) == 64
    road.step()
    assert road.pool.available == road.pool.size
