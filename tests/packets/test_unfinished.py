"""Checksums that a kernel left to a NIC: finished on the way, and nothing else of the packet changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import TCP, UDP
from scapy.layers.l2 import Dot1Q
from scapy.packet import Packet

from packets.road import Road
from packets.world import BACKENDS, VIP, VIP6, WORLD, ether, finished, left_to_a_nic, outer, tcp, udp

MakeRoad = Callable[..., Road]


@pytest.fixture
def road(make_road: MakeRoad) -> Road:
    road = make_road()
    road.dataplane.set_port(0, 1500, punts=False, unfinished=True)
    road.apply(WORLD)
    return road


PACKETS = {
    "TCP": tcp(payload=b"odd"),
    "UDP": udp(VIP, dport=80),
    "UDP without data": udp(VIP, dport=80, payload=b""),
    "TCP over IPv6": tcp(VIP6, payload=b"odd"),
    "UDP over IPv6": udp(VIP6),
}


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS)
@pytest.mark.parametrize("tags", [(), (7,)], ids=["untagged", "tagged"])
def test_it_is_finished(road: Road, packet: Packet, tags: tuple[int, ...]) -> None:
    right = finished(packet)
    inner = left_to_a_nic(packet)
    assert bytes(inner) != bytes(right)
    for vlan in tags:
        inner = Dot1Q(vlan=vlan) / inner
    (sent,) = road.send(bytes(ether(inner)))
    assert sent.endswith(bytes(right))


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS)
@pytest.mark.parametrize("value", [None, 0, 0xFFFF, 0x1234])
def test_what_is_right_or_wrong_in_another_way_stays(road: Road, packet: Packet, value: int | None) -> None:
    inner = finished(packet)
    if value is not None:
        (inner[TCP] if TCP in inner else inner[UDP]).chksum = value
    (sent,) = road.send(bytes(ether(inner)))
    assert sent.endswith(bytes(inner))


def test_of_a_fragment_nobody_knows_all_bytes(road: Road) -> None:
    first = left_to_a_nic(udp(VIP, dport=80, payload=bytes(16), flags="MF"))
    (sent,) = road.send(bytes(ether(first)))
    assert sent.endswith(bytes(first))


def test_where_no_kernel_can_have_left_it_the_packet_is_not_touched(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(WORLD)
    inner = left_to_a_nic(tcp())
    assert road.send(bytes(ether(inner))) == [outer(inner, BACKENDS["web1"])]
