"""A backend that goes or comes back: only the tables that it is in are built again, and nothing waits for them."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from forwarder import _hashing
from forwarder.hashing import slot_table
from packets.road import Road
from packets.world import VIP, ether, member, state, tcp, vip

POOLS = {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"], "c": ["c1", "c2"], "both": ["a1", "a2", "a3", "b1", "b2"]}
ADDRESSES = {name: f"10.0.{ord(name[0])}.{name[1]}" for pool in "abc" for name in POOLS[pool]}
LARGE = 655373


def flapped(down: str | None = None, table_size: int = 251) -> dict[str, Any]:
    """Two vips for each pool, and one backend down."""
    return state(
        ADDRESSES,
        *(
            vip(
                f"{pool}{port}",
                VIP,
                [member(name, 100, "down" if name == down else "up") for name in POOLS[pool]],
                port=1000 * number + port,
                table_size=table_size,
            )
            for number, pool in enumerate(POOLS)
            for port in (80, 443)
        ),
    )


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of each table that was filled or renumbered, in order."""
    calls: list[str] = []
    build, renumber = slot_table.build, _hashing.renumber

    def count_build(weights: Mapping[str, int], size: int, scheduler: str) -> slot_table.Table:
        calls.append(" ".join(sorted(weights)))
        return build(weights, size, scheduler)

    def count_renumber(slots: Any, owners: Any) -> Any:
        calls.append(f"renumber {len(owners)}")
        return renumber(slots, owners)

    monkeypatch.setattr(slot_table, "build", count_build)
    monkeypatch.setattr(_hashing, "renumber", count_renumber)
    return calls


def test_a_table_is_made_once_for_all_vips_of_a_pool(make_road: Callable[..., Road], built: list[str]) -> None:
    make_road().apply(flapped())
    assert sorted(built) == sorted(
        ["a1 a2 a3", "b1 b2", "c1 c2", "a1 a2 a3 b1 b2", "renumber 3", "renumber 2", "renumber 2", "renumber 5"]
    )


@pytest.mark.parametrize(
    ("down", "tables"),
    [
        ("c2", ["c1", "renumber 1"]),
        ("a2", ["a1 a3", "a1 a3 b1 b2", "renumber 2", "renumber 4"]),
    ],
)
def test_a_flap_makes_the_tables_it_is_in_and_no_other(
    make_road: Callable[..., Road], built: list[str], down: str, tables: list[str]
) -> None:
    road = make_road()
    road.apply(flapped())
    built.clear()
    road.apply(flapped(down))
    assert sorted(built) == sorted(tables)


def test_an_equal_state_and_what_the_kernel_says_make_none(make_road: Callable[..., Road], built: list[str]) -> None:
    road = make_road()
    road.apply(flapped())
    built.clear()
    road.apply(flapped())
    road.forwarding.follow_next_hops()
    road.forwarding.reap()
    assert built == []


async def test_the_event_loop_goes_on_while_large_tables_are_built(make_road: Callable[..., Road]) -> None:
    road = make_road()
    road.apply(flapped(table_size=LARGE))
    quietest = 1.0
    for down in ("a1", "a2", "a3", "b1", "b2"):
        building = asyncio.create_task(asyncio.to_thread(road.forwarding.prepare, flapped(down, LARGE)))
        began = last = time.perf_counter()
        longest = 0.0
        while not building.done():
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        quietest = min(quietest, longest / (last - began))
        road.forwarding.apply(await building)
    assert quietest < 0.5  # of the time that it took to build them; without the GIL's release it would be nearly all


def test_packets_are_forwarded_while_large_tables_are_built(make_road: Callable[..., Road]) -> None:
    road = make_road()
    road.apply(flapped(table_size=LARGE))
    road.start()
    sports = itertools.count(1024)
    forwarded = 0
    for down in ("a1", "a2", "a3", "b1", "b2"):
        building = threading.Thread(target=road.forwarding.prepare, args=(flapped(down, LARGE),))
        before = road.dataplane.fates()["hash_new"]
        building.start()
        while building.is_alive():
            forwarded = max(forwarded, road.dataplane.fates()["hash_new"] - before)
            road.give([bytes(ether(tcp(VIP, sport=next(sports))))])
            road.take()
        building.join()
    assert forwarded > 0
    road.take_all()
    assert road.dataplane.fates()["hash_new"] == next(sports) - 1024
