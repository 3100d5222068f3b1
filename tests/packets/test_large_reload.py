"""A thousand vips over a hundred pools of a hundred backends each, reloaded under a hundred thousand live flows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from forwarder.hashing import slot_table
from packets.road import AT_ONCE, Road
from packets.world import backend_address, ether, state, tcp, vip

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # some ten times slower
VIPS, POOLS, EACH = (100, 10, 100) if SANITIZED else (1000, 100, 100)
FLOWS = 10_000 if SANITIZED else 100_000


def address(number: int) -> str:
    return f"192.0.{2 + number // 250}.{1 + number % 250}"


def pool(number: int) -> dict[str, str]:
    return {f"p{number}-b{b}": f"10.{10 + number // 250}.{number % 250}.{b + 1}" for b in range(EACH)}


def services(pools: Mapping[int, Mapping[str, str]], weights: Mapping[str, int] | None = None) -> dict[str, Any]:
    weights = weights or {}
    members = {n: [[name, weights.get(name, 100), "up"] for name in backends] for n, backends in pools.items()}
    every = {name: where for backends in pools.values() for name, where in backends.items()}
    return state(every, *(vip(f"v{n}", address(n), members[n % POOLS], table_size=509) for n in range(VIPS)))


def frames(flags: str) -> Iterator[bytes]:
    """The next packet of every flow: a hundred clients' ports to each vip."""
    for number in range(VIPS):
        frame = bytearray(bytes(ether(tcp(dst=address(number), flags=flags))))
        for port in range(FLOWS // VIPS):
            frame[34:36] = (20_000 + port).to_bytes(2, "big")
            yield bytes(frame)


def homes(road: Road, flags: str) -> list[str]:
    """Where the next packet of each flow goes, in order."""
    found: list[str] = []
    batch: list[bytes] = []
    for frame in frames(flags):
        batch.append(frame)
        if len(batch) == AT_ONCE:
            found += map(backend_address, road.send(*batch))
            batch.clear()
    return found + [*map(backend_address, road.send(*batch))] if batch else found


@pytest.mark.layout("software")  # tables, states and the worker's decisions are the same in both
def test_only_flows_that_must_move_do_and_only_the_changed_pool_s_table_is_built(
    make_road: Callable[..., Road], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    build = slot_table.build

    def count_build(weights: Mapping[str, int], size: int, scheduler: str) -> slot_table.Table:
        built.append(len(weights))
        return build(weights, size, scheduler)

    monkeypatch.setattr(slot_table, "build", count_build)
    pools = {n: pool(n) for n in range(POOLS)}
    road = make_road(connections=4 * FLOWS)
    road.apply(services(pools))
    assert len(built) == POOLS, "a table for each pool, however many vips have it"
    before = homes(road, "S")
    road.now += 1
    assert homes(road, "A") == before

    built.clear()
    road.apply(services(pools))
    assert built == [], "nothing has changed"
    left = pools[7].pop("p7-b3")
    pools[7]["p7-new"] = "10.99.0.1"
    road.apply(services(pools, {"p7-b5": 50}))
    assert built == [EACH], "the one pool's"
    assert homes(road, "A") == before, "a backend that left keeps its flows"

    pools[7]["p7-b3"] = left
    down = services(pools, {"p7-b5": 50})
    for service in down["vips"]:
        for one in service["members"]:
            if one[0] == "p7-b3":
                one[2] = "down"
    road.apply(down)
    after = homes(road, "A")
    moved = [was for was, becomes in zip(before, after, strict=True) if was != becomes]
    assert set(moved) == {left}, "those of the dead one"
    assert len(moved) == before.count(left)
    assert road.fates()["conn_hit"] + road.fates()["hash_new"] == 4 * FLOWS, "every packet has its fate"
