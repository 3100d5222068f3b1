"""ICMP and ICMPv6 errors about a flow of a vip: they go where the flow goes, and change nothing of it.

The flows of these tables are pinned: the connection table has them at a backend that drains since, which the Maglev
table would never choose. An error about a flow that nobody knows goes by the Maglev table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
)
from scapy.layers.l2 import GRE, Dot1Q
from scapy.packet import Packet, Raw

from forwarder.next_hops import KernelView
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    ANY_PORT,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    ELSEWHERE6,
    EMPTY,
    VIP,
    VIP6,
    WORLD,
    backend_address,
    ether,
    flow,
    member,
    outer,
    state,
    tcp,
    udp,
    vip,
)

MakeRoad = Callable[..., Road]

STICKY = "192.0.2.10"
KNOWN, UNKNOWN = 40000, 41000  # the client's port of a flow that is in the connection table, and of one that is not
HALF_OPEN, ESTABLISHED, DATAGRAM = 10, 7200, 60

# b3 and s3 have the pinned flows and drain; all that is new is for b1 and s1.
MEMBERS = {"b1": "10.0.3.2", "b3": "10.0.5.2", "s1": "fd00:3::2", "s3": "fd00:5::2"}
HAS_FLOWS, NEW_ONES = {"b3", "s3"}, {"b1", "s1"}


def pinned_state(up: set[str]) -> dict[str, object]:
    def members(*names: str) -> list[list[object]]:
        return [member(name, 100, "up" if name in up else "drain") for name in names]

    return state(
        MEMBERS,
        vip("www", VIP, members("b1", "b3")),
        vip("dns", VIP, members("b1", "b3"), "udp", 53),
        vip("www6", VIP6, members("s1", "s3")),
        vip("dns6", VIP6, members("s1", "s3"), "udp", 53),
        vip("every", ANY_PORT, members("b1", "b3"), port=0),
        vip("sticky", STICKY, members("s1", "s3"), affinity="client"),
    )


FLOWS = [tcp(), udp(), tcp(VIP6), udp(VIP6), tcp(ANY_PORT, dport=8443), tcp(STICKY)]


@pytest.fixture
def pinned(road: Road) -> Road:
    """The road after each of the flows has sent its first packet."""
    road.apply(pinned_state(HAS_FLOWS))
    assert road.fates_of(*(bytes(ether(packet)) for packet in FLOWS)) == {"hash_new": len(FLOWS)}
    road.apply(pinned_state(NEW_ONES))
    return road


# -- what a router or a client sends


def answer_of(source: str = VIP, dport: int = KNOWN, sport: int = 80, **ip: object) -> Packet:
    """What a backend has sent from the vip to the client, and what an error is about."""
    fields = {"src": source, "dst": CLIENT, "flags": "DF", "ttl": 57, "id": 4242, **ip}
    return IP(**fields) / TCP(sport=sport, dport=dport, flags="A", seq=12345) / (b"answer" * 20)


def answer6_of(dport: int = KNOWN, sport: int = 80, **ip: object) -> Packet:
    fields = {"src": VIP6, "dst": CLIENT6, "hlim": 57, **ip}
    return IPv6(**fields) / TCP(sport=sport, dport=dport, flags="A", seq=12345) / (b"answer" * 20)


def udp_answer(dport: int = KNOWN) -> Packet:
    return IP(src=VIP, dst=CLIENT, flags="DF") / UDP(sport=53, dport=dport) / (b"answer" * 20)


def udp_answer6(dport: int = KNOWN) -> Packet:
    return IPv6(src=VIP6, dst=CLIENT6) / UDP(sport=53, dport=dport) / (b"answer" * 20)


def error(quote: Packet | bytes, to: str = VIP, type: int = 3, code: int = 3, **fields: object) -> Packet:
    """An ICMP error of a router between the vip and the client; `fields` are those of its IP header."""
    header = IP(**{"src": ELSEWHERE, "dst": to, "ttl": 61, **fields})
    return header / ICMP(type=type, code=code) / Raw(bytes(quote))


def error6(quote: Packet | bytes, kind: Packet | None = None, to: str = VIP6, **fields: object) -> Packet:
    header = IPv6(**{"src": ELSEWHERE6, "dst": to, "hlim": 61, **fields})
    return header / (ICMPv6DestUnreach(code=4) if kind is None else kind) / Raw(bytes(quote))


def goes(description: str, packet: Packet, to: str, vip: str, of: Packet | None = None) -> Row:
    """Forwarded to a backend whole; `of` is a packet of the flow where the outer flow label shows it."""
    return Row(
        description, ether(packet), "icmp_error", outer(packet, MEMBERS[to], of=of or FLOWS[0]), vip=vip, backend=to
    )


def refused(description: str, packet: Packet, fate: str = "not_vip", reason: str | None = None) -> Row:
    return Row(description, ether(packet), fate, reason=reason)


TYPES4 = {
    "network unreachable": (3, 0),
    "host unreachable": (3, 1),
    "protocol unreachable": (3, 2),
    "port unreachable": (3, 3),
    "fragmentation needed": (3, 4),
    "prohibited": (3, 13),
    "time exceeded on the way": (11, 0),
    "time exceeded while putting together": (11, 1),
    "parameter problem": (12, 0),
}
TYPES6 = {
    "no route": ICMPv6DestUnreach(code=0),
    "prohibited": ICMPv6DestUnreach(code=1),
    "address unreachable": ICMPv6DestUnreach(code=3),
    "port unreachable": ICMPv6DestUnreach(code=4),
    "packet too big": ICMPv6PacketTooBig(mtu=1400),
    "hop limit exceeded": ICMPv6TimeExceeded(),
    "parameter problem": ICMPv6ParamProblem(code=1),
}

TO_THE_FLOW = [
    *(goes(f"{what} ({t}/{c})", error(answer_of(), type=t, code=c), "b3", "www") for what, (t, c) in TYPES4.items()),
    *(
        goes(f"ICMPv6 {what}", error6(answer6_of(), kind), "s3", "www6", of=tcp(VIP6))
        for what, kind in TYPES6.items()
    ),
    goes("a UDP flow", error(udp_answer()), "b3", "dns"),
    goes("an IPv6 UDP flow", error6(udp_answer6()), "s3", "dns6", of=udp(VIP6)),
    goes(
        "the MTU in a fragmentation needed is not touched",
        IP(src=ELSEWHERE, dst=VIP) / ICMP(type=3, code=4, nexthopmtu=1280) / Raw(bytes(answer_of())),
        "b3",
        "www",
    ),
    goes(
        "ICMPv6, a quoted first fragment",
        error6(IPv6(src=VIP6, dst=CLIENT6) / IPv6ExtHdrFragment(m=1, nh=6) / Raw(bytes(answer6_of()[TCP]))),
        "s3",
        "www6",
        of=tcp(VIP6),
    ),
    goes(
        "ICMPv6, quoted options before the flow's header",
        error6(IPv6(src=VIP6, dst=CLIENT6) / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / answer6_of()[TCP]),
        "s3",
        "www6",
        of=tcp(VIP6),
    ),
    goes(
        "ICMPv6, eight quoted extension headers",
        error6(
            IPv6(src=VIP6, dst=CLIENT6, nh=60)
            / Raw((bytes([60]) + bytes(7)) * 7 + bytes([6]) + bytes(7) + bytes(answer6_of()[TCP]))
        ),
        "s3",
        "www6",
        of=tcp(VIP6),
    ),
    goes("from the client itself", error(answer_of(), src=CLIENT), "b3", "www"),
    goes("from a private address", error(answer_of(), src="10.1.2.3"), "b3", "www"),
    goes("with TTL 1", error(answer_of(), ttl=1), "b3", "www"),
    goes("with DSCP and without DF", error(answer_of(), tos=0xC0), "b3", "www"),
    goes("with DF", error(answer_of(), flags="DF"), "b3", "www"),
    goes("with options of its own", error(answer_of(), options=[IPOption_NOP()] * 4), "b3", "www"),
    goes(
        "with IPv6 options of its own",
        IPv6(src=ELSEWHERE6, dst=VIP6)
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / ICMPv6TimeExceeded()
        / Raw(bytes(answer6_of())),
        "s3",
        "www6",
        of=tcp(VIP6),
    ),
    goes(
        "a wrong ICMP checksum is the backend's to judge",
        IP(src=ELSEWHERE, dst=VIP) / ICMP(type=3, code=1, chksum=0x1234) / Raw(bytes(answer_of())),
        "b3",
        "www",
    ),
    goes("a vip of any port", error(answer_of(ANY_PORT, sport=8443), ANY_PORT), "b3", "every", tcp(ANY_PORT)),
    goes("affinity by client", error(answer_of(STICKY), STICKY), "s3", "sticky", tcp(STICKY)),
    goes("larger than most", error(bytes(answer_of()) + bytes(1200)), "b3", "www"),
]

UNKNOWN_FLOW = [
    goes("a TCP flow that nobody knows", error(answer_of(dport=UNKNOWN)), "b1", "www"),
    goes("a UDP flow that nobody knows", error(udp_answer(UNKNOWN)), "b1", "dns"),
    goes(
        "an IPv6 TCP flow that nobody knows",
        error6(answer6_of(dport=UNKNOWN)),
        "s1",
        "www6",
        of=tcp(VIP6, sport=UNKNOWN),
    ),
    goes(
        "an IPv6 UDP flow that nobody knows", error6(udp_answer6(UNKNOWN)), "s1", "dns6", of=udp(VIP6, sport=UNKNOWN)
    ),
    goes("the same ports to another client", error(answer_of(dst="198.51.100.8")), "b1", "www"),
    goes("another port of a vip of any port", error(answer_of(ANY_PORT, sport=9), ANY_PORT), "b1", "every"),
    goes(
        "affinity by client, another port",
        error(answer_of(STICKY, dport=UNKNOWN), STICKY),
        "s1",
        "sticky",
        of=tcp(STICKY, sport=UNKNOWN),
    ),
    goes("ports swapped", error(answer_of(dport=80)), "b1", "www"),
]


def cut(packet: Packet, l4: int) -> bytes:
    """The packet's IP header and so many bytes behind it."""
    header = 40 if packet.version == 6 else packet[IP].ihl * 4 if packet[IP].ihl else 20
    return bytes(packet)[: header + l4]


QUOTES = [
    goes("8 bytes of layer 4 are enough", error(cut(answer_of(), 8)), "b3", "www"),
    goes("8 bytes of UDP", error(cut(udp_answer(), 8)), "b3", "dns"),
    goes("ICMPv6, 8 bytes of layer 4", error6(cut(answer6_of(), 8)), "s3", "www6", of=tcp(VIP6)),
    goes("4 bytes have the ports", error(cut(answer_of(), 4)), "b3", "www"),
    refused("3 bytes of layer 4", error(cut(answer_of(), 3))),
    refused("ICMPv6, 3 bytes of layer 4", error6(cut(answer6_of(), 3))),
    refused("no byte of layer 4", error(cut(answer_of(), 0))),
    refused("19 bytes of IP header", error(bytes(answer_of())[:19])),
    refused("39 bytes of IPv6 header", error6(bytes(answer6_of())[:39])),
    refused("nothing is quoted", error(b"")),
    refused("ICMPv6, nothing is quoted", error6(b"")),
    goes(
        "options in the quoted header",
        error(bytes(answer_of(options=[IPOption_NOP()] * 40))[:68]),
        "b3",
        "www",
    ),
    refused(
        "the quote ends in the options",
        error(bytes(answer_of(options=[IPOption_NOP()] * 40))[:48]),
    ),
    refused("a header of 16 bytes", error(answer_of(ihl=4))),
    refused("a header of no byte", error(answer_of(ihl=0))),
    refused("a header longer than the quote", error(cut(answer_of(ihl=15), 8)[:28])),
    refused("a quote of version 5", error(answer_of(version=5))),
    refused("IPv6 in an IPv4 error", error(answer6_of())),
    refused("IPv4 in an IPv6 error", error6(answer_of())),
    goes("a wrong checksum in the quote", error(answer_of(chksum=1)), "b3", "www"),
    goes("a quoted TTL of 0", error(answer_of(ttl=0)), "b3", "www"),
    goes("a quoted length that is nonsense", error(answer_of(len=3)), "b3", "www"),
    goes("a quoted length of 65535", error(answer_of(len=65535)), "b3", "www"),
    goes("ICMPv6, a quoted length of 0", error6(answer6_of(plen=0)), "s3", "www6", of=tcp(VIP6)),
    goes("a quoted first fragment", error(answer_of(flags="MF")), "b3", "www"),
    refused("a quoted later fragment", error(answer_of(frag=1))),
    refused("the farthest quoted fragment", error(answer_of(frag=0x1FFF, flags="MF"))),
    refused("a quoted later fragment, offset 256 only in the high bits", error(answer_of(frag=0x100))),
    refused("a quoted echo reply", error(IP(src=VIP, dst=CLIENT) / ICMP(type=0, id=80, seq=KNOWN))),
    refused("a quoted error", error(error(answer_of(), to=CLIENT, src=VIP))),
    refused("quoted GRE", error(IP(src=VIP, dst=CLIENT) / GRE() / answer_of())),
    refused("quoted SCTP", error(IP(src=VIP, dst=CLIENT, proto=132) / Raw(bytes(answer_of()[TCP])))),
    refused("ICMPv6, quoted ICMPv6", error6(IPv6(src=VIP6, dst=CLIENT6) / ICMPv6TimeExceeded() / bytes(48))),
    refused("ICMPv6, quoted ESP", error6(answer6_of(nh=50))),
    refused(
        "ICMPv6, a quoted later fragment",
        error6(IPv6(src=VIP6, dst=CLIENT6) / IPv6ExtHdrFragment(offset=9, nh=6) / Raw(bytes(answer6_of()[TCP]))),
    ),
    refused(
        "ICMPv6, a quoted later fragment behind options",
        error6(
            IPv6(src=VIP6, dst=CLIENT6)
            / IPv6ExtHdrDestOpt()
            / IPv6ExtHdrFragment(offset=9, nh=6)
            / Raw(bytes(answer6_of()[TCP]))
        ),
    ),
    refused(
        "ICMPv6, quoted options that reach beyond the quote",
        error6(IPv6(src=VIP6, dst=CLIENT6, nh=60) / Raw(bytes([6, 255]) + bytes(6) + bytes(answer6_of()[TCP]))),
    ),
    refused(
        "ICMPv6, nine quoted extension headers",
        error6(
            IPv6(src=VIP6, dst=CLIENT6, nh=60)
            / Raw((bytes([60]) + bytes(7)) * 8 + bytes([6]) + bytes(7) + bytes(answer6_of()[TCP]))
        ),
    ),
    refused("quoted from the client to the vip", error(tcp()), reason="quote_unknown"),
    refused("quoted from another source", error(answer_of(ELSEWHERE)), reason="quote_unknown"),
    refused("quoted from another vip", error(answer_of(ANY_PORT, sport=8443))),
    refused("ICMPv6, quoted from another source", error6(answer6_of(src=ELSEWHERE6))),
    refused("quoted from a port that is no vip's", error(answer_of(sport=81)), reason="quote_not_vip"),
    refused("quoted from the other protocol's port", error(IP(src=VIP, dst=CLIENT) / UDP(sport=80, dport=KNOWN))),
]

ITSELF = [
    refused("with TTL 0", error(answer_of(), ttl=0), "ttl_expired"),
    refused("ICMPv6 with hop limit 0", error6(answer6_of(), hlim=0), "ttl_expired"),
    refused("not a vip's comes before TTL 0", error(answer_of(ELSEWHERE), ttl=0)),
    refused("a fragment of an error", error(answer_of(), flags="MF"), "fragment_unmatched"),
    refused("a later fragment of an error", error(answer_of(), frag=9), "fragment_unmatched"),
    refused(
        "a fragment of an ICMPv6 error",
        IPv6(src=ELSEWHERE6, dst=VIP6)
        / IPv6ExtHdrFragment(m=1)
        / ICMPv6PacketTooBig(mtu=1280)
        / Raw(bytes(answer6_of())),
        "fragment_unmatched",
    ),
    refused("a broken header checksum", error(answer_of(), chksum=1), "malformed"),
    refused("not a vip's comes before too big", error(bytes(1500 - 28), flags="DF")),
    refused(
        "one byte too big for the tunnel: an error is never answered",
        error(bytes(answer_of()) + bytes(1477 - 28 - 160), flags="DF"),
        "too_big",
    ),
    refused("ICMPv6, too big for the tunnel", error6(bytes(answer6_of()) + bytes(1300)), "too_big"),
    *(
        refused(f"ICMP type {kind} says nothing of a flow", error(answer_of(), type=kind, code=0))
        for kind in (0, 1, 2, 4, 5, 6, 7, 9, 10, 13, 14, 15, 16, 17, 18, 30, 40, 42, 43, 255)
    ),
    *(
        refused(
            f"ICMPv6 type {kind} says nothing of a flow",
            error6(answer6_of(), Raw(bytes([kind, 0, 0, 0, 0, 0, 0, 0])), nh=58),
        )
        for kind in (0, 5, 100, 127, 129, 130, 133, 134, 135, 136, 137, 160, 255)
    ),
    refused("an ICMPv6 error in IPv4", error(answer_of(), proto=58)),
    refused("an ICMP error in IPv6", IPv6(src=ELSEWHERE6, dst=VIP6, nh=1) / ICMP(type=3) / bytes(answer6_of())),
]


@pytest.mark.parametrize("row", TO_THE_FLOW + UNKNOWN_FLOW + QUOTES + ITSELF, ids=str)
def test_errors(pinned: Road, row: Row) -> None:
    before = pinned.dataplane.worker(0)
    row.check(pinned)
    assert pinned.dataplane.worker(0) == before, "an error leaves the connection table alone"


def test_the_largest_error_that_fits_goes_through(pinned: Road) -> None:
    quote = bytes(answer_of()) + bytes(1476 - 28 - 160)
    goes("1476 bytes", error(quote), "b3", "www").check(pinned)


def test_padding_is_not_read_as_a_quote(pinned: Road) -> None:
    """The IP length ends before the ports; behind it the frame has what would be the flow's."""
    whole = bytes(ether(error(answer_of(), len=20 + 8 + 20)))
    assert pinned.fate_of(whole) == "not_vip"
    short = error(cut(answer_of(), 8))
    row = goes("padded", short, "b3", "www")
    replace(row, send=bytes(ether(short)) + b"\x9c\x40\x00\x50").check(pinned)


@pytest.mark.parametrize(
    ("packet", "headers"),
    [
        (error(answer_of()), 20 + 8 + 20),
        (error(answer_of(options=[IPOption_NOP()] * 8)), 20 + 8 + 28),
        (error(answer_of(), options=[IPOption_NOP()] * 8), 28 + 8 + 20),
        (error(udp_answer()), 20 + 8 + 20),
        (error6(answer6_of()), 40 + 8 + 40),
    ],
    ids=["IPv4", "options in the quote", "options of its own", "UDP", "IPv6"],
)
@pytest.mark.parametrize("honest", [True, False], ids=["and says so", "and says more"])
def test_an_error_that_ends_anywhere(pinned: Road, packet: Packet, headers: int, honest: bool) -> None:
    """`headers`: up to the quoted ports. An error that says more than it has is malformed wherever it ends."""
    raw = bytes(packet)
    version = raw[0] >> 4
    own = (raw[0] & 15) * 4 if version == 4 else 40
    for length in range(len(raw)):
        short = bytearray(raw[:length])
        if honest and length >= own:
            if version == 4:
                fixed = IP(raw[:own])
                fixed.len, fixed.chksum = length, None
                short[:own] = bytes(fixed)[:own]
            else:
                short[4:6] = (length - 40).to_bytes(2, "big")
        fate = "icmp_error" if length >= headers + 4 else "not_vip"
        if length < own + 8 or not honest:
            fate = "malformed"
        assert pinned.fate_of(bytes(ether(bytes(short), type=0x0800 if version == 4 else 0x86DD))) == fate, length


def test_an_unreadable_error_takes_nothing_from_the_packet_before_it(pinned: Road) -> None:
    """Both in one burst, to the vip of any port: the first leaves its protocol where the second is read."""
    before, unreadable = ether(tcp(ANY_PORT, ttl=0)), ether(error(bytes(20), ANY_PORT))
    assert pinned.fates_of(before, unreadable) == {"ttl_expired": 1, "not_vip": 1}


def test_an_error_of_several_buffers(make_road: MakeRoad) -> None:
    road = make_road(mtu=9000)
    road.apply(pinned_state(NEW_ONES))
    goes("4000 bytes", error(bytes(answer_of()) + bytes(3812)), "b1", "www").check(road)


def test_an_error_keeps_its_vlan(pinned: Road) -> None:
    packet = error(answer_of())
    plain = outer(packet, MEMBERS["b3"])
    tagged = plain[:12] + b"\x81\x00\x00\x05" + plain[12:]
    Row("tagged", ether(Dot1Q(vlan=5) / packet), "icmp_error", tagged, "www", "b3").check(pinned)


def test_every_error_has_an_outer_id_of_its_own(pinned: Road) -> None:
    """An error without DF may be fragmented on the tunnel's way."""
    packet = error(answer_of())
    assert pinned.send(*[bytes(ether(packet))] * 3) == [outer(packet, MEMBERS["b3"], id=i) for i in range(3)]


# -- whose the flow is


def test_drained_flows_get_their_errors_and_new_ones_have_nobody(pinned: Road) -> None:
    pinned.apply(pinned_state(set()))
    goes("known", error(answer_of()), "b3", "www").check(pinned)
    goes("known, IPv6", error6(answer6_of()), "s3", "www6", of=tcp(VIP6)).check(pinned)
    Row("unknown", ether(error(answer_of(dport=UNKNOWN))), "no_backend").check(pinned)
    large = error(bytes(answer_of(dport=UNKNOWN)) + bytes(1400))
    Row("nobody comes before too big", ether(large), "no_backend").check(pinned)


def test_when_all_are_down_errors_have_nobody(road: Road) -> None:
    road.apply(pinned_state(HAS_FLOWS))
    assert road.fate_of(bytes(ether(tcp()))) == "hash_new"
    down = [member("b1", 100, "down"), member("b3", 100, "down")]
    road.apply(state(MEMBERS, vip("www", VIP, down)))
    assert road.fate_of(bytes(ether(error(answer_of())))) == "no_backend"
    assert road.fate_of(bytes(ether(error(answer_of(dport=UNKNOWN))))) == "no_backend"


def test_a_vip_without_backend(road: Road) -> None:
    assert road.fate_of(bytes(ether(error(answer_of(EMPTY), EMPTY)))) == "no_backend"
    assert road.fate_of(bytes(ether(error(answer_of(EMPTY), EMPTY, ttl=0)))) == "ttl_expired"


def test_a_flow_whose_backend_is_down_is_not_rewritten_by_an_error(pinned: Road) -> None:
    members = [member("b1"), member("b3", 100, "down")]
    pinned.apply(state(MEMBERS, vip("www", VIP, members)))
    goes("by the table", error(answer_of()), "b1", "www").check(pinned)
    pinned.apply(state(MEMBERS, vip("www", VIP, [member("b1"), member("b3", 100, "drain")])))
    goes("its backend is back", error(answer_of(), flags="DF"), "b3", "www").check(pinned)
    Row("so is the flow", ether(tcp()), "conn_hit", outer(tcp(), MEMBERS["b3"]), "www", "b3").check(pinned)


def test_an_error_says_nothing_of_an_entry_of_another_vip(road: Road) -> None:
    """The entry was made for the vip of any port; the error is about one of its own now."""
    road.apply(state(MEMBERS, vip("any", VIP, ["b3"], port=0)))
    assert road.fate_of(bytes(ether(tcp()))) == "hash_new"
    road.apply(state(MEMBERS, vip("any", VIP, ["b3"], port=0), vip("www", VIP, ["b1"])))
    goes("by the table", error(answer_of()), "b1", "www").check(road)


def test_no_neighbor_comes_before_too_big(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mac=None)], view=KernelView())
    road.apply(WORLD)
    assert road.fate_of(bytes(ether(error(answer_of())))) == "no_neighbor"
    assert road.fate_of(bytes(ether(error(bytes(answer_of()) + bytes(1400))))) == "no_neighbor"


@pytest.mark.parametrize("affinity", ["flow", "client"])
@pytest.mark.parametrize(("dst", "protocol"), [(VIP, "tcp"), (VIP, "udp"), (VIP6, "tcp"), (VIP6, "udp")])
def test_an_unknown_flow_goes_where_its_first_packet_will_go(
    road: Road, dst: str, protocol: str, affinity: str
) -> None:
    """By the Maglev table, over all backends; then the flow's own packet comes, and is new."""
    three = {f"b{i}": f"10.0.{i}.2" for i in (1, 2, 3)}
    road.apply(state(three, vip("www", dst, three, protocol, affinity=affinity)))
    seen = set()
    for number in range(60):
        port, client = 1024 + number, 2 + number
        question = (tcp if protocol == "tcp" else udp)(
            dst, sport=port, dport=80, src=f"2001:db8:c::{client:x}" if ":" in dst else f"198.51.100.{client}"
        )
        transport = (TCP if protocol == "tcp" else UDP)(sport=80, dport=port)
        if ":" in dst:
            packet = error6(cut(IPv6(src=dst, dst=question.src) / transport, 8))
        else:
            packet = error(cut(IP(src=dst, dst=question.src) / transport, 8))
        (first,) = road.send(bytes(ether(packet)))
        (second,) = road.send(bytes(ether(question)))
        assert backend_address(first) == backend_address(second)
        seen.add(backend_address(first))
    assert road.fates() == {"icmp_error": 60, "hash_new": 60}
    assert seen == set(three.values())


# -- an error changes nothing


def test_an_error_makes_no_entry(road: Road) -> None:
    packets = [error(answer_of(dport=port)) for port in range(1024, 1124)]
    road.apply(pinned_state(NEW_ONES))
    assert road.fates_of(*(bytes(ether(packet)) for packet in packets)) == {"icmp_error": 100}
    assert road.connections() == 0
    assert road.dataplane.worker(0)["inserted"] == 0


@pytest.mark.parametrize(
    ("packet", "about", "timer"),
    [(tcp(), answer_of(), HALF_OPEN), (udp(), udp_answer(), DATAGRAM)],
    ids=["TCP", "UDP"],
)
def test_an_error_does_not_keep_an_entry_alive(road: Road, packet: Packet, about: Packet, timer: int) -> None:
    """Nor does it establish a half-open one, as a second packet a tick later would."""
    road.apply(pinned_state(NEW_ONES))
    assert road.fate_of(bytes(ether(packet))) == "hash_new"
    for _ in range(timer):
        road.now += 1
        assert road.fate_of(bytes(ether(error(about)))) == "icmp_error"
    assert road.connections() == 1
    road.now += 1
    assert road.connections() == 0


def test_an_error_does_not_end_a_flow(road: Road) -> None:
    road.apply(pinned_state(NEW_ONES))
    road.send(bytes(ether(tcp())))
    road.now += 1
    assert road.fate_of(bytes(ether(tcp(flags="A")))) == "conn_hit"
    assert road.fate_of(bytes(ether(error(answer_of())))) == "icmp_error"
    road.now += ESTABLISHED
    assert road.connections() == 1


def test_the_last_packets_of_a_closing_flow_get_their_errors(pinned: Road) -> None:
    """A SYN would start the flow anew; an error does not."""
    assert pinned.fate_of(bytes(ether(tcp(flags="FA")))) == "conn_hit"
    goes("closing", error(answer_of()), "b3", "www").check(pinned)


# -- several workers


def quote_of(frame: bytes) -> bytes:
    """The first 28 or 48 bytes of the answer to the packet of a frame made by flow()."""
    if frame[12:14] == b"\x08\x00":
        source, destination, sport, dport = frame[26:30], frame[30:34], frame[34:36], frame[36:38]
        return bytes(IP(proto=6, len=1500, chksum=0))[:12] + destination + source + dport + sport + bytes(4)
    source, destination, sport, dport = frame[22:38], frame[38:54], frame[54:56], frame[56:58]
    return bytes(IPv6(nh=6, plen=1460))[:8] + destination + source + dport + sport + bytes(4)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("dst", [VIP, VIP6])
def test_an_error_meets_its_flows_worker(make_road: MakeRoad, workers: int, dst: str) -> None:
    """Only that worker's table knows the flow; any other would send it by the Maglev table."""
    road = make_road(workers=workers)
    road.apply(pinned_state(HAS_FLOWS))
    flows = [flow(number, dst) for number in range(100)]
    road.send(*flows)
    assert min(road.dataplane.worker(i)["live"] for i in range(workers)) >= 10
    road.apply(pinned_state(NEW_ONES))
    if dst == VIP:
        errors = [error(quote_of(frame)) for frame in flows]
    else:
        errors = [error6(quote_of(frame)) for frame in flows]
    out = road.send(*(bytes(ether(packet)) for packet in errors))
    assert {backend_address(frame) for frame in out} == {MEMBERS["b3" if dst == VIP else "s3"]}
    assert road.fates()["icmp_error"] == 100


def test_errors_while_running(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(pinned_state(HAS_FLOWS))
    road.start()
    flows = [flow(number) for number in range(100)]
    road.give(flows)
    road.take_all()
    road.apply(pinned_state(NEW_ONES))
    road.give([bytes(ether(error(quote_of(frame)))) for frame in flows])
    assert {backend_address(frame) for frame in road.take_all()} == {MEMBERS["b3"]}
    assert road.fates() == {"hash_new": 100, "icmp_error": 100}
