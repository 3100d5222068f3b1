"""A NIC that the kernel does not see, and the kernel's interface beside it: what is not for a vip goes both ways.

Sockets stand for the files of the interface: a frame at a time, as with a tap. A real one is in tests/lab.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6ND_RA, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from forwarder._dataplane import Dataplane, DataplaneError, PacketPool, Port
from packets.road import KernelEnd, Road, port_settings
from packets.world import (
    CLIENT,
    ELSEWHERE,
    ELSEWHERE6,
    GATEWAY_MAC,
    HASH_KEY,
    NODE_MAC,
    TUNNEL,
    VIP,
    WORLD,
    ether,
    tcp,
)

MakeRoad = Callable[..., Road]
PER_SECOND, ROUTING_PER_SECOND = 50000, 10000  # of one worker

NOT_OURS = {
    "ARP": ether(ARP(op=1, pdst=TUNNEL)),
    "LLDP": Ether(src=GATEWAY_MAC, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\x02\x07"),
    "BGP to the node": ether(IP(src=CLIENT, dst=TUNNEL) / TCP(dport=179)),
    "SSH to the node": ether(IP(src=CLIENT, dst=TUNNEL) / TCP(dport=22)),
    "a ping": ether(IP(src=CLIENT, dst=TUNNEL) / ICMP()),
    "neighbor discovery": ether(IPv6(src=ELSEWHERE6, dst="ff02::1:ff00:2") / ICMPv6ND_NS(tgt="fd00:2::2")),
    "a fragment": ether(IP(src=CLIENT, dst=TUNNEL, frag=7, proto=17) / bytes(64)),
    "tagged": Ether(src=GATEWAY_MAC, dst=NODE_MAC) / Dot1Q(vlan=7) / IP(src=CLIENT, dst=TUNNEL) / TCP(dport=22),
}
ROUTING = {
    "ARP": ARP(op=1, pdst=TUNNEL),
    "BGP to the node": IP(src=CLIENT, dst=TUNNEL) / TCP(dport=179),
    "BGP from a router": IP(src=CLIENT, dst=TUNNEL) / TCP(sport=179, dport=30000),
    "BFD": IP(src=CLIENT, dst=TUNNEL) / UDP(dport=3784),
    "BFD echo": IP(src=CLIENT, dst=TUNNEL) / UDP(dport=3785),
    "BFD over several hops": IP(src=CLIENT, dst=TUNNEL) / UDP(dport=4784),
    "a router's advertisement": IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_RA(),
    "a neighbor's advertisement": IPv6(src="fe80::1", dst="fd00:2::2") / ICMPv6ND_NA(),
}
OTHER = {
    "SSH": IP(src=CLIENT, dst=TUNNEL) / TCP(dport=22),
    "UDP to the port of BGP": IP(src=CLIENT, dst=TUNNEL) / UDP(dport=179),
    "TCP to the port of BFD": IP(src=CLIENT, dst=TUNNEL) / TCP(dport=3784),
    "a ping": IP(src=CLIENT, dst=TUNNEL) / ICMP(),
    "an IPv6 ping": IPv6(src="fe80::1", dst="fd00:2::2") / ICMPv6EchoRequest(),
    "IPv4 with neighbor discovery's protocol": IP(src=CLIENT, dst=TUNNEL, proto=58) / b"\x87",
    "a fragment": IP(src=CLIENT, dst=TUNNEL, frag=7, proto=6) / bytes(64),
}


@pytest.fixture
def beside(make_road: MakeRoad) -> Road:
    road = make_road(beside=[0], workers=2)
    road.apply(WORLD)
    return road


@pytest.mark.parametrize("packet", NOT_OURS.values(), ids=NOT_OURS)
def test_the_kernel_gets_what_is_not_for_a_vip_as_it_came(beside: Road, packet: Packet) -> None:
    frame = bytes(packet)
    assert beside.send(frame) == []
    assert beside.kernel_got() == [frame]
    assert beside.fates() == {"punt": 1}


def test_the_kernel_gets_nothing_of_what_is_for_a_vip(beside: Road) -> None:
    assert len(beside.send(bytes(ether(tcp())))) == 1
    assert beside.send(bytes(ether(tcp(dport=81)))) == [], "the address is a vip's, and the kernel has no vip"
    assert beside.kernel_got() == []
    assert beside.fates() == {"hash_new": 1, "not_vip": 1}


@pytest.mark.parametrize("packet", [*NOT_OURS.values(), ether(tcp())], ids=[*NOT_OURS, "to a vip"])
def test_what_the_kernel_sends_leaves_by_the_nic_as_it_is(beside: Road, packet: Packet) -> None:
    frame = bytes(packet)
    for queue in range(len(beside.kernels[0].ends)):
        beside.kernel_sends(frame, queue=queue)
        assert beside.take() == [frame]
    assert beside.fates() == {"from_kernel": len(beside.kernels[0].ends)}
    assert beside.connections() == 0
    assert beside.kernel_got() == []


def test_many_at_once_keep_their_order(beside: Road) -> None:
    frames = [bytes(ether(ARP(pdst=f"10.9.{i}.1"))) for i in range(200)]
    beside.kernel_sends(*frames)
    assert beside.take() == frames


def test_each_interface_belongs_to_its_nic(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings()] * 3, beside=[2, 0])
    road.apply(WORLD)
    arp = bytes(ether(ARP(pdst=TUNNEL)))
    road.send_by_port([arp], 0)
    assert (road.kernel_got(0), road.kernel_got(1)) == ([], [arp])
    road.send_by_port([arp, arp], 2)
    assert (road.kernel_got(0), road.kernel_got(1)) == ([arp, arp], [])
    assert road.send_by_port([arp], 1) == [[], [], []]
    road.kernel_sends(arp, tap=0)
    assert [len(road.take(i)) for i in range(3)] == [0, 0, 1]
    road.kernel_sends(arp, tap=1)
    assert [len(road.take(i)) for i in range(3)] == [1, 0, 0]
    assert road.fates() == {"punt": 3, "not_vip": 1, "from_kernel": 2}


def test_a_tag_that_the_nic_took_off_is_put_back(beside: Road) -> None:
    untagged = bytes(ether(ARP(pdst=TUNNEL)))
    beside.ports[0].give(untagged, stripped=7)
    beside.given += 1
    beside.step()
    assert beside.kernel_got() == [untagged[:12] + bytes.fromhex("81000007") + untagged[12:]]


def test_a_frame_of_several_buffers_arrives_whole(beside: Road) -> None:
    frame = bytes(ether(IP(src=CLIENT, dst=TUNNEL) / UDP(dport=9) / (bytes(range(256)) * 35)))
    assert len(frame) > 2 * 2048
    beside.send(frame)
    assert beside.kernel_got() == [frame]


def test_what_the_kernel_does_not_take_is_counted_and_comes_back_to_the_pool(beside: Road) -> None:
    beside.kernels[0].go_down()
    beside.send(*[bytes(ether(ARP(pdst=TUNNEL)))] * 100)
    assert beside.ports[1].missed == 100
    assert beside.fates() == {"punt": 100}


def test_a_frame_of_the_kernels_that_no_buffer_holds_is_dropped_and_counted_not_cut(beside: Road) -> None:
    longest = bytes(ether(IP(src=TUNNEL, dst=CLIENT) / UDP(dport=9))).ljust(2047, b"x")
    beside.kernels[0].ends[0].send(longest + b"x")
    beside.kernel_sends(longest)
    assert beside.take() == [longest]
    assert beside.ports[1].missed == 1
    assert beside.fates() == {"from_kernel": 1}


@pytest.fixture
def flooded(make_road: MakeRoad) -> Road:
    """A road whose kernel has got all that it may of ordinary packets in this second."""
    road = make_road(beside=[0])
    road.apply(WORLD)
    flood = [bytes(ether(tcp(ELSEWHERE)))] * (PER_SECOND + 5)
    assert road.fates_of(*flood) == {"punt": PER_SECOND, "punt_suppressed": 5}
    return road


def test_a_flood_to_the_node_neither_ends_its_routing_nor_lasts(flooded: Road) -> None:
    routing = [bytes(ether(packet)) for packet in ROUTING.values()]
    others = [bytes(ether(packet)) for packet in OTHER.values()]
    flooded.kernel_got()
    assert flooded.fates_of(*others, *routing) == {"punt": len(routing), "punt_suppressed": len(others)}
    assert sorted(flooded.kernel_got()) == sorted(routing)
    assert flooded.fate_of(bytes(ether(tcp()))) == "hash_new"
    flooded.now += 1
    assert flooded.fates_of(*others) == {"punt": len(others)}


def test_a_flood_of_what_looks_like_routing_takes_no_more_than_its_share(make_road: MakeRoad) -> None:
    road = make_road(beside=[0])
    road.apply(WORLD)
    arp = bytes(ether(ARP(pdst=TUNNEL)))
    assert road.fates_of(*[arp] * (ROUTING_PER_SECOND + 1)) == {"punt": ROUTING_PER_SECOND, "punt_suppressed": 1}
    assert road.fate_of(bytes(ether(tcp(ELSEWHERE)))) == "punt"


def test_both_ways_at_full_speed_on_lcores(make_road: MakeRoad) -> None:
    """Traffic, what is the kernel's, what the kernel sends; what must hold is asserted as the road closes."""
    road = make_road(beside=[0], workers=2, pool=4096)
    road.apply(WORLD)
    road.start()
    for number in range(60):
        road.give([bytes(ether(tcp(sport=1024 + number))), bytes(ether(ARP(pdst=TUNNEL)))] * 20)
        for _ in range(20):
            road.kernels[0].ends[number % len(road.kernels[0].ends)].send(bytes(ether(ARP(pdst=VIP))))
        road.given += 20
        road.take_all()
        road.kernels[0].drain()
    assert {fate: road.fates()[fate] for fate in ("punt", "from_kernel")} == {"punt": 1200, "from_kernel": 1200}


@pytest.mark.parametrize(("index", "nic"), [(1, 1), (1, 2), (2, 1)], ids=["itself", "none", "one that is no NIC"])
def test_an_interface_beside_no_nic_is_refused(index: int, nic: int) -> None:
    pool = PacketPool("beside", 2048)
    ends = [KernelEnd(f"tap{i}", 0, 1) for i in range(index)]
    ports = [Port.memory("nic", 0, pool)]
    for i, end in enumerate(ends, start=1):
        ports.append(Port.kernel_side(end.name, i, nic if i == index else 0, pool, end.files()))
    try:
        with pytest.raises(DataplaneError, match="Invalid argument"):
            Dataplane(pool, ports, HASH_KEY)
    finally:
        for port in ports:
            port.close()
        for end in ends:
            end.close()
        pool.close()
