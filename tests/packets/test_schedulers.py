"""Vips of every scheduler: new flows go where the scheduler's table says, and old ones stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

import pytest

from forwarder.hashing import slot_table, twin
from forwarder.hashing.slot_table import SCHEDULERS
from packets.road import Road
from packets.world import CLIENT, CLIENT6, HASH_KEY, VIP, VIP6, backend_address, flow, member, state, vip

FIVE = {f"b{i}": f"10.0.{i}.2" for i in range(1, 6)}
NAMES = {address: name for name, address in FIVE.items()}
WEIGHTS = {"b1": 100, "b2": 100, "b3": 50, "b4": 300, "b5": 0}
PORTS = {scheduler: 8001 + number for number, scheduler in enumerate(SCHEDULERS)}
FLOWS = 300


def owner(scheduler: str, number: int, weights: Mapping[str, int], size: int, dst: str = VIP) -> str:
    """The backend that the scheduler's table has for a flow of world.flow(), by the twin of the hash."""
    table = slot_table.build(weights, size, scheduler)
    addresses = ip_address(CLIENT6 if ":" in dst else CLIENT).packed, ip_address(dst).packed
    hashed = twin.flow_hash(HASH_KEY, *addresses, 1024 + number, PORTS[scheduler], 6)
    return table.names[table.slots[(hashed >> 32) % size]]


def by(scheduler: str, weights: Mapping[str, int] = WEIGHTS, size: int = 1021, dst: str = VIP) -> dict[str, Any]:
    """A vip with that scheduler, on a port of its own."""
    members = [member(name, weight) for name, weight in weights.items()]
    made = vip(f"{scheduler} {dst}", dst, members, port=PORTS[scheduler], table_size=size)
    return {**made, "scheduler": scheduler}


def backends_of(road: Road, *frames: bytes) -> list[str]:
    """Names of the backends that got these frames, all of which must be forwarded."""
    out = road.send(*frames)
    assert len(out) == len(frames), road.fates()
    return [NAMES[backend_address(frame)] for frame in out]


@pytest.mark.parametrize("dst", [VIP, VIP6])
def test_new_flows_of_each_vip_go_where_its_scheduler_s_table_says(road: Road, dst: str) -> None:
    road.apply(state(FIVE, *(by(scheduler, dst=dst) for scheduler in SCHEDULERS)))
    chosen = {}
    for scheduler in SCHEDULERS:
        frames = [flow(number, dst, PORTS[scheduler]) for number in range(FLOWS)]
        chosen[scheduler] = backends_of(road, *frames)
        assert chosen[scheduler] == [owner(scheduler, number, WEIGHTS, 1021, dst) for number in range(FLOWS)]
        counts = Counter(chosen[scheduler])
        assert set(counts) == {"b1", "b2", "b3", "b4"}
        assert counts["b4"] == max(counts.values())
    assert road.fates() == {"hash_new": FLOWS * len(SCHEDULERS)}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("size", [2, 7, 65537])
def test_tables_of_any_size_are_followed(road: Road, scheduler: str, size: int) -> None:
    weights = dict.fromkeys(FIVE, 100)
    road.apply(state(FIVE, by(scheduler, weights, size)))
    chosen = backends_of(road, *(flow(number, dport=PORTS[scheduler]) for number in range(FLOWS)))
    assert chosen == [owner(scheduler, number, weights, size) for number in range(FLOWS)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_old_flows_stay_while_backends_come_and_go(road: Road, scheduler: str) -> None:
    some = dict.fromkeys(("b1", "b2", "b3"), 100)
    road.apply(state(FIVE, by(scheduler, some)))
    before = backends_of(road, *(flow(number, dport=PORTS[scheduler]) for number in range(FLOWS)))
    for weights in ({**some, "b4": 100, "b5": 100}, {**some, "b1": 0}, some):
        road.apply(state(FIVE, by(scheduler, weights)))
        old = [flow(number, dport=PORTS[scheduler], flags="A") for number in range(FLOWS)]
        assert backends_of(road, *old) == before
    assert road.fates() == {"hash_new": FLOWS, "conn_hit": 3 * FLOWS}


def test_another_scheduler_is_another_state_and_new_flows_follow_it(road: Road) -> None:
    """Old ones go on by the connection table."""
    port = PORTS["maglev"]
    digests = set()
    for turn, scheduler in enumerate(SCHEDULERS):
        road.apply(state(FIVE, {**by(scheduler), "name": "www", "port": port}))
        digests.add(road.forwarding.applied.digest)
        table = slot_table.build(WEIGHTS, 1021, scheduler)
        for number in range(turn * 100, turn * 100 + 100):
            hashed = twin.flow_hash(
                HASH_KEY, ip_address(CLIENT).packed, ip_address(VIP).packed, 1024 + number, port, 6
            )
            expected = table.names[table.slots[(hashed >> 32) % 1021]]
            assert backends_of(road, flow(number, dport=port)) == [expected]
            assert backends_of(road, flow(number, dport=port, flags="A")) == [expected]
    assert len(digests) == len(SCHEDULERS)


def test_two_nodes_that_learned_in_other_orders_choose_alike(make_road: Callable[..., Road]) -> None:
    """One knew other members before; the other one is new, and is told vips and members backwards."""
    first, second = make_road(), make_road(node="lb2")
    first.apply(state(FIVE, *(by(scheduler, {"b2": 7, "b5": 100}) for scheduler in SCHEDULERS)))
    first.apply(state(FIVE, *(by(scheduler) for scheduler in SCHEDULERS)))
    backwards = dict(reversed(WEIGHTS.items()))
    turned = dict(reversed(FIVE.items()))
    second.apply(state(turned, *(by(scheduler, backwards) for scheduler in reversed(SCHEDULERS))))
    assert first.forwarding.applied.digest == second.forwarding.applied.digest
    for scheduler in SCHEDULERS:
        frames = [flow(number, dport=PORTS[scheduler]) for number in range(FLOWS)]
        assert backends_of(first, *frames) == backends_of(second, *frames)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_nobody_takes_new_flows_with_any_scheduler(road: Road, scheduler: str) -> None:
    road.apply(state(FIVE, by(scheduler, dict.fromkeys(FIVE, 0))))
    assert road.fates_of(*(flow(number, dport=PORTS[scheduler]) for number in range(50))) == {"no_backend": 50}
