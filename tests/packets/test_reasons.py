"""Every reason there is, reached through the real stages and told by the trace, with the vip and backend it had."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, GRE, Ether
from scapy.packet import Packet

from forwarder._dataplane import FATES, REASONS, DataplaneError
from forwarder.next_hops import KernelView
from packets.pieces import sized
from packets.road import BURST, End, Road, port_settings, wait_until
from packets.test_malformed import IPV4_TYPE, IPV6_TYPE, cut, ipv4, ipv6, patched, udp_frame
from packets.world import (
    ANY_PORT,
    BACKENDS,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    EMPTY,
    GATEWAY_MAC,
    TUNNEL,
    VIP,
    VIP6,
    WORLD,
    ether,
    flow,
    member,
    state,
    tcp,
    udp,
    vip,
)

MakeRoad = Callable[..., Road]
Reach = Callable[[MakeRoad], list[End]]

PER_SECOND = 1000  # answers of one worker, of each kind
ROUTING_PER_SECOND = 10000  # frames of one worker to the kernel that routing needs
FAR_CLIENT = "198.51.100.4"  # whose fragments are the other node's
CLUSTER = WORLD | {"cluster": {"lb1": TUNNEL, "lb2": "10.0.2.6"}}
ONE = state({"b1": "10.0.3.2"}, vip("www", VIP, ["b1"]))


@dataclass(frozen=True)
class Way:
    """How a reason is reached, and whom the trace must name with it."""

    reach: Reach
    vip: str | None = None
    backend: str | None = None


def traced(make_road: MakeRoad, message: dict[str, Any] = WORLD, **options: Any) -> Road:
    road = make_road(trace=True, **options)
    road.apply(message)
    return road


def ends(road: Road) -> list[End]:
    """What became of all packets so far, in their order; the first look at the trace of this road."""
    told = road.ends()
    assert sorted(told) == list(range(road.dataplane.received)), "each packet is told once"
    counted = {reason: n for reason, n in road.dataplane.reasons().items() if n}
    assert Counter(end.reason for end in told.values()) == counted
    return [told[number] for number in sorted(told)]


def sent(*packets: Packet | bytes, **options: Any) -> Reach:
    """Frames, or IP packets in frames, one after the other on a fresh road."""
    frames = [p if isinstance(p, bytes) else bytes(p if p.name == "Ethernet" else ether(p)) for p in packets]

    def reach(make_road: MakeRoad) -> list[End]:
        road = traced(make_road, **options)
        road.send(*frames)
        road.outwait_fragments()
        return ends(road)

    return reach


def ping(to: str = VIP, **ip: Any) -> Packet:
    return IP(**{"src": CLIENT, "dst": to, **ip}) / ICMP(id=7, seq=1)


def error(source_port: int = 80, length: int = 28, source: str = ELSEWHERE) -> Packet:
    """A router's error about what the vip's backend sent to the client."""
    quote = bytes(IP(src=VIP, dst=CLIENT) / TCP(sport=source_port, dport=40000))[:length]
    return IP(src=source, dst=VIP) / ICMP(type=3, code=1) / quote


def big(**ip: Any) -> Packet:
    """More than the tunnel takes, and not to be fragmented."""
    return tcp(payload=bytes(1460), **ip)


def backend_left(make_road: MakeRoad) -> list[End]:
    two = {"b1": "10.0.3.2", "b2": "10.0.4.2"}
    road = traced(make_road, state(two, vip("www", VIP, [member("b1"), member("b2", 100, "down")])))
    road.send(bytes(ether(tcp())))
    road.apply(state(two, vip("www", VIP, [member("b1", 100, "down"), member("b2")])))
    road.send(bytes(ether(tcp(flags="A"))))
    return ends(road)


def new_deflected(make_road: MakeRoad) -> list[End]:
    """b2 takes new flows when b1 has many; what then has a slot of b1 goes there too."""
    two, load_bound = {"b1": "10.0.3.2", "b2": "10.0.4.2"}, {"load_bound": 1.5}
    road = traced(make_road, state(two, vip("www", VIP, ["b1"]) | load_bound))
    road.send(*map(flow, range(20)))
    road.apply(state(two, vip("www", VIP, ["b1", "b2"]) | load_bound))
    road.send(*map(flow, range(20, 40)))
    return ends(road)


def one_more_than_a_bucket_holds(*more: dict[str, Any]) -> Reach:
    """A table of one bucket and flows of UDP, which are never given up for another."""
    message = state({"b1": "10.0.3.2"}, vip("dns", VIP, ["b1"], "udp"), *more)
    return sent(*(udp(dport=80, sport=port) for port in range(1024, 1030)), message=message, connections=1)


def at_once(road: Road, turns: int = 20) -> list[End]:
    """Every port receives a burst of one flow in every turn, and a worker takes no more than one."""
    for _ in range(turns):
        for port in range(len(road.ports)):
            assert road.give([flow(1)] * BURST, port) == BURST
        road.dataplane.step(road.now)
        road.take()
    road.step()
    return ends(road)


def first_fragment(**ip: Any) -> Packet:
    return IP(**{"src": CLIENT, "dst": VIP, "id": 7, "flags": "MF", **ip}) / UDP(dport=80) / bytes(64)


def later_fragment(**ip: Any) -> Packet:
    return IP(**{"src": CLIENT, "dst": VIP, "id": 7, "frag": 9, "proto": 17, **ip}) / bytes(64)


def from_node(inner: Packet, **ip: Any) -> Packet:
    """What another node of the cluster sends on."""
    return IP(src="10.0.2.6", dst=TUNNEL, proto=47, **ip) / (b"\x01\0\x08\0" + bytes(inner))


def fragment_unmatched(make_road: MakeRoad) -> list[End]:
    """What is no vip's for steering is one's for the worker, which has a burst of others to do first."""
    road = traced(make_road, ONE, ports=[port_settings()] * 2)
    road.give([flow(1)] * BURST)
    road.give([bytes(ether(later_fragment(dst=EMPTY)))] * BURST, 1)
    road.dataplane.step(road.now)
    road.apply(WORLD)
    road.step()
    return ends(road)


def spilled(make_road: MakeRoad) -> list[End]:
    return at_once(traced(make_road, ONE, ports=[port_settings()] * 2, workers=2, ring_size=256))


def ring_full(make_road: MakeRoad) -> list[End]:
    return at_once(traced(make_road, ONE, ports=[port_settings()] * 2, ring_size=256))


def pair_full(make_road: MakeRoad) -> list[End]:
    """Errors about one flow come by five ports at once: more than its worker takes from another in a turn."""
    road = traced(make_road, ONE, ports=[port_settings()] * 5, workers=2)
    for source in ("203.0.113.1", "203.0.113.2"):  # one of them is spread to the worker that has not the flow
        for _ in range(10):
            for port in range(5):
                assert road.give([bytes(ether(error(source=source)))] * BURST, port) == BURST
            road.dataplane.step(road.now)
            road.take()
        road.step()
    return ends(road)


def transmit_full(make_road: MakeRoad) -> list[End]:
    road = traced(make_road, ONE, ring_size=64)
    road.give([flow(1)] * 100)
    road.step()
    return ends(road)


def muxing_full(make_road: MakeRoad) -> list[End]:
    """Muxing takes as much in a turn as a worker gives, so only one that naps or waits for its CPU falls behind.

    More frames than their ring holds come after every pause, until it has happened.
    """
    road = traced(make_road, ONE, ring_size=32)
    road.start()
    found: list[End] = []

    def fell_behind() -> bool:
        time.sleep(0.005)  # by then the naps are long
        road.give([flow(1)] * 250)
        road.take_all()
        found.extend(road.ends().values())
        return any(end.reason == "muxing_full" for end in found)

    wait_until(fell_behind, "muxing falls behind")
    return found


def report(mtu: int) -> Packet:
    """A router's too-big error about a packet to a backend."""
    quote = IP(src=TUNNEL, dst=BACKENDS["web1"], flags="DF", proto=47) / GRE(proto=0x0800) / bytes(4)
    return IP(src=ELSEWHERE, dst=TUNNEL) / ICMP(type=3, code=4, nexthopmtu=mtu) / quote


def from_kernel(make_road: MakeRoad) -> list[End]:
    road = traced(make_road, beside=[0])
    road.kernel_sends(bytes(ether(tcp(ELSEWHERE))))
    return ends(road)


def too_big_buffers(make_road: MakeRoad) -> list[End]:
    """Pieces that nobody takes from the port keep their buffers."""
    road = traced(make_road, pool=384, ring_size=128)
    for _ in range(16):
        road.give([bytes(ether(sized(9000)))])
        road.step()
    return ends(road)


def no_headroom(make_road: MakeRoad) -> list[End]:
    """A driver that leaves less room before a frame than the outer headers take. None of ours does."""
    road = traced(make_road)
    road.ports[0].give(bytes(ether(tcp())), headroom=23)
    road.given += 1
    road.step()
    return ends(road)


def own_untracked(make_road: MakeRoad) -> list[End]:
    """Packets of our own are collected, not traced."""
    road = traced(make_road)
    road.step()  # grants the credit
    road.dataplane.inject(bytes(ether(tcp())), 0)
    road.step()
    assert road.ends() == {}
    came = road.dataplane.collect()
    assert came is not None
    return [End(came[1], None, road.forwarding.names()[1][came[3]])]


WAYS: dict[str, Way] = {
    "known_flow": Way(sent(tcp(), tcp(flags="A")), "www", "web1"),
    "new_flow": Way(sent(udp(VIP6)), "dns6", "six2"),
    "new_after_closing": Way(sent(tcp(), tcp(flags="FA"), tcp()), "www", "web1"),
    "backend_left": Way(backend_left, "www", "b2"),
    "new_deflected": Way(new_deflected, "www", "b2"),
    "reset_untracked": Way(sent(tcp(flags="R")), "www", "web1"),
    "table_full": Way(one_more_than_a_bucket_holds(), "dns", "b1"),
    "over_share": Way(one_more_than_a_bucket_holds(vip("another", VIP, ["b1"])), "dns", "b1"),
    "own_untracked": Way(own_untracked, None, "web1"),
    "error_known": Way(sent(tcp(), error()), "www", "web1"),
    "error_by_table": Way(sent(error()), "www", "web1"),
    "echo_answered": Way(sent(ping())),
    "too_big_answered": Way(sent(big()), "www", "web1"),
    "punt_not_ip": Way(sent(ARP(pdst=VIP), punts=True)),
    "punt_address": Way(sent(tcp(ELSEWHERE), punts=True)),
    "punt_rate": Way(sent(*[bytes(ether(ARP(pdst=ELSEWHERE)))] * (ROUTING_PER_SECOND + 1), beside=[0], pool=16384)),
    "from_kernel": Way(from_kernel),
    "not_ip": Way(sent(ARP(pdst=VIP))),
    "other_address": Way(sent(tcp(ELSEWHERE))),
    "other_port": Way(sent(tcp(dport=81))),
    "other_protocol": Way(sent(IP(src=CLIENT, dst=VIP, proto=50) / bytes(40))),
    "other_icmp": Way(sent(IP(src=CLIENT, dst=VIP) / ICMP(type=0))),
    "other_station": Way(sent(Ether(src=GATEWAY_MAC, dst="ff:ff:ff:ff:ff:ff") / tcp(), only_own=[0])),
    "quote_unknown": Way(sent(error(length=19))),
    "quote_not_vip": Way(sent(error(source_port=81))),
    "no_backend": Way(sent(tcp(EMPTY)), "empty"),
    "echo_no_backend": Way(sent(ping(EMPTY))),
    "ethernet_cut": Way(sent(b"\x02")),
    "ipv4_cut": Way(sent(cut(ipv4(), 14 + 19))),
    "ipv4_version": Way(sent(ether(bytes(tcp(VIP6)), type=IPV4_TYPE))),
    "ipv4_header_length": Way(sent(patched(ipv4(), 0, b"\x44"))),
    "ipv4_total_length": Way(sent(patched(ipv4(), 2, b"\0\x29"))),
    "ipv4_checksum": Way(sent(ipv4(chksum=0x1234))),
    "ipv6_cut": Way(sent(cut(ipv6(), 14 + 39))),
    "ipv6_version": Way(sent(ether(bytes(tcp()), type=IPV6_TYPE))),
    "ipv6_payload_length": Way(sent(ipv6(plen=21))),
    "ipv6_extension_cut": Way(sent(IPv6(src=CLIENT6, dst=VIP6, nh=0) / b"\x06")),
    "ipv6_extensions": Way(sent(IPv6(src=CLIENT6, dst=VIP6, nh=60) / (b"\x3c\0\1\4\0\0\0\0" * 9))),
    "ports_cut": Way(sent(IP(src=CLIENT, dst=VIP, proto=6) / b"\0\x50")),
    "tcp_header": Way(sent(IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=4)), "www"),
    "udp_header": Way(sent(udp_frame(VIP6, 7)), "dns6"),
    "icmp_cut": Way(sent(IP(src=CLIENT, dst=VIP, proto=1) / b"\x08\0")),
    "ttl_zero": Way(sent(tcp(ANY_PORT, dport=443, ttl=0)), "tls"),
    "too_big_rate": Way(sent(*[bytes(ether(big()))] * (PER_SECOND + 1)), "www", "web1"),
    "too_big_silent": Way(sent(big(src=VIP)), "www", "web1"),
    "too_big_outer": Way(sent(sized(65535)), "www", "web1"),
    "too_big_pieces": Way(sent(sized(20000), mtu=124), "www", "web1"),
    "too_big_buffers": Way(too_big_buffers, "www", "web1"),
    "path_mtu_lowered": Way(sent(report(1400))),
    "path_mtu_kept": Way(sent(report(1500))),
    "echo_rate": Way(sent(*[bytes(ether(ping()))] * (PER_SECOND + 1))),
    "echo_silent": Way(sent(ping(src=VIP))),
    "fragment_first": Way(sent(first_fragment()), "dns", "dns1"),
    "fragment_later": Way(sent(first_fragment(), later_fragment()), "dns", "dns1"),
    "fragment_to_node": Way(sent(first_fragment(src=FAR_CLIENT), message=CLUSTER)),
    "congestion": Way(sent(from_node(first_fragment(), tos=3), message=CLUSTER)),
    "not_a_fragment": Way(sent(from_node(tcp()), message=CLUSTER)),
    "ipv6_fragments": Way(
        sent(IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrFragment(m=1) / IPv6ExtHdrFragment(m=1) / UDP(dport=53))
    ),
    "fragment_late": Way(sent(later_fragment())),
    "fragment_no_room": Way(sent(*(later_fragment(frag=at) for at in range(1, 66)))),
    "fragment_no_flow": Way(sent(ping(flags="MF"))),
    "transmit_full": Way(transmit_full, "www", "b1"),
    "no_neighbor": Way(sent(tcp(), ports=[port_settings(mac=None)], view=KernelView()), "www", "web1"),
    "no_headroom": Way(no_headroom, "www", "web1"),
}
# What happens in the rings between stages, and between workers.
BETWEEN_STAGES: dict[str, Way] = {
    "spilled": Way(spilled, "www", "b1"),
    "fragment_unmatched": Way(fragment_unmatched),
    "ring_full": Way(ring_full),
    "muxing_full": Way(muxing_full, "www", "b1"),
}
BETWEEN_WORKERS: dict[str, Way] = {"pair_full": Way(pair_full)}


def test_there_is_a_way_to_every_reason_and_every_fate_has_one() -> None:
    assert {*WAYS, *BETWEEN_STAGES, *BETWEEN_WORKERS} == set(REASONS)
    assert {fate for fate, _ in REASONS.values()} == set(FATES)


def test_each_reason_has_a_sentence_of_its_own() -> None:
    sentences = [text for _, text in REASONS.values()]
    assert len(set(sentences)) == len(sentences)
    assert all(len(text.split()) >= 4 for text in sentences)


def check_reached(make_road: MakeRoad, reason: str, way: Way) -> None:
    told = [end for end in way.reach(make_road) if end.reason == reason]
    assert told, "it was not reached"
    assert set(told) == {End(reason, way.vip, way.backend)}


@pytest.mark.parametrize(("reason", "way"), WAYS.items(), ids=WAYS)
def test_reached(make_road: MakeRoad, reason: str, way: Way) -> None:
    check_reached(make_road, reason, way)


@pytest.mark.layout("software")
@pytest.mark.parametrize(("reason", "way"), BETWEEN_STAGES.items(), ids=BETWEEN_STAGES)
def test_reached_between_stages(make_road: MakeRoad, reason: str, way: Way) -> None:
    check_reached(make_road, reason, way)


@pytest.mark.layout("rss")
@pytest.mark.parametrize(("reason", "way"), BETWEEN_WORKERS.items(), ids=BETWEEN_WORKERS)
def test_reached_between_workers(make_road: MakeRoad, reason: str, way: Way) -> None:
    check_reached(make_road, reason, way)


EARLY: dict[str, tuple[Packet, End]] = {
    "an error": (error(), End("ttl_zero", "www")),
    "a packet": (tcp(), End("ttl_zero", "www")),
    "a broken packet": (IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=4), End("tcp_header", "www")),
    "an error about no vip": (error(source_port=81), End("quote_not_vip")),
    "an echo, which is for an address and not for one of its vips": (ping(), End("ttl_zero")),
}


@pytest.mark.parametrize(("packet", "end"), EARLY.values(), ids=EARLY)
def test_what_ends_before_the_choice_of_a_backend_names_its_vip(
    make_road: MakeRoad, packet: Packet, end: End
) -> None:
    packet = packet.copy()
    packet[IP].ttl = 0
    assert sent(packet)(make_road) == [end]


# -- the trace itself


def test_nothing_is_traced_unless_asked_for(road: Road) -> None:
    road.send(bytes(ether(tcp())))
    with pytest.raises(DataplaneError, match="read the trace: Operation not supported"):
        road.dataplane.traces()


def test_records_come_once_and_numbers_go_on(make_road: MakeRoad) -> None:
    road = traced(make_road)
    assert road.ends() == {}
    road.send(bytes(ether(tcp())), b"\x02")
    assert road.ends() == {1: End("ethernet_cut"), 0: End("new_flow", "www", "web1")}, (
        "in the order in which they end"
    )
    assert road.ends() == {}
    road.send(bytes(ether(tcp(flags="A"))))
    assert road.ends() == {2: End("known_flow", "www", "web1")}


def test_a_buffer_tells_nothing_of_the_packet_that_had_it_before(make_road: MakeRoad) -> None:
    """The pool is so small that every buffer is used again, by packets that get less far."""
    road = traced(make_road, pool=512)
    kinds = [
        (tcp(), End("known_flow", "www", "web1")),
        (tcp(EMPTY), End("no_backend", "empty")),
        (ping(), End("echo_answered")),
    ]
    road.send(bytes(ether(tcp())))
    assert road.ends() == {0: End("new_flow", "www", "web1")}
    for _ in range(5):
        for packet, end in kinds:
            road.send(*[bytes(ether(packet))] * 100)
            assert list(road.ends().values()) == [end] * 100


def test_packets_of_several_ports_are_numbered_as_they_are_received(make_road: MakeRoad) -> None:
    road = traced(make_road, ports=[port_settings()] * 2)
    road.give([bytes(ether(tcp(dport=81)))], port=1)
    road.give([b"\x02"], port=0)
    road.step()
    assert ends(road) == [End("ethernet_cut"), End("other_port")]


@pytest.mark.parametrize("workers", [1, 3])
def test_while_running(make_road: MakeRoad, workers: int) -> None:
    """Stages tell at the same time; nothing is lost while somebody reads."""
    road = traced(make_road, workers=workers, pool=8192)
    road.start()
    told: dict[int, End] = {}
    for _ in range(20):
        road.give(flow(i) for i in range(100))
        road.give([bytes(ether(tcp(dport=81)))] * 100)
        road.take_all()
        told |= road.ends()
    assert sorted(told) == list(range(4000))
    assert Counter(end.reason for end in told.values()) == {"new_flow": 100, "known_flow": 1900, "other_port": 2000}
    if road.layout == "software" or workers == 1:  # else every worker receives by itself
        assert all(told[number].reason == "other_port" for number in range(4000) if number % 200 >= 100)


def test_records_that_nobody_reads_harm_nobody(make_road: MakeRoad) -> None:
    road = traced(make_road, pool=512)
    for _ in range(20):
        road.send(*[bytes(ether(tcp()))] * 100)
    assert road.fates() == {"hash_new": 1, "conn_hit": 1999}
    assert list(road.ends()) == list(range(512)), "the newest find no room"
