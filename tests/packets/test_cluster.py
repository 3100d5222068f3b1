"""Fragments between the nodes of a cluster: each goes to the node that has its hosts, and no farther (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1AD, Dot1Q
from scapy.packet import Packet, Raw

from forwarder.state_message import StateRefused
from packets.cluster import (
    LB2,
    LB2_6,
    NODES,
    NODES6,
    client_of,
    from_node,
    in_cluster,
    owner,
    pieces,
    pieces6,
    sent_on,
)
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    BACKENDS,
    ELSEWHERE,
    EMPTY,
    TUNNEL,
    TUNNEL6,
    VIP,
    VIP6,
    WORLD,
    ether,
    outer,
    tcp,
    udp,
)

MakeRoad = Callable[..., Road]

MINE, THEIRS = client_of("lb1"), client_of("lb2")
MINE6, THEIRS6 = client_of("lb1", VIP6), client_of("lb2", VIP6)
MINE_TCP, THEIRS_TCP = client_of("lb1", VIP, 6), client_of("lb2", VIP, 6)
FIRST, MIDDLE, LAST = pieces(src=THEIRS)
FIRST6, MIDDLE6, LAST6 = pieces6(src=THEIRS6)
OWN_FIRST, OWN_MIDDLE, OWN_LAST = pieces(src=MINE)
OWN_FIRST6, OWN_MIDDLE6, OWN_LAST6 = pieces6(src=MINE6)
HALF_A_HEADER = bytes(TCP(dport=80))[:8]


def later(client: str, size: int = 16, **ip: Any) -> Packet:
    """A later fragment of UDP, of any size."""
    return IP(**{"src": client, "dst": VIP, "frag": 1, "proto": 17, **ip}) / Raw(bytes(size))


def first(**ip: Any) -> Packet:
    return IP(**{"src": MINE, "dst": VIP, "flags": "MF", **ip}) / UDP(sport=5000, dport=80) / bytes(64)


def congested(packet: Packet) -> Packet:
    """As a router marks it."""
    packet.tos |= 3
    return packet


def dns(packet: Packet, **fields: Any) -> bytes:
    """The frame that must leave for an IPv4 fragment to the vip's UDP service."""
    return outer(packet, BACKENDS["dns1"], **fields)


def dns6(packet: Packet, client: str = MINE6) -> bytes:
    flow = IPv6(src=client, dst=VIP6) / UDP(sport=5000, dport=53)
    return outer(packet, BACKENDS["six2"], of=flow)


def tags(frame: bytes, tag: bytes) -> bytes:
    return frame[:12] + tag + frame[12:]


@pytest.fixture
def lb1(make_road: MakeRoad) -> Road:
    """The node lb1 of a cluster of two."""
    road = make_road()
    road.apply(in_cluster(WORLD))
    return road


@pytest.fixture
def six(make_road: MakeRoad) -> Road:
    """The same, and the nodes reach each other over IPv6."""
    road = make_road()
    road.apply(in_cluster(WORLD, NODES6))
    return road


def reasons(road: Road) -> dict[str, int]:
    return {reason: n for reason, n in road.dataplane.reasons().items() if n}


# -- sent on

SENT_ON = [
    Row("a first fragment", ether(FIRST), "fragment", sent_on(FIRST)),
    Row("a middle one", ether(MIDDLE), "fragment", sent_on(MIDDLE)),
    Row("the last one", ether(LAST), "fragment", sent_on(LAST)),
    Row("a first IPv6 fragment", ether(FIRST6), "fragment", sent_on(FIRST6)),
    Row("a later IPv6 fragment", ether(MIDDLE6), "fragment", sent_on(MIDDLE6)),
    Row(
        "with its class, ECN and DF",
        ether(later(THEIRS, tos=0xBB, flags="DF+MF")),
        "fragment",
        sent_on(later(THEIRS, tos=0xBB, flags="DF+MF")),
    ),
    Row("with its VLAN tag", ether(Dot1Q(vlan=5) / MIDDLE), "fragment", tags(sent_on(MIDDLE), b"\x81\0\0\5")),
    Row(
        "with both its tags",
        ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / FIRST6),
        "fragment",
        tags(sent_on(FIRST6), b"\x88\xa8\0\5\x81\0\0\6"),
    ),
    Row(
        "without the padding of its frame",
        bytes(ether(later(THEIRS))) + b"padding",
        "fragment",
        sent_on(later(THEIRS)),
    ),
    Row(
        "a first fragment of TCP",
        ether(IP(src=THEIRS_TCP, dst=VIP, flags="MF") / TCP(dport=80)),
        "fragment",
        sent_on(IP(src=THEIRS_TCP, dst=VIP, flags="MF") / TCP(dport=80)),
    ),
    Row(
        "one whose port the other node will not find",
        ether(IP(src=THEIRS, dst=VIP, flags="MF") / UDP(dport=9)),
        "fragment",
        sent_on(IP(src=THEIRS, dst=VIP, flags="MF") / UDP(dport=9)),
    ),
    Row(
        "two of them: their outer ids differ",
        [bytes(ether(MIDDLE)), bytes(ether(LAST))],
        "fragment",
        [sent_on(MIDDLE), sent_on(LAST, id=1)],
    ),
]
KEPT_HERE = [
    Row("of hosts that this node has", ether(OWN_FIRST), "fragment", dns(OWN_FIRST), "dns", "dns1"),
    Row("the same in IPv6", ether(OWN_FIRST6), "fragment", dns6(OWN_FIRST6), "dns6", "six2"),
    Row(
        "what is whole",
        ether(udp(VIP6, src=THEIRS6)),
        "hash_new",
        outer(udp(VIP6, src=THEIRS6), BACKENDS["six2"]),
        "dns6",
        "six2",
    ),
    Row("not for a vip's address", ether(IP(src=THEIRS, dst=ELSEWHERE, flags="MF") / UDP(dport=80)), "not_vip"),
    Row("TTL 0", ether(later(THEIRS, ttl=0)), "ttl_expired"),
    Row("hop limit 0", ether(IPv6(src=THEIRS6, dst=VIP6, hlim=0) / MIDDLE6[IPv6ExtHdrFragment]), "ttl_expired"),
    Row(
        "a first one with half a header",
        ether(IP(src=THEIRS_TCP, dst=VIP, flags="MF", proto=6) / HALF_A_HEADER),
        "malformed",
    ),
    *(
        Row(f"{kind}: no node will match it", ether(inner), "fragment_unmatched")
        for kind, inner in {
            "a first fragment of an echo": IP(src=client_of("lb2", VIP, 1), dst=VIP, flags="MF") / ICMP() / bytes(64),
            "a later one": IP(src=client_of("lb2", VIP, 1), dst=VIP, frag=9, proto=1) / bytes(64),
            "one of GRE": IP(src=client_of("lb2", VIP, 47), dst=VIP, frag=9, proto=47) / bytes(64),
            "IPv6: a first one of an echo": IPv6(src=THEIRS6, dst=VIP6)
            / IPv6ExtHdrFragment(m=1)
            / ICMPv6EchoRequest(data=bytes(64)),
        }.items()
    ),
]


@pytest.mark.parametrize("row", SENT_ON, ids=str)
def test_sent_on_and_counted_for_no_vip_and_no_backend(lb1: Road, row: Row) -> None:
    row.check(lb1)
    assert set(reasons(lb1)) == {"fragment_to_node"}
    assert lb1.connections() == 0


@pytest.mark.parametrize("row", KEPT_HERE, ids=str)
def test_not_sent_on(lb1: Road, row: Row) -> None:
    row.check(lb1)
    assert "fragment_to_node" not in reasons(lb1)


@pytest.mark.parametrize("packet", [FIRST, MIDDLE, FIRST6, MIDDLE6], ids=["first", "later", "first6", "later6"])
def test_over_ipv6_too(six: Road, packet: Packet) -> None:
    Row("", ether(packet), "fragment", sent_on(packet, LB2_6)).check(six)


def test_the_mark_is_recursion_control_1(lb1: Road) -> None:
    (frame,) = lb1.send(bytes(ether(FIRST)))
    assert frame[34:38] == b"\x01\x00\x08\x00"


def test_a_packet_that_must_not_be_fragmented_tells_its_sender_the_mtu_of_the_way_to_the_node(lb1: Road) -> None:
    first = IP(src=THEIRS, dst=VIP, flags="DF+MF") / UDP(sport=5000, dport=80) / bytes(1472)
    assert lb1.fate_of(bytes(ether(first))) == "too_big_reply"


def test_a_node_whose_next_hop_is_not_known_is_not_reached(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mac=None)])
    road.apply(in_cluster(WORLD))
    assert road.fate_of(bytes(ether(MIDDLE))) == "no_neighbor"


def test_only_the_other_nodes_are_next_hops(make_road: MakeRoad) -> None:
    """A node asks nobody for its own MAC."""
    road = make_road()
    road.apply(in_cluster({"version": 1, "backends": {}, "vips": []}))
    assert [hop["address"] for hop in road.hops.describe()] == [LB2]


def test_every_client_goes_to_the_node_of_the_table(make_road: MakeRoad) -> None:
    """64 nodes, of which this one has its share."""
    nodes = {f"lb{i}": TUNNEL if i == 1 else f"10.0.2.{i + 10}" for i in range(1, 65)}
    road = make_road()
    road.apply(in_cluster(WORLD, nodes))
    kept = 0
    for number in range(1, 200):
        client = f"198.51.100.{number}"
        sent = road.send(bytes(ether(later(client))))
        node = owner(client, VIP, 17, tuple(nodes))
        kept += node == "lb1"
        assert [frame[30:34] for frame in sent] == [
            bytes(map(int, nodes[name].split("."))) for name in [node] if name != "lb1"
        ]
    assert 0 < kept < 20


# -- arriving from another node

ARRIVES = [
    Row("a first fragment", ether(from_node(OWN_FIRST)), "fragment", dns(OWN_FIRST), "dns", "dns1"),
    Row("an IPv6 fragment", ether(from_node(OWN_FIRST6)), "fragment", dns6(OWN_FIRST6), "dns6", "six2"),
    Row(
        "one that by our table is the other node's",
        ether(from_node(FIRST)),
        "fragment",
        dns(FIRST),
        "dns",
        "dns1",
    ),
    Row(
        "later ones before the first, by both ways",
        [bytes(ether(packet)) for packet in (from_node(OWN_LAST), OWN_MIDDLE, from_node(OWN_FIRST))],
        "fragment",
        [dns(OWN_FIRST), dns(OWN_LAST, id=1), dns(OWN_MIDDLE, id=2)],
        "dns",
        "dns1",
    ),
    Row(
        "behind a VLAN tag",
        ether(Dot1Q(vlan=5) / from_node(OWN_FIRST)),
        "fragment",
        tags(dns(OWN_FIRST), b"\x81\0\0\5"),
        "dns",
        "dns1",
    ),
    Row(
        "behind two tags, IPv6 inside",
        ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / from_node(OWN_FIRST6)),
        "fragment",
        tags(dns6(OWN_FIRST6), b"\x88\xa8\0\5\x81\0\0\6"),
        "dns6",
        "six2",
    ),
    Row(
        "with padding behind the outer packet",
        bytes(ether(from_node(OWN_FIRST))) + b"padding",
        "fragment",
        dns(OWN_FIRST),
        "dns",
        "dns1",
    ),
    Row(
        "with options in the outer header",
        ether(IP(src=LB2, dst=TUNNEL, proto=47, options=[IPOption_NOP()] * 8) / bytes(from_node(OWN_FIRST))[20:]),
        "fragment",
        dns(OWN_FIRST),
        "dns",
        "dns1",
    ),
    Row(
        "marked as congested on the way between the nodes",
        ether(congested(from_node(first(tos=0xBA)))),
        "fragment",
        dns(first(tos=0xBB)),
        "dns",
        "dns1",
    ),
    Row("congested, of a sender that knows no ECN", ether(congested(from_node(OWN_FIRST))), "malformed"),
    Row("TTL 0 inside", ether(from_node(IP(src=MINE, dst=VIP, flags="MF", ttl=0) / UDP(dport=80))), "ttl_expired"),
    Row("to a port that is no vip's", ether(from_node(IP(src=MINE, dst=VIP, flags="MF") / UDP(dport=9))), "not_vip"),
    Row(
        "to a vip without backend",
        ether(from_node(IP(src=MINE, dst=EMPTY, flags="MF") / TCP(dport=80))),
        "no_backend",
    ),
    Row("a later one alone", ether(from_node(OWN_MIDDLE)), "fragment_unmatched"),
    Row("of an echo", ether(from_node(IP(src=MINE, dst=VIP, frag=9, proto=1) / bytes(64))), "fragment_unmatched"),
    Row(
        "half a TCP header", ether(from_node(IP(src=MINE, dst=VIP, flags="MF", proto=6) / HALF_A_HEADER)), "malformed"
    ),
]
NOT_A_FRAGMENT = [
    Row("a whole packet to a vip", ether(from_node(tcp())), "not_vip"),
    Row("a whole IPv6 packet", ether(from_node(tcp(VIP6))), "not_vip"),
    Row("an IPv6 packet with an atomic fragment header", ether(from_node(IPv6(src=MINE6, dst=VIP6)
        / IPv6ExtHdrFragment() / UDP(dport=53))), "not_vip"),
    Row("a fragment to an address that is no vip's", ether(from_node(later(MINE, dst=ELSEWHERE))), "not_vip"),
    Row("a fragment to this node", ether(from_node(later(MINE, dst=TUNNEL))), "not_vip"),
    Row("a marked packet in a marked one", ether(from_node(from_node(OWN_FIRST))), "not_vip"),
]  # fmt: skip
BROKEN_INSIDE = [
    Row(description, ether(from_node(inner, **gre)), "malformed")
    for description, inner, gre in [
        ("nothing", b"", {"proto": 0x0800}),
        ("a wrong checksum", IP(src=MINE, dst=VIP, flags="MF", chksum=1) / UDP(dport=80), {}),
        ("another version than its ethertype says", OWN_FIRST, {"proto": 0x86DD}),
        ("IPv6 under the ethertype of IPv4", OWN_FIRST6, {"proto": 0x0800}),
        ("a length beyond the outer packet", IP(src=MINE, dst=VIP, flags="MF", len=1000) / UDP(dport=80), {}),
        ("a header length beyond the outer packet", IP(src=MINE, dst=VIP, flags="MF", ihl=15) / UDP(dport=80), {}),
        ("an IPv6 length beyond the outer packet", IPv6(src=MINE6, dst=VIP6, plen=999) / IPv6ExtHdrFragment(), {}),
        ("two fragment headers", IPv6(src=MINE6, dst=VIP6) / IPv6ExtHdrFragment(m=1) / IPv6ExtHdrFragment(m=1), {}),
    ]
]


@pytest.mark.parametrize("row", ARRIVES, ids=str)
def test_from_another_node_it_is_matched_here_and_never_sent_on(lb1: Road, row: Row) -> None:
    row.check(lb1)
    assert "fragment_to_node" not in reasons(lb1)


@pytest.mark.parametrize("row", NOT_A_FRAGMENT, ids=str)
def test_what_is_no_fragment_for_a_vip_ends_here(lb1: Road, row: Row) -> None:
    row.check(lb1)
    assert reasons(lb1) == {"not_a_fragment": 1}


@pytest.mark.parametrize("row", BROKEN_INSIDE, ids=str)
def test_what_is_broken_inside_is_malformed(lb1: Road, row: Row) -> None:
    row.check(lb1)


@pytest.mark.parametrize("packet", [OWN_FIRST, OWN_FIRST6], ids=["IPv4 inside", "IPv6 inside"])
def test_over_ipv6_it_is_unwrapped_too(six: Road, packet: Packet) -> None:
    out = dns(packet) if packet is OWN_FIRST else dns6(packet)
    names = ("dns", "dns1") if packet is OWN_FIRST else ("dns6", "six2")
    Row("", ether(from_node(packet, LB2_6, TUNNEL6)), "fragment", out, *names).check(six)
    hops = IPv6(src=LB2_6, dst=TUNNEL6) / IPv6ExtHdrHopByHop(nh=47) / bytes(from_node(packet, LB2_6, TUNNEL6))[40:]
    assert six.fate_of(bytes(ether(hops))) == "fragment"


def test_what_lies_behind_the_outer_packet_is_not_the_inner_ones(lb1: Road) -> None:
    inner = IP(src=MINE, dst=VIP, flags="MF", len=100) / UDP(dport=80)
    assert lb1.fate_of(bytes(ether(from_node(inner))) + bytes(200)) == "malformed"


def test_an_ipv4_address_is_not_the_beginning_of_a_nodes_ipv6_address(make_road: MakeRoad) -> None:
    """0a00:0202:: begins as 10.0.2.2 does."""
    road = make_road(sources={4: TUNNEL, 6: "a00:202::1"})
    road.apply(in_cluster(WORLD, {"lb1": "a00:202::1", "lb2": "a00:206::1"}))
    assert road.fate_of(bytes(ether(from_node(OWN_FIRST)))) == "not_vip"
    assert road.fate_of(bytes(ether(from_node(OWN_FIRST, "a00:206::1", "a00:202::1")))) == "fragment"


def test_a_packet_in_several_buffers_is_unwrapped_and_sent_on_whole(make_road: MakeRoad) -> None:
    road = make_road(mtu=9000)
    road.apply(in_cluster(WORLD))
    mine = IP(src=MINE, dst=VIP, flags="MF") / UDP(sport=5000, dport=80) / (bytes(range(256)) * 24)
    theirs = later(THEIRS, 6000)
    Row("", bytes(ether(from_node(mine))) + bytes(3000), "fragment", dns(mine), "dns", "dns1").check(road)
    Row("", bytes(ether(theirs)) + bytes(3000), "fragment", sent_on(theirs, id=1)).check(road)


# -- what is not from another node

STRANGE = {
    "from an address that is no node's": from_node(OWN_FIRST, ELSEWHERE),
    "from this node itself": from_node(OWN_FIRST, TUNNEL),
    "from a backend": from_node(OWN_FIRST, BACKENDS["dns1"]),
    "to another node": from_node(OWN_FIRST, ELSEWHERE, LB2),
    "from a node to another node": from_node(OWN_FIRST, LB2, LB2),
    "to a vip": from_node(OWN_FIRST, LB2, VIP),
    "over IPv6, which the cluster does not use": from_node(OWN_FIRST, LB2_6, TUNNEL6),
    "not marked": from_node(OWN_FIRST, recursion_control=0),
    **{f"recursion control {n}": from_node(OWN_FIRST, recursion_control=n) for n in range(2, 8)},
    "with a checksum": from_node(OWN_FIRST, chksum_present=1),
    "with routing": from_node(OWN_FIRST, routing_present=1),
    "with a key": from_node(OWN_FIRST, key_present=1, key=1),
    "with a sequence number": from_node(OWN_FIRST, seqnum_present=1),
    "with a strict route": from_node(OWN_FIRST, strict_route_source=1),
    **{f"with flags {n}": from_node(OWN_FIRST, flags=n) for n in (1, 2, 4, 8, 16)},
    **{f"version {n}": from_node(OWN_FIRST, version=n) for n in range(1, 8)},
    "an Ethernet frame inside": from_node(OWN_FIRST, proto=0x6558),
    "ARP inside": from_node(OWN_FIRST, proto=0x0806),
    "a VLAN tag inside": from_node(OWN_FIRST, proto=0x8100),
    "itself a first fragment": IP(src=LB2, dst=TUNNEL, proto=47, flags="MF") / bytes(from_node(OWN_FIRST))[20:],
    "itself a later fragment": IP(src=LB2, dst=TUNNEL, proto=47, frag=1) / bytes(from_node(OWN_FIRST))[20:],
    "in UDP": IP(src=LB2, dst=TUNNEL) / UDP(dport=47) / bytes(from_node(OWN_FIRST))[20:],
    "IP in IP": IP(src=LB2, dst=TUNNEL, proto=4) / OWN_FIRST,
    "GRE that is cut": IP(src=LB2, dst=TUNNEL, proto=47) / b"\1\0\x08",
}


@pytest.mark.parametrize("packet", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("punts", [False, True], ids=["no kernel", "a kernel"])
def test_what_is_not_marked_by_a_node_is_not_unwrapped(make_road: MakeRoad, packet: Packet, punts: bool) -> None:
    road = make_road(punts=punts)
    road.apply(in_cluster(WORLD))
    # What is for a vip's address is not the kernel's.
    expected = "punt" if punts and packet.dst != VIP else "not_vip"
    Row("", ether(packet), expected).check(road)


@pytest.mark.parametrize("cluster", [{}, {"lb1": TUNNEL}, {"lb1": TUNNEL, "lb3": "10.0.2.7"}], ids=len)
def test_a_node_that_is_not_in_the_state_is_nobody(make_road: MakeRoad, cluster: dict[str, str]) -> None:
    road = make_road()
    road.apply(in_cluster(WORLD, cluster))
    assert road.fate_of(bytes(ether(from_node(OWN_FIRST)))) == "not_vip"
    if len(cluster) < 2:  # alone: all fragments are its own
        assert len(road.send(bytes(ether(FIRST)), bytes(ether(MIDDLE)))) == 2
        assert "fragment_to_node" not in reasons(road)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("inner", [OWN_FIRST, OWN_MIDDLE, OWN_FIRST6, OWN_MIDDLE6], ids=range(4))
def test_cut_anywhere_it_is_dropped(make_road: MakeRoad, inner: Packet, workers: int) -> None:
    """By the frame's end, which the outer header does not know of, or by the outer header."""
    road = make_road(workers=workers)
    road.apply(in_cluster(WORLD))
    for tag in (b"", b"\x81\0\0\5"):
        whole = tags(bytes(ether(from_node(inner))), tag)
        short = [whole[:length] for length in range(1, 180)]
        assert sum(road.fates_of(*short).values()) == len(short)
    assert set(road.fates()) == {"malformed"}
    for length in range(160):
        header = IP(src=LB2, dst=TUNNEL, proto=47)
        cut = header / bytes(from_node(inner))[20 : 20 + length]
        assert road.fate_of(bytes(ether(cut))) == ("malformed" if length >= 4 else "not_vip")
    assert road.taken == [0]


def test_every_bit_of_the_outer_header_turned_does_no_harm(lb1: Road) -> None:
    whole = bytes(ether(from_node(OWN_FIRST)))
    for bit in range(12 * 8, 42 * 8):
        frame = bytearray(whole)
        frame[bit // 8] ^= 0x80 >> bit % 8
        assert lb1.fate_of(bytes(frame)) in ("malformed", "not_vip")


# -- the message

REFUSED = {
    "this node is not in it": ({"lb2": LB2}, "the cluster has no node lb1, which is this one"),
    "two families": ({"lb1": TUNNEL, "lb2": LB2_6}, "addresses of two families"),
    "no address": ({"lb1": TUNNEL, "lb2": "lb2"}, "not a state message"),
}


@pytest.mark.parametrize(("nodes", "words"), REFUSED.values(), ids=REFUSED)
def test_a_cluster_that_cannot_be_is_refused(lb1: Road, nodes: dict[str, str], words: str) -> None:
    with pytest.raises(StateRefused, match=words):
        lb1.apply(in_cluster(WORLD, nodes))
    Row("", ether(MIDDLE), "fragment", sent_on(MIDDLE)).check(lb1)


def test_a_cluster_of_a_family_without_tunnel_source_is_refused(make_road: MakeRoad) -> None:
    road = make_road(sources={4: TUNNEL})
    with pytest.raises(StateRefused, match="no tunnel_source of family ipv6"):
        road.apply(in_cluster({"version": 1, "backends": {}, "vips": []}, NODES6))


def test_the_digest_is_the_same_on_all_nodes_and_has_the_cluster_in_it(make_road: MakeRoad) -> None:
    one, other = make_road(), make_road(node="lb2", sources={4: LB2, 6: LB2_6})
    state = in_cluster(WORLD)
    backwards = {**state, "cluster": dict(reversed(NODES.items()))}
    digests = {
        one.forwarding.prepare(state).digest,
        other.forwarding.prepare(state).digest,
        other.forwarding.prepare(backwards).digest,
    }
    assert len(digests) == 1
    others = (WORLD, in_cluster(WORLD, {**NODES, "lb2": "10.0.2.7"}), in_cluster(WORLD, {**NODES, "lb3": "10.0.2.7"}))
    assert len(digests.union(one.forwarding.prepare(message).digest for message in others)) == 4


def test_an_owner_is_the_same_for_all_fragments_between_two_hosts() -> None:
    """What the tests above take for granted of their clients."""
    assert (owner(MINE, VIP, 17), owner(THEIRS, VIP, 17)) == ("lb1", "lb2")
    assert (owner(MINE6, VIP6, 17), owner(MINE6, VIP6, 60)) == ("lb1", "lb1")
