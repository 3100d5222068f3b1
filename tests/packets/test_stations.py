"""Frames that are not for this station: a switch floods what it does not know, and each node that took it would send
on a copy. On an interface of the kernel it keeps them from us (forwarder/ports.py); behind a NIC nobody does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from unittest.mock import Mock

import pytest
from scapy.layers.inet import ICMP, IP, UDP, fragment
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet

from forwarder.canary import Canary, Flight
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    BACKENDS,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    GATEWAY_MAC,
    HASH_KEY,
    NODE_MAC,
    TUNNEL,
    TUNNEL6,
    VIP,
    VIP6,
    WORLD,
    ether,
    outer,
    state,
    tcp,
    udp,
)

SOURCES = {4: ip_address(TUNNEL), 6: ip_address(TUNNEL6)}
OTHER_MAC, ALL, GROUP = "02:00:00:00:00:77", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"
ONE_BIT_OFF = ("03:00:00:00:00:02", "02:00:00:00:00:03", "02:00:01:00:00:02", "82:00:00:00:00:02")


def to(mac: str, packet: Packet) -> Packet:
    frame: Packet = Ether(src=GATEWAY_MAC, dst=mac) / packet
    return frame


def not_ours(description: str, send: Packet | list[Packet]) -> Row:
    return Row(description, send=send, fate="not_vip", reason="other_station")


PING = IP(src=CLIENT, dst=VIP) / ICMP(id=7, seq=1)
DATAGRAM = IP(src=CLIENT, dst=VIP) / UDP(sport=40000, dport=80) / bytes(3000)
LATER = fragment(DATAGRAM, 1480)[1:]
TOO_BIG = (
    IP(src=ELSEWHERE, dst=TUNNEL)
    / ICMP(type=3, code=4, nexthopmtu=1300)
    / bytes(outer(tcp(), BACKENDS["web1"]))[14:42]
)

ELSEWHERE_ROWS = [
    not_ours("TCP to a vip, another station's", to(OTHER_MAC, tcp())),
    not_ours("the same over IPv6", to(OTHER_MAC, tcp(VIP6))),
    not_ours("UDP to a vip, another station's", to(OTHER_MAC, udp())),
    not_ours("with a VLAN tag", to(OTHER_MAC, Dot1Q(vlan=5) / tcp())),
    not_ours("a ping of a vip, another station's", to(OTHER_MAC, PING)),
    not_ours("too big, another station's: it is told", to(OTHER_MAC, tcp(payload=bytes(1460)))),
    not_ours(
        "a datagram in fragments, another station's", [to(OTHER_MAC, part) for part in fragment(DATAGRAM, 1480)]
    ),
    not_ours("its later fragments alone: they wait for nothing", [to(OTHER_MAC, part) for part in LATER]),
    not_ours("another host's packet, another station's", to(OTHER_MAC, tcp(ELSEWHERE))),
    not_ours("another station's ARP answer", to(OTHER_MAC, ARP(op=2, pdst=ELSEWHERE))),
    not_ours("to no station", to("00:00:00:00:00:00", tcp())),
    *(not_ours(f"to {mac}, a bit beside ours", to(mac, tcp())) for mac in ONE_BIT_OFF),
]
MANY_ROWS = [
    not_ours("TCP to a vip, to all stations", to(ALL, tcp())),
    not_ours("UDP to a vip, to a group", to(GROUP, udp())),
    not_ours("IPv6 to a vip, to a group", to("33:33:00:00:00:01", tcp(VIP6))),
    not_ours("a ping of a vip to all stations: each node that got it would answer", to(ALL, PING)),
    Row("a too-big about the tunnel, to all", to(ALL, TOO_BIG), "punt", reason="punt_address"),
    Row("who has an address", to(ALL, ARP(pdst=ELSEWHERE)), "punt", reason="punt_not_ip"),
    Row("a neighbor is looked for", to("33:33:ff:00:00:02", IPv6(src=CLIENT6) / ICMPv6ND_NS()), "punt"),
    Row("to all hosts of a network", to(ALL, udp(ELSEWHERE)), "punt", reason="punt_address"),
]


@pytest.mark.parametrize("row", ELSEWHERE_ROWS + MANY_ROWS, ids=lambda row: row.description)
def test_a_frame_for_others_goes_nowhere(make_road: Callable[..., Road], row: Row) -> None:
    road = make_road(punts=True, only_own=[0])
    road.apply(WORLD)
    row.check(road)


def test_nothing_is_remembered_of_it_and_ours_go_on_in_order(make_road: Callable[..., Road]) -> None:
    road = make_road(only_own=[0])
    road.apply(WORLD)
    mine = [bytes(ether(tcp(sport=sport))) for sport in range(40000, 40100)]
    flooded = [bytes(to(OTHER_MAC, tcp(sport=sport))) for sport in range(50000, 50100)]
    mixed = [frame for both in zip(mine, flooded, strict=True) for frame in both]
    out = road.send(*mixed)
    assert [int.from_bytes(frame[58:60], "big") for frame in out] == list(range(40000, 40100)), (
        "the inner source port"
    )
    assert road.dataplane.reasons()["other_station"] == 100
    assert road.dataplane.worker(0)["inserted"] == 100


def test_fragments_for_another_station_take_no_place_of_those_that_wait(make_road: Callable[..., Road]) -> None:
    road = make_road(only_own=[0], workers=2)
    road.apply(WORLD)
    road.send(*[bytes(to(OTHER_MAC, part)) for part in LATER] * 50)
    assert road.dataplane.held == 0
    assert road.dataplane.reasons()["other_station"] == 50 * len(LATER)


@pytest.mark.parametrize("looks", [0, 1])
def test_each_port_looks_or_does_not(make_road: Callable[..., Road], looks: int) -> None:
    road = make_road(ports=[port_settings()] * 2, only_own=[looks])
    road.apply(WORLD)
    flooded = bytes(to(OTHER_MAC, tcp()))
    road.send_by_port([flooded], looks)
    assert road.fates() == {"not_vip": 1}
    road.send_by_port([flooded], 1 - looks)
    assert road.fates() == {"not_vip": 1, "hash_new": 1}


@pytest.mark.parametrize("world", [WORLD, state({})], ids=["to a backend", "to nobody"])
def test_a_canary_is_for_this_station(make_road: Callable[..., Road], world: dict[str, object]) -> None:
    """The data plane addresses it, and the canary knows it again when it ends on the way."""
    road = make_road(only_own=[0], punts=True)
    road.apply(world)
    canary = Canary(
        road.dataplane, road.forwarding, road.hops, Mock(worker_cpus=(0,), hash_key=HASH_KEY, sources=SOURCES)
    )

    async def fly() -> Flight:
        flight = asyncio.create_task(canary.fly())
        while not flight.done():
            road.step()
            await asyncio.sleep(0.001)
        return flight.result()

    assert asyncio.run(fly()).passed


def test_a_port_that_takes_everything_takes_what_is_for_one(road: Road) -> None:
    """Captures, and devices whose MAC nobody asks for."""
    assert road.fates_of(bytes(to(OTHER_MAC, tcp())), bytes(to(NODE_MAC, tcp()))) == {"hash_new": 1, "conn_hit": 1}
