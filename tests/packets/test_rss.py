"""Layout rss with several workers: each flow is where a NIC puts it, and what a NIC cannot know is handed on."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1Q
from scapy.packet import Packet

from forwarder._dataplane import Dataplane, DataplaneError, PacketPool, Port
from packets.cluster import LB2, client_of, in_cluster
from packets.road import BURST, LCORES, Road, port_settings, wait_until
from packets.world import (
    BACKENDS,
    CLIENT,
    CLIENT6,
    HASH_KEY,
    VIP,
    VIP6,
    WORLD,
    backend_address,
    ether,
    flow,
    state,
    tcp,
    udp,
    vip,
)

pytestmark = pytest.mark.layout("rss")

MakeRoad = Callable[..., Road]
KEY = bytes.fromhex("6d5a") * 20
BUCKETS = 128
THREE = {f"b{i}": f"10.0.{i}.2" for i in (1, 2, 3)}
SERVICE = state(THREE, vip("www", VIP, THREE), vip("www6", VIP6, THREE))
ONE = state({"b1": "10.0.3.2"}, vip("www", VIP, ["b1"]), vip("dns", VIP, ["b1"], "udp"))


def toeplitz(key: bytes, data: bytes) -> int:
    """The hash of RSS, bit by bit as it is defined."""
    window, result = int.from_bytes(key, "big"), 0
    for at in range(8 * len(data)):
        if data[at // 8] >> (7 - at % 8) & 1:
            result ^= window >> (8 * len(key) - 32 - at) & 0xFFFFFFFF
    return result


def tuple_of(packet: Packet) -> bytes:
    """What is hashed of a packet with ports."""
    layer = packet.getlayer(IP) or packet.getlayer(IPv6)
    raw = bytes(layer)
    addresses = raw[12:20] if layer.version == 4 else raw[8:40]
    l4 = packet.getlayer(TCP) or packet.getlayer(UDP)
    return addresses + struct.pack("!HH", l4.sport, l4.dport)


def worker_of(packet: Packet, workers: int) -> int:
    return toeplitz(KEY, tuple_of(packet)) % BUCKETS % workers


def inserted(road: Road) -> list[int]:
    return [road.dataplane.worker(i)["inserted"] for i in range(road.workers)]


def where(road: Road, frame: bytes) -> int:
    """The worker that has made an entry for the flow of a frame."""
    before = inserted(road)
    road.send(frame)
    grown = [index for index, (old, new) in enumerate(zip(before, inserted(road), strict=True)) if new > old]
    assert len(grown) == 1, "one worker has the flow"
    return grown[0]


# The sample of Microsoft's "Verifying the RSS hash calculation".
SAMPLE_KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")


def test_the_twin_of_the_hash_is_right() -> None:
    v4 = bytes([66, 9, 149, 187, 161, 142, 100, 80]) + struct.pack("!HH", 2794, 1766)
    assert toeplitz(SAMPLE_KEY, v4) == 0x51CCC178
    assert toeplitz(SAMPLE_KEY, v4[:8]) == 0x323E8FC2


def test_both_directions_of_a_flow_have_one_hash() -> None:
    there, back = tcp(sport=1234), IP(src=VIP, dst=CLIENT) / TCP(sport=80, dport=1234)
    assert toeplitz(KEY, tuple_of(there)) == toeplitz(KEY, tuple_of(back))


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("make", [tcp, udp])
@pytest.mark.parametrize("to", [VIP, VIP6])
def test_a_flow_is_where_its_hash_puts_it(
    make_road: MakeRoad, workers: int, make: Callable[..., Packet], to: str
) -> None:
    road = make_road(workers=workers)
    road.apply(WORLD)
    port = 53 if make is udp and to == VIP6 else 80
    packets = [make(to, sport=sport, dport=port) for sport in range(1024, 60000, 2111)]
    homes = [where(road, bytes(ether(packet))) for packet in packets]
    assert homes == [worker_of(packet, workers) for packet in packets]
    assert len(set(homes)) == workers


def options(packet: Packet) -> Packet:
    packet[IP].options = [IPOption_NOP()] * 4
    return ether(packet)


def extended(packet: Packet) -> Packet:
    header = IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrHopByHop()
    return ether(header / TCP(sport=packet.sport, dport=80, flags="S"))


HIDDEN: dict[str, Callable[[Packet], Packet]] = {
    "two VLAN tags": lambda p: ether() / Dot1Q(vlan=5) / Dot1Q(vlan=6) / p,
    "one VLAN tag": lambda p: ether() / Dot1Q(vlan=5) / p,
    "IPv4 options": options,
    "an IPv6 extension header": extended,
}


@pytest.mark.parametrize("hide", HIDDEN.values(), ids=HIDDEN)
def test_a_flow_has_one_worker_also_where_a_nic_does_not_see_its_ports(
    make_road: MakeRoad, hide: Callable[[Packet], Packet]
) -> None:
    """And it is that of its packets whose ports the NIC sees."""
    road = make_road(workers=3)
    road.apply(WORLD)
    for sport in range(1024, 20000, 1001):
        frame = hide(tcp(sport=sport))
        assert where(road, bytes(frame)) == worker_of(frame, 3)


# -- ICMP errors


def error(about: Packet, source: str) -> bytes:
    """A router's error about what the backend answers to a client's packet."""
    quote = IP(src=VIP, dst=CLIENT) / TCP(sport=80, dport=about.sport)
    return bytes(ether(IP(src=source, dst=VIP) / ICMP(type=3, code=1) / bytes(quote)[:28]))


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("running", [False, True], ids=["stepped", "running"])
def test_an_error_finds_its_flows_worker_from_every_queue(make_road: MakeRoad, workers: int, running: bool) -> None:
    """Only that worker's table knows the flow; by what queue the error comes is its router's address."""
    road = make_road(workers=workers)
    road.apply(ONE)
    flows = [tcp(sport=sport) for sport in range(1024, 60000, 2111)]
    routers = [f"203.0.113.{i}" for i in range(1, 250, 5)]
    queues = {toeplitz(KEY, bytes(IP(src=r, dst=VIP))[12:20]) % BUCKETS % workers for r in routers}
    assert queues == set(range(workers)) == {worker_of(packet, workers) for packet in flows}
    road.send(*(bytes(ether(packet)) for packet in flows))
    if running:
        road.start()
    sent = 0
    for packet in flows:
        road.give(error(packet, router) for router in routers)
        sent += len(routers)
        road.settle() if running else road.step()
        road.take()
    assert road.dataplane.reasons()["error_known"] == sent


def test_errors_that_find_no_room_are_counted_and_plain_packets_go_on(make_road: MakeRoad) -> None:
    """A flood of errors about one flow: what does not fit between two workers is dropped."""
    road = make_road(workers=2, ports=[port_settings()] * 5)
    road.apply(ONE)
    packet = next(tcp(sport=sport) for sport in range(1024, 2048) if worker_of(tcp(sport=sport), 2) == 0)
    router = next(
        f"203.0.113.{i}"
        for i in range(1, 99)
        if toeplitz(KEY, bytes(IP(src=f"203.0.113.{i}", dst=VIP))[12:20]) % BUCKETS % 2 == 1
    )
    road.send(bytes(ether(packet)))
    for _ in range(20):
        for port in range(5):
            assert road.give([error(packet, router)] * 31, port) == 31
        road.give([bytes(ether(packet))])
        road.dataplane.step(road.now)
        road.take()
    road.step()
    reasons = road.dataplane.reasons()
    assert reasons["pair_full"] > 1000
    assert reasons["error_known"] > 500
    assert reasons["pair_full"] + reasons["error_known"] == 20 * 5 * 31
    assert road.fates()["ring_full"] == reasons["pair_full"]
    assert road.fates()["conn_hit"] == 20


# -- fragments


def datagram(number: int, sport: int) -> list[Packet]:
    return fragment(IP(src=CLIENT, dst=VIP, id=number) / UDP(sport=sport, dport=80) / bytes(2000), fragsize=700)


def tagged_twice(packet: Packet) -> bytes:
    return bytes(HIDDEN["two VLAN tags"](packet))


@pytest.mark.parametrize("frame", [lambda p: bytes(ether(p)), tagged_twice], ids=["plain", "tagged twice"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_fragments_go_to_the_worker_of_their_flow(
    make_road: MakeRoad, order: tuple[int, ...], frame: Callable[[Packet], bytes]
) -> None:
    """All come by one queue: that of their hosts, or the first one, where the NIC sees nothing."""
    road = make_road(workers=3)
    road.apply(ONE)
    sports = range(1024, 20000, 1001)
    for number, sport in enumerate(sports, start=1):
        whole = udp(sport=sport, dport=80)
        home = where(road, bytes(ether(whole)))
        assert home == worker_of(whole, 3)
        before = inserted(road)
        parts = datagram(number, sport)
        assert len(road.send(*(frame(parts[i]) for i in order))) == 3
        assert inserted(road) == before, "its worker knows the flow"
    assert road.fates() == {"hash_new": len(sports), "fragment": 3 * len(sports)}


def test_fragments_are_held_within_one_workers_share(make_road: MakeRoad) -> None:
    """What two hosts send is matched by one worker, so others' places stay free."""
    road = make_road(workers=2, pool=4096)
    road.apply(ONE)
    for number in range(1, 1001):
        road.send(bytes(ether(datagram(number, 1024)[1])))
    mine = road.dataplane.held
    assert 50 < mine < 200
    others = [f"198.51.{i}.9" for i in range(40)]
    for source in others:
        road.send(bytes(ether(IP(src=source, dst=VIP, frag=9, proto=17) / bytes(64))))
    assert mine < road.dataplane.held < mine + len(others)


# -- what waits, and what the pool must have


def test_transmit_rings_are_as_small_as_the_pool_needs_them(make_road: MakeRoad) -> None:
    """A port that takes nothing does not take the packets of all the others."""
    road = make_road(ports=[port_settings()] * 2, pool=2048, ring_size=8192)
    road.apply(SERVICE)
    for _ in range(200):
        road.give([flow(1)] * BURST)
        road.step()
    assert road.pool.available > 500, "port 0's ring is full, and others can receive"
    assert road.fates()["transmit_full"] > 3000


def test_a_port_that_takes_nothing_costs_no_other_port_a_packet(make_road: MakeRoad) -> None:
    """A ring that fills up within a turn is emptied on the way, also behind a packet whose own port is stuck."""
    road = make_road(ports=[port_settings()] * 2, ring_size=64)
    backends = {"b1": "10.0.1.2", "b2": "10.0.2.3"}
    road.apply(state(backends, vip("www", VIP, ["b1"]), vip("tls", VIP, ["b2"], port=443)))
    road.dataplane.set_next_hop(road.hops.index(ip_address(backends["b2"])), 1, bytes(6))
    stuck, well = flow(1), flow(1, dport=443)
    left = 0
    for _ in range(100):
        for port in (0, 1):
            road.give([stuck, *[well] * 31], port)
        road.step()
        left += len(road.take(1))
    assert left == 100 * 62
    assert road.fates()["transmit_full"] == 200 - 64


@pytest.mark.parametrize("full", [0, 1])
def test_what_is_cut_for_another_node_needs_room_where_it_leaves(make_road: MakeRoad, full: int) -> None:
    """A fragment that comes by port 0 and leaves by port 1 in two pieces, while one of them takes nothing more."""
    road = make_road(ports=[port_settings()] * 2, ring_size=64)
    road.apply(in_cluster(ONE))
    road.dataplane.set_next_hop(road.hops.index(ip_address(LB2)), 1, bytes(6))
    if full == 1:
        road.dataplane.set_next_hop(road.hops.index(ip_address("10.0.3.2")), 1, bytes(6))
    waiting = 64 if full == 0 else 63
    road.give([flow(1)] * waiting)
    road.step()
    part = IP(src=client_of("lb2"), dst=VIP, frag=9, proto=17) / bytes(1480)
    road.give([bytes(ether(part))])
    road.step()
    sent_on = road.dataplane.reasons()["fragment_to_node"]
    assert (sent_on, road.dataplane.pieces) == ((1, 1) if full == 0 else (0, 0))
    assert len(road.take(1)) == (2 if full == 0 else waiting)


def test_received_is_what_came_by_all_queues_of_a_port(make_road: MakeRoad) -> None:
    road = make_road(workers=3, ports=[port_settings()] * 2)
    road.apply(SERVICE)
    road.send(*[flow(i) for i in range(100)])
    road.send_by_port([flow(i) for i in range(50)], port=1)
    received = [road.dataplane.rings(port)["receive"] for port in (0, 1)]
    assert received == [{"received": n, "processed": n, "reserved": n + 3 * BURST} for n in (100, 50)]
    transmit = road.dataplane.rings(0)["transmit"]
    assert transmit["ready"] == transmit["sent"] == 150


@pytest.fixture
def pool() -> Iterator[PacketPool]:
    made = PacketPool("rss", 4096)
    yield made
    assert made.missing == 0
    made.close()


def test_a_pool_that_is_too_small_is_refused_with_the_sum() -> None:
    pool = PacketPool("small", 1500)
    port = Port.memory("rss", 0, pool, 3)
    with pytest.raises(DataplaneError) as refused:
        Dataplane(pool, [port], HASH_KEY, workers=3, layout="rss")
    (needed,) = re.findall(r"set packet_pool to (\d+)", str(refused.value))
    assert int(needed) == 3 * 4 * BURST + 4 * 384, "for each worker its bursts, and caches"
    port.close()
    pool.close()


@pytest.mark.parametrize(("kind", "queues"), [("software", 2), ("rss", 1), ("rss", 3)])
def test_ports_with_other_queues_than_the_layout_needs_are_refused(pool: PacketPool, kind: str, queues: int) -> None:
    port = Port.memory("rss", 0, pool, queues)
    with pytest.raises(ValueError, match=f"rss has {queues}"):
        Dataplane(pool, [port], HASH_KEY, workers=2, layout=kind)
    port.close()


@pytest.mark.parametrize("queues", [0, 33])
def test_a_number_of_queues_that_cannot_be(pool: PacketPool, queues: int) -> None:
    for make in (Port.memory, Port.device):
        with pytest.raises(DataplaneError, match="Invalid argument"):
            make("net_null7", 0, pool, queues)


# -- devices


LACKS: dict[str, str] = {
    "net_null6": "only pretends to spread what it receives",
    "net_ring6": "does not spread TCP and UDP by addresses and ports (RSS)",
}


@pytest.mark.parametrize(("device", "lacks"), LACKS.items(), ids=LACKS)
def test_a_device_without_rss_has_one_queue_and_says_why(pool: PacketPool, device: str, lacks: str) -> None:
    port = Port.device(device, 0, pool, 2)
    assert (port.queues, port.buckets, port.lacks) == (1, 1, lacks)
    port.narrow()
    dataplane = Dataplane(pool, [port], HASH_KEY, ring_size=64)
    with pytest.raises(DataplaneError, match="in use"):
        port.narrow()
    dataplane.close()
    port.close()


def test_one_worker_needs_no_rss(pool: PacketPool) -> None:
    """A flood of whatever the buffers held, carried from a device to it on one lcore."""
    port = Port.device("net_null6,size=64", 0, pool, 1)
    assert (port.queues, port.lacks) == (1, None)
    dataplane = Dataplane(pool, [port], HASH_KEY, layout="rss")
    dataplane.start(LCORES[:1])
    wait_until(lambda: dataplane.received > 20000, "the flood comes")
    dataplane.stop()
    assert dataplane.received == sum(dataplane.fates().values())
    dataplane.close()
    port.close()


# -- packets of our own


def test_canaries_pass_the_worker_that_they_are_for(make_road: MakeRoad) -> None:
    """Also under a flood, and whatever worker has their flow."""
    road = make_road(workers=3)
    road.apply(WORLD)
    came: list[Any] = []
    for _ in range(20):
        road.give([flow(i) for i in range(200)])
        for worker in range(3):
            road.dataplane.inject(bytes(ether(tcp())), worker)
        road.dataplane.step(road.now)
        road.take()
        came += iter(road.dataplane.collect, None)
    road.step()
    assert [one[0] for one in came] == [0, 1, 2] * 20
    assert {one[1] for one in came} == {"own_untracked"}
    assert {backend_address(one[4]) for one in came} == {BACKENDS["web1"]}
    assert road.dataplane.own == 60
