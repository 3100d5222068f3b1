"""Frames that are not for this station: a switch floods what it does not know, and each node that took it would send
on a copy. On an interface of the kernel it keeps them from us (forwarder/ports.py); behind a NIC nobody does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, UDP, fragment
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet

from packets.road import Road
from packets.table import Row
from packets.world import (
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    GATEWAY_MAC,
    NODE_MAC,
    VIP,
    VIP6,
    WORLD,
    ether,
    tcp,
    udp,
)

OTHER_MAC, ALL, GROUP = "02:00:00:00:00:77", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"
ONE_BIT_OFF = ("03:00:00:00:00:02", "02:00:00:00:00:03", "02:00:01:00:00:02", "82:00:00:00:00:02")


def to(mac: str, packet: Packet) -> Packet:
    frame: Packet = Ether(src=GATEWAY_MAC, dst=mac) / packet
    return frame


def not_ours(description: str, send: Packet | list[Packet]) -> Row:
    return Row(description, send=send, fate="not_vip", reason="other_station")


PING = IP(src=CLIENT, dst=VIP) / ICMP(id=7, seq=1)
DATAGRAM = IP(src=CLIENT, dst=VIP) / UDP(sport=40000, dport=80) / bytes(3000)

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
    Row("who has an address", to(ALL, ARP(pdst=ELSEWHERE)), "punt", reason="punt_not_ip"),
    Row("a neighbor is looked for", to("33:33:ff:00:00:02", IPv6(src=CLIENT6) / ICMPv6ND_NS()), "punt"),
    Row("to all hosts of a network", to(ALL, udp(ELSEWHERE)), "punt", reason="punt_address"),
]


@pytest.mark.parametrize("row", ELSEWHERE_ROWS + MANY_ROWS, ids=lambda row: row.description)
def test_a_frame_for_others_goes_nowhere(make_road: Callable[..., Road], row: Row) -> None:
    road = make_road(punts=True, only_own=True)
    road.apply(WORLD)
    row.check(road)


def test_nothing_is_remembered_of_it_and_ours_go_on_in_order(make_road: Callable[..., Road]) -> None:
    road = make_road(only_own=True)
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


def test_a_canary_is_for_this_station_whoever_it_was_addressed_to(make_road: Callable[..., Road]) -> None:
    road = make_road(only_own=True)
    road.apply(WORLD)
    road.dataplane.inject(bytes(to(OTHER_MAC, tcp())), 0)
    for _ in range(2):
        road.step()
    came = road.dataplane.collect()
    assert came is not None
    assert came[1] == "own_untracked"


def test_a_port_that_takes_everything_takes_what_is_for_one(road: Road) -> None:
    """Captures, and devices whose MAC nobody asks for."""
    assert road.fates_of(bytes(to(OTHER_MAC, tcp())), bytes(to(NODE_MAC, tcp()))) == {"hash_new": 1, "conn_hit": 1}
