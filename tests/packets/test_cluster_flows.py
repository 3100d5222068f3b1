"""Whole datagrams over two nodes and several workers: each at the one backend that its flow has, whatever changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet

from packets.cluster import NODES6, Pair, client_of, in_cluster, owner, pieces, pieces6, spread
from packets.road import Road
from packets.world import CLIENT, VIP, VIP6, backend_address, ether, state, vip

MakeRoad = Callable[..., Road]

POOL = {f"b{i}": f"10.0.8.{i}" for i in range(1, 9)}
MANY = in_cluster(state(POOL, vip("dns", VIP, POOL, "udp", 80), vip("dns6", VIP6, POOL, "udp", 53)))
CLIENTS = [f"198.51.100.{number}" for number in range(1, 21)]
CLIENTS6 = [f"2001:db8:c::{number:x}" for number in range(1, 21)]


def inner_of(frame: bytes) -> bytes:
    return frame[14 + (20 if frame[12:14] == b"\x08\x00" else 40) + 4 :]


def datagram_of(frame: bytes) -> int:
    """The id of the datagram that a frame to a backend has a fragment of; the tests give each its own."""
    inner = inner_of(frame)
    return int.from_bytes(inner[4:6] if inner[0] >> 4 == 4 else inner[44:48], "big")


def backends_of(out: Iterable[bytes]) -> dict[int, set[str]]:
    """Where the fragments of each datagram went."""
    went: dict[int, set[str]] = {}
    for frame in out:
        went.setdefault(datagram_of(frame), set()).add(backend_address(frame))
    return went


def whole(source: str, sport: int) -> bytes:
    """A small datagram of the same flow, which no node sends on."""
    header = IPv6(src=source, dst=VIP6) if ":" in source else IP(src=source, dst=VIP, flags="DF")
    return bytes(ether(header / UDP(sport=sport, dport=53 if ":" in source else 80) / b"small"))


@pytest.mark.parametrize("outer", [4, 6])
@pytest.mark.parametrize("workers", [1, 2])
def test_500_shuffled_datagrams_over_two_nodes(make_road: MakeRoad, workers: int, outer: int) -> None:
    """Each fragment comes to any node, and what one node sends to the other comes late."""
    dice = random.Random(workers)
    message = MANY if outer == 4 else {**MANY, "cluster": NODES6}
    pair = Pair(make_road, message, workers=workers, pool=16384)
    flows = {n: ((CLIENTS + CLIENTS6)[n % 40], 1024 + n) for n in range(1, 501)}
    packets: list[Packet] = []
    for number, (source, sport) in flows.items():
        packets += (pieces6 if ":" in source else pieces)(sport, number=number, src=source)
    out = pair.send(spread(packets, dice), dice)
    assert sorted(inner_of(frame) for frame in out) == sorted(map(bytes, packets))  # all of them, whole and once
    went = backends_of(out)
    for number, flow in flows.items():
        at_the_nodes = {backend_address(road.send(whole(*flow))[0]) for road in pair.roads.values()}
        assert went[number] == at_the_nodes
    reasons = pair.reasons()
    assert reasons["fragment_to_node"] == pair.between > 500
    assert (reasons["fragment_first"], reasons["fragment_later"]) == (500, len(packets) - 500)
    assert {backend for (backend,) in went.values()} == set(POOL.values())


def test_when_the_nodes_do_not_agree_nothing_goes_round_in_circles(make_road: MakeRoad) -> None:
    """Each takes another for the one that has the client's fragments: it is one hop and no more."""
    pair = Pair(make_road, MANY)
    three = {**MANY["cluster"], "lb3": "10.0.2.7"}
    pair.roads["lb2"].apply(in_cluster(MANY, three))
    source = next(c for c in CLIENTS if owner(c, VIP, 17) == "lb2" != owner(c, VIP, 17, tuple(three)))
    packets = [part for number in range(1, 60) for part in pieces(1024 + number, number=number, src=source)]
    out = pair.send([("lb1", bytes(ether(packet))) for packet in packets], random.Random(5))
    assert sorted(inner_of(frame) for frame in out) == sorted(map(bytes, packets))
    assert pair.reasons()["fragment_to_node"] == pair.between == len(packets)


def test_a_client_with_affinity_keeps_its_backend(make_road: MakeRoad) -> None:
    affine = in_cluster(state(POOL, vip("dns", VIP, POOL, "udp", 80, affinity="client")))
    dice = random.Random(1)
    pair = Pair(make_road, affine, workers=2)
    for source in CLIENTS[:8]:
        packets = [part for n in range(1, 20) for part in pieces(1024 + n, number=n, src=source)]
        out = pair.send(spread(packets, dice), dice)
        assert len(out) == len(packets)
        (backend,) = {backend_address(frame) for frame in out}
        assert {backend_address(road.send(whole(source, 9))[0]) for road in pair.roads.values()} == {backend}


# -- what was there before, and what changes meanwhile

SPORTS = range(5000, 5040)
FEWER = {name: POOL[name] for name in ("b1", "b2")}


def with_pool(*names: str, status: str = "up") -> dict[str, object]:
    members = [[name, 100, status] for name in names]
    return state({name: POOL[name] for name in names}, vip("dns", VIP, members, "udp", 80))


def first_and_later(road: Road, sport: int, number: int) -> set[str]:
    """Where a datagram's fragments go, the later ones first."""
    parts = pieces(sport, number=number)
    out = road.send(*(bytes(ether(part)) for part in reversed(parts)))
    assert len(out) == len(parts)
    return {backend_address(frame) for frame in out}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_old_flow_stays_with_its_backend_when_the_pool_changes(make_road: MakeRoad, workers: int) -> None:
    road = make_road(workers=workers)
    road.apply(with_pool(*POOL))
    before = {sport: backend_address(road.send(whole(CLIENT, sport))[0]) for sport in SPORTS}
    road.apply(with_pool("b1", "b2"))
    for number, sport in enumerate(SPORTS, 1):
        assert first_and_later(road, sport, number) == {before[sport]}
    for number, sport in enumerate(range(6000, 6040), 100):
        assert first_and_later(road, sport, number) <= set(FEWER.values())


def test_a_reload_between_first_and_later_changes_nothing_for_them(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(with_pool(*POOL))
    parts = {sport: [bytes(ether(part)) for part in pieces(sport, number=sport)] for sport in SPORTS}
    went = {sport: backend_address(road.send(parts[sport][0])[0]) for sport in SPORTS}
    for message in (with_pool("b1", "b2"), with_pool(*POOL, status="drain"), with_pool(*POOL)):
        road.apply(message)
        for sport in SPORTS:
            assert {backend_address(frame) for frame in road.send(*parts[sport][1:])} == {went[sport]}


def test_when_the_backend_is_down_the_later_ones_go_where_the_flow_goes(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(with_pool("b1"))
    first, middle, last = (bytes(ether(part)) for part in pieces())
    assert backend_address(road.send(first)[0]) == POOL["b1"]
    two = state(POOL, vip("dns", VIP, [["b1", 100, "down"], ["b2", 100, "up"]], "udp", 80))
    road.apply(two)
    assert backend_address(road.send(middle)[0]) == POOL["b2"]
    assert backend_address(road.send(whole(CLIENT, 5000))[0]) == POOL["b2"]
    assert backend_address(road.send(last)[0]) == POOL["b2"]


def test_without_a_backend_all_fragments_are_dropped_for_that_reason(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(with_pool(*POOL, status="drain"))
    assert road.fates_of(*(bytes(ether(part)) for part in reversed(pieces()))) == {"no_backend": 3}
    road.apply(with_pool())
    assert road.fates_of(*(bytes(ether(part)) for part in pieces(number=2))) == {"no_backend": 3}


def test_old_flows_go_on_when_every_backend_drains(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(with_pool(*POOL))
    before = {sport: backend_address(road.send(whole(CLIENT, sport))[0]) for sport in SPORTS}
    road.apply(with_pool(*POOL, status="drain"))
    for number, sport in enumerate(SPORTS, 1):
        assert first_and_later(road, sport, number) == {before[sport]}


def test_fragments_wait_through_a_reload(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(with_pool(*POOL))
    first, middle, last = (bytes(ether(part)) for part in pieces())
    road.send(last, middle)
    assert road.dataplane.held == 2
    road.apply(with_pool("b1", "b2"))
    assert len({backend_address(frame) for frame in road.send(first)}) == 1
    assert road.fates() == {"fragment": 3}


def test_a_vip_that_goes_while_fragments_wait(make_road: MakeRoad) -> None:
    """They are given up; the first one, too late, is nobody's, and so are those behind it."""
    road = make_road()
    road.apply(with_pool(*POOL))
    first, middle, last = (bytes(ether(part)) for part in pieces())
    road.send(middle)
    road.apply(state({}))
    assert road.fate_of(first) == "not_vip"
    assert road.fate_of(last) == "not_vip"
    road.outwait_fragments()
    assert road.fates() == {"not_vip": 2, "fragment_unmatched": 1}
    road.apply(with_pool(*POOL))
    assert len(road.send(first, last)) == 2


def test_a_vip_that_is_back_in_time(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(with_pool(*POOL))
    first, middle, last = (bytes(ether(part)) for part in pieces())
    road.send(middle)
    road.apply(state({}))
    road.apply(with_pool(*POOL))
    assert len(road.send(first, last)) == 3


def test_fragments_that_wait_at_a_node_that_loses_their_hosts(make_road: MakeRoad) -> None:
    """A reload makes them another node's: the first one goes there, those that wait are given up."""
    road = make_road()
    road.apply(state(POOL, vip("dns", VIP, POOL, "udp", 80)))
    first, middle, _ = (bytes(ether(part)) for part in pieces(src=client_of("lb2")))
    road.send(middle)
    road.apply(MANY)
    road.send(first)
    road.outwait_fragments()
    assert {reason: n for reason, n in road.dataplane.reasons().items() if n} == {
        "fragment_to_node": 1,
        "fragment_late": 1,
    }


# -- on lcores


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_on_lcores_while_states_come_and_go(make_road: MakeRoad, workers: int) -> None:
    """500 datagrams in any order; each lcore follows the states by itself."""
    road = make_road(workers=workers, pool=16384, ring_size=4096)
    road.apply(MANY)
    clients = [client for client in CLIENTS if owner(client, VIP, 17) == "lb1"]
    packets = [
        part for n in range(1, 501) for part in pieces(1024 + n, number=n, src=clients[n % len(clients)], size=1600)
    ]
    frames = [bytes(ether(packet)) for packet in packets]
    random.Random(workers).shuffle(frames)
    out: list[bytes] = []
    road.start()
    for at in range(0, len(frames), 50):
        batch = frames[at : at + 50]
        while batch:
            batch = batch[road.give(batch) :]
            out += road.take()
        road.apply(MANY if at % 100 else {**MANY, "vips": MANY["vips"][:1]})
    out += road.take_all()
    assert sorted(inner_of(frame) for frame in out) == sorted(map(bytes, packets))
    assert all(len(backends) == 1 for backends in backends_of(out).values())
    assert road.fates() == {"fragment": len(packets)}


def test_on_lcores_those_that_wait_in_vain_are_given_up_by_the_clock(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(MANY)
    road.start()
    mine = client_of("lb1")
    for number in range(1, 50):
        road.give([bytes(ether(pieces(number=number, src=mine)[1]))])
    road.settle()
    assert road.fates() == {"fragment_unmatched": 49}
    assert road.dataplane.held == 0
