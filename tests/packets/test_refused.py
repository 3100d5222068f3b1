"""Fates of packets that are for a vip and still cannot be sent.

What is too big is answered when its sender forbade to fragment it (more in test_too_big.py), else it is `too_big` for
now. `no_headroom` cannot be reached: a packet has 128 bytes of
headroom, and the largest outer headers take 44.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network

import pytest
from scapy.packet import Packet

from forwarder.next_hops import KernelView, Neighbor, Route
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    BACKENDS,
    EMPTY,
    OVER4,
    OVER6,
    VIP,
    VIP6,
    WORLD,
    answer,
    ether,
    outer,
    state,
    tcp,
    too_big_error,
    udp,
    vip,
)

WEB1, SIX1 = BACKENDS["web1"], BACKENDS["six1"]
TCP_HEADERS, TCP_HEADERS6, UDP_HEADERS = 40, 60, 28


def of_length(length: int, dst: str = VIP, **fields: object) -> Packet:
    """A TCP packet whose IP length is `length`."""
    return tcp(dst, payload=bytes(length - (TCP_HEADERS6 if ":" in dst else TCP_HEADERS)), **fields)


def fits(description: str, inner: Packet, vip: str, backend: str) -> Row:
    return Row(description, ether(inner), "hash_new", outer(inner, BACKENDS[backend]), vip, backend)


def too_big(description: str, inner: Packet, mtu: int) -> Row:
    return Row(description, ether(inner), "too_big_reply", answer(too_big_error(inner, mtu)))


MTU = [
    fits("GRE over IPv4 leaves 1476 of 1500 bytes", of_length(1476), "www", "web1"),
    too_big("one byte more is too big", of_length(1477), 1476),
    too_big("1500 bytes with DF", of_length(1500), 1476),
    too_big("2000 bytes", of_length(2000), 1476),
    fits("GRE over IPv6 leaves 1456 of 1500 bytes", of_length(1456, OVER6), "www over 6", "six1"),
    too_big("GRE over IPv6: one byte more", of_length(1457, OVER6), 1456),
    fits("IPv6 in GRE over IPv4 leaves 1476", of_length(1476, OVER4), "www over 4", "web1"),
    too_big("IPv6 in GRE over IPv4: one byte more", of_length(1477, OVER4), 1476),
    fits("IPv6 in GRE over IPv6 leaves 1456", of_length(1456, VIP6), "www6", "six1"),
    too_big("IPv6 in GRE over IPv6: one byte more", of_length(1457, VIP6), 1456),
    too_big("UDP of 1477 bytes", udp(dport=80, payload=bytes(1477 - UDP_HEADERS)), 1476),
    Row(
        "padding does not count",
        bytes(ether(of_length(1476))) + bytes(24),
        "hash_new",
        outer(of_length(1476), WEB1),
        "www",
        "web1",
    ),
]

NO_BACKEND = [
    Row("SYN to a vip without backends", ether(tcp(EMPTY)), "no_backend", reason="no_backend"),
    Row("RST to a vip without backends", ether(tcp(EMPTY, flags="R")), "no_backend", reason="no_backend"),
    Row("no backend comes before too big", ether(of_length(1500, EMPTY)), "no_backend", reason="no_backend"),
]


@pytest.mark.parametrize("row", MTU + NO_BACKEND, ids=str)
def test_refused(road: Road, row: Row) -> None:
    row.check(road)


@pytest.mark.parametrize(
    ("mtu", "dst", "over"),
    [
        (mtu, dst, over)
        for mtu in (576, 1280, 1304, 1324, 1492, 1600, 2000)
        for dst, over, least in ((VIP, 24, 576), (OVER6, 44, 576), (OVER4, 24, 1304), (VIP6, 44, 1324))
        if mtu >= least  # so that an IPv6 packet of 1280 bytes fits
    ],
)
def test_the_largest_packet_is_the_mtu_less_the_outer_headers(
    make_road: Callable[..., Road], mtu: int, dst: str, over: int
) -> None:
    road = make_road(mtu=mtu)
    road.apply(WORLD)
    assert road.fate_of(bytes(ether(of_length(mtu - over, dst)))) == "hash_new"
    assert road.fate_of(bytes(ether(of_length(mtu - over + 1, dst)))) == "too_big_reply"


def test_a_packet_of_several_buffers_goes_through_whole(make_road: Callable[..., Road]) -> None:
    """A jumbo frame lies in a chain of 2 KB buffers."""
    road = make_road(mtu=9000)
    road.apply(WORLD)
    inner = of_length(8976)
    Row("jumbo", ether(inner), "hash_new", outer(inner, WEB1), "www", "web1").check(road)
    assert road.fate_of(bytes(ether(of_length(8977)))) == "too_big_reply"


# -- next hops: what a kernel would know

GATEWAY, OTHER = ip_address("10.0.2.1"), ip_address("10.0.9.1")
MAC, OTHER_MAC = "02:00:00:00:00:aa", "02:00:00:00:00:bb"
FIRST, SECOND = 1, 2  # interface indices


def raw(mac: str | None) -> bytes | None:
    return bytes.fromhex(mac.replace(":", "")) if mac else None


def view(state: int, mac: str | None = MAC, interface: int = FIRST) -> KernelView:
    """A default route by the gateway on an interface, and its neighbor entry in a state (linux/neighbour.h)."""
    return KernelView(
        [Route(ip_network("0.0.0.0/0"), GATEWAY, interface)], {(interface, GATEWAY): Neighbor(raw(mac), state)}
    )


@pytest.mark.parametrize("neighbor", [0x02, 0x04, 0x08, 0x10, 0x40, 0x80], ids=hex)
def test_a_usable_neighbor_is_sent_to(make_road: Callable[..., Road], neighbor: int) -> None:
    """Reachable, stale, delay, probe, noarp and permanent ones."""
    road = make_road(ports=[port_settings(mac=None)], view=view(neighbor))
    road.apply(WORLD)
    Row("known", ether(tcp()), "hash_new", outer(tcp(), WEB1, mac=MAC), "www", "web1").check(road)


@pytest.mark.parametrize("neighbor", [0x00, 0x01, 0x20], ids=["none", "incomplete", "failed"])
@pytest.mark.parametrize("packet", [tcp(), of_length(1500), tcp(flags="R")], ids=["syn", "too big", "rst"])
def test_no_neighbor(make_road: Callable[..., Road], neighbor: int, packet: Packet) -> None:
    """The next hop did not answer; that comes before too big."""
    road = make_road(ports=[port_settings(mac=None)], view=view(neighbor, None))
    road.apply(WORLD)
    Row("unresolved", ether(packet), "no_neighbor").check(road)


def test_no_route_is_no_neighbor(make_road: Callable[..., Road]) -> None:
    road = make_road(ports=[port_settings(mac=None)], view=KernelView())
    road.apply(WORLD)
    assert road.fate_of(bytes(ether(tcp()))) == "no_neighbor"
    road.see(view(0x02, interface=7))
    assert road.fate_of(bytes(ether(tcp()))) == "no_neighbor", "a route by an interface that is no port"


def test_a_neighbor_is_followed_without_a_new_state(make_road: Callable[..., Road]) -> None:
    """Another MAC, then none, then one again: the flow keeps its backend, and no table changes."""
    road = make_road(ports=[port_settings(mac=None)], view=view(0x02))
    road.apply(WORLD)
    Row("first", ether(tcp()), "hash_new", outer(tcp(), WEB1, mac=MAC), "www", "web1").check(road)
    road.see(view(0x02, OTHER_MAC))
    Row("moved", ether(tcp()), "conn_hit", outer(tcp(), WEB1, mac=OTHER_MAC), "www", "web1").check(road)
    road.see(view(0x20, None))
    Row("gone", ether(tcp()), "no_neighbor").check(road)
    road.see(view(0x04, MAC))
    Row("back", ether(tcp()), "conn_hit", outer(tcp(), WEB1, mac=MAC), "www", "web1").check(road)


def test_a_route_that_moves_to_another_port_is_followed(make_road: Callable[..., Road]) -> None:
    road = make_road(ports=[port_settings(mac=None), port_settings(mac=None, mtu=100)], view=view(0x02))
    road.apply(WORLD)
    Row("by the first", ether(tcp()), "hash_new", outer(tcp(), WEB1, mac=MAC), "www", "web1").check(road)
    road.see(view(0x02, OTHER_MAC, interface=SECOND))
    Row("by the second", ether(tcp()), "conn_hit", outer(tcp(), WEB1, mac=OTHER_MAC), "www", "web1", by=1).check(road)
    error = answer(too_big_error(of_length(200), 76))
    Row("its MTU, said by the port it came from", ether(of_length(200)), "too_big_reply", error).check(road)


def test_a_backend_without_neighbor_does_not_take_the_others_down(make_road: Callable[..., Road]) -> None:
    routes = [Route(ip_network("10.0.3.0/24"), GATEWAY, FIRST), Route(ip_network("10.0.4.0/24"), OTHER, FIRST)]
    neighbors = {(FIRST, GATEWAY): Neighbor(raw(MAC), 0x02), (FIRST, OTHER): Neighbor(None, 0x20)}
    road = make_road(ports=[port_settings(mac=None)], view=KernelView(routes, neighbors))
    members = {"good": "10.0.3.2", "lost": "10.0.4.2"}
    road.apply(state(members, vip("a", VIP, ["good"]), vip("b", EMPTY, ["lost"])))
    Row("good", ether(tcp()), "hash_new", outer(tcp(), "10.0.3.2", mac=MAC), "a", "good").check(road)
    Row("lost", ether(tcp(EMPTY)), "no_neighbor").check(road)
