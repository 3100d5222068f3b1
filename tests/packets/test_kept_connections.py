"""Connections outlive their process: a road on the tables of one that was killed, with what was noted of them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from typing import Any

import pytest

from forwarder._dataplane import TABLE_LAYOUT, DataplaneError, table_bytes
from forwarder.table_ids import TableIds
from packets.road import Kept, Road, wait_until
from packets.world import ANY_PORT, EMPTY, TUNNEL, VIP, backend_address, ether, flow, member, state, udp, vip

THREE = {"b1": "10.0.3.2", "b2": "10.0.4.2", "b3": "10.0.5.2"}
SIX = {"b6": "fd00:3::2"}
NAMES = {address: name for name, address in {**THREE, **SIX}.items()}
FLOWS = 60
LONGEST = 86400


class Lives:
    """Roads one after the other on the same tables; each is killed at a moment of the test's choice."""

    def __init__(self, layout: str) -> None:
        self.layout = layout
        self.kept = Kept.new()
        self.road: Road | None = None

    def begin(self, after: int = 0, **options: Any) -> Road:
        """The next one, so many seconds after the kill."""
        now = self.now + after if self.road else 1000
        self.road = Road(kept=self.kept, now=now, layout=self.layout, **options)
        return self.road

    @property
    def now(self) -> int:
        assert self.road is not None
        return self.road.now

    def kill(self) -> Kept:
        """What is in memory at this moment is what the next one finds."""
        road, kept = self.road, self.kept.copy()
        assert road is not None
        road.verify()
        road.close()
        self.kept = kept
        return kept


@pytest.fixture
def lives(layout: str) -> Iterator[Lives]:
    lives = Lives(layout)
    yield lives
    if lives.road is not None:
        lives.kill()


def service(*names: str, **statuses: str) -> dict[str, Any]:
    """The vip with these backends up, and others in the state that is given."""
    members = [*names, *(member(name, 100, status) for name, status in statuses.items())]
    named = [*names, *statuses]
    return state({name: address for name, address in THREE.items() if name in named}, vip("www", VIP, members))


def homes(road: Road, flags: str = "A", flows: range = range(FLOWS)) -> dict[int, str]:
    """Which backend each flow goes to now."""
    return {i: NAMES[backend_address(road.send(flow(i, flags=flags))[0])] for i in flows}


def flows_of(road: Road) -> dict[str, int]:
    return {name: counts["flows"] for name, counts in road.forwarding.traffic()[1].items()}


# -- what is kept


def test_every_flow_keeps_its_backend_whatever_the_table_says_now(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    before = homes(road, "S")
    lives.kill()
    road = lives.begin()
    assert road.whole
    assert road.connections() == FLOWS
    road.apply(service("b1", "b2", "b3"))
    assert homes(road) == before
    assert road.fates() == {"conn_hit": FLOWS}
    assert "b3" in homes(road, "S", range(1000, 1100)).values()


def test_flows_are_known_before_the_first_state_and_nothing_is_reaped(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    before = homes(road, "S")
    lives.kill()
    road = lives.begin()
    counted = {name: list(before.values()).count(name) for name in ("b1", "b2")}
    assert flows_of(road) == counted
    road.forwarding.reap()
    road.forwarding.follow_next_hops()
    assert road.forwarding.applied.digest is None
    assert flows_of(road) == counted
    assert road.fate_of(flow(0, flags="A")) == "not_vip"
    road.apply(service("b3"))
    assert homes(road) == before, "both have left, and drain"


def test_states_age_and_closing_ones_go_as_they_would_have(lives: Lives) -> None:
    """Established and half-open flows, and one that said FIN, over a pause of eleven seconds."""
    road = lives.begin()
    road.apply(service("b1", "b2"))
    homes(road, "S")
    road.now += 1
    homes(road, "A", range(10))
    homes(road, "FA", range(10, 20))
    assert road.connections() == FLOWS
    lives.kill()
    road = lives.begin(after=11)
    assert road.connections() == 10
    road.apply(service("b1", "b2"))
    assert set(road.fates_of(*(flow(i, flags="A") for i in range(10)))) == {"conn_hit"}
    assert set(road.fates_of(*(flow(i, flags="A") for i in range(10, 20)))) == {"hash_new"}


def test_killed_twice_before_any_state(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2", "b3"))
    before = homes(road, "S")
    for _ in range(3):
        lives.kill()
        road = lives.begin()
    road.apply(service("b1"))
    assert homes(road) == before


def test_a_table_that_nobody_had_for_too_long_is_empty(lives: Lives) -> None:
    road = lives.begin(seconds=(LONGEST,) * 4)
    road.apply(service("b1"))
    homes(road, "S")
    lives.kill()
    road = lives.begin(after=LONGEST, seconds=(LONGEST,) * 4)
    assert road.connections() == FLOWS
    lives.kill()
    road = lives.begin(after=1 << 20, seconds=(LONGEST,) * 4)
    assert road.whole
    assert road.connections() == 0, "the clock in the entries has come round"


def test_tables_of_several_workers(lives: Lives) -> None:
    options: dict[str, Any] = {"workers": 3, "connections": 6000}
    lives.kept = Kept.new(**options)
    road = lives.begin(**options)
    road.apply(service("b1", "b2", "b3"))
    before = homes(road, "S")
    live = [road.dataplane.worker(i)["live"] for i in range(3)]
    lives.kill()
    road = lives.begin(**options)
    assert [road.dataplane.worker(i)["live"] for i in range(3)] == live
    assert min(live) > 5
    road.apply(service("b1"))
    assert homes(road) == before


def test_udp_flows(lives: Lives) -> None:
    road = lives.begin()
    road.apply(state(THREE, vip("dns", VIP, ["b1"], "udp")))
    questions = [bytes(ether(udp(VIP, 1000 + i, 80))) for i in range(20)]
    assert road.fates_of(*questions) == {"hash_new": 20}
    lives.kill()
    road = lives.begin(after=60)
    road.apply(state(THREE, vip("dns", VIP, ["b2"], "udp")))
    assert {NAMES[backend_address(out)] for out in road.send(*questions)} == {"b1"}


# -- backends that left, went down, or have another's number


def test_a_backend_that_was_removed_just_before_keeps_its_flows(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    before = homes(road, "S")
    road.apply(service("b2"))
    lives.kill()
    road = lives.begin()
    road.apply(service("b2"))
    assert homes(road) == before
    road.forwarding.reap()
    assert homes(road) == before
    assert set(homes(road, "S", range(1000, 1050)).values()) == {"b2"}
    assert road.forwarding.flush("b1")
    assert set(homes(road).values()) == {"b2"}
    road.forwarding.reap()
    assert set(flows_of(road)) == {"b2"}, "its number was given back"


def test_a_backend_that_was_down_has_no_flows_afterwards(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    homes(road, "S")
    road.apply(service("b2", b1="down"))
    lives.kill()
    road = lives.begin()
    road.apply(service("b2"))
    assert set(homes(road).values()) == {"b2"}


def test_a_backend_that_is_down_in_the_first_state_loses_its_flows(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    homes(road, "S")
    lives.kill()
    road = lives.begin()
    road.apply(service("b2", b1="down"))
    assert set(homes(road).values()) == {"b2"}


def test_a_draining_backend_goes_on_draining(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    before = homes(road, "S")
    road.apply(service("b2", b1="drain"))
    lives.kill()
    road = lives.begin()
    road.apply(service("b2", b1="drain"))
    assert homes(road) == before


def test_a_number_that_is_used_again_never_inherits(lives: Lives) -> None:
    """The tables of a moment before, with what was noted a moment after: b2 has the number of b1, not its flows."""
    road = lives.begin()
    road.apply(service("b1"))
    homes(road, "S")
    early = lives.kept.copy()
    road.apply(service("b3"))
    assert road.forwarding.flush("b1")
    road.forwarding.reap()
    road.apply(service("b2", "b3"))
    ids = lives.kept.ids
    lives.kill()
    numbers = {name: held for (name, _), held in ids.backends.items()}
    assert numbers["b2"] == (0, 2), "b1 was number 0, generation 1"
    lives.kept = Kept(early.tables, ids)
    road = lives.begin()
    assert road.connections() == 0
    road.apply(service("b2", "b3"))
    assert road.fate_of(flow(0, flags="A")) == "hash_new"


def test_numbers_go_on_where_they_were(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    homes(road, "S")
    held = lives.kill().ids
    road = lives.begin()
    road.apply(service("b1", "b2", "b3"))
    now = lives.kept.ids
    assert held.backends.items() < now.backends.items()
    assert now.vips == held.vips
    assert now.backends["b3", next(a for n, a in now.backends if n == "b3")] == (2, 1)


def test_a_vip_that_was_removed_ends_and_another_inherits_nothing(lives: Lives) -> None:
    road = lives.begin()
    road.apply(state(THREE, vip("www", VIP, ["b1"]), vip("api", ANY_PORT, ["b2"])))
    road.send(*(flow(i) for i in range(20)))
    road.apply(state(THREE, vip("api", ANY_PORT, ["b2"])))
    lives.kill()
    road = lives.begin()
    road.apply(state(THREE, vip("new", EMPTY, ["b2"]), vip("api", ANY_PORT, ["b2"]), vip("www", VIP, ["b2"])))
    assert road.fates_of(*(flow(i, EMPTY) for i in range(20))) == {"hash_new": 20}
    assert set(homes(road).values()) == {"b2"}, "the vip came back without its old flows"


def test_flows_of_unknown_numbers_are_gone(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1", "b2"))
    homes(road, "S")
    kept = lives.kill()
    lives.kept = Kept(kept.tables)
    road = lives.begin()
    assert road.whole
    assert road.connections() == 0


def test_a_family_without_a_tunnel_source_any_more_is_let_go(lives: Lives) -> None:
    both = {"b1": THREE["b1"], **SIX}
    road = lives.begin()
    road.apply(state(both, vip("www", VIP, both)))
    before = homes(road, "S")
    assert set(before.values()) == {"b1", "b6"}
    lives.kill()
    road = lives.begin(sources={4: TUNNEL})
    road.apply(service("b1"))
    assert set(homes(road).values()) == {"b1"}


# -- killed at a bad moment


class Killed(Exception):
    pass


def test_killed_after_the_note_and_before_the_state(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flows are those of the old state, the numbers those of the new one."""
    road = lives.begin()
    road.apply(service("b1", "b2"))
    before = homes(road, "S")
    note = lives.kept.note

    def note_and_die(ids: TableIds) -> None:
        note(ids)
        raise Killed

    monkeypatch.setattr(road.forwarding, "_note", note_and_die)
    with pytest.raises(Killed):
        road.apply(service("b2", "b3"))
    lives.kill()
    assert {name for name, _ in lives.kept.ids.backends} == {"b1", "b2", "b3"}
    road = lives.begin()
    road.apply(service("b2", "b3"))
    assert homes(road) == before


def test_nothing_is_published_before_it_is_noted(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    road = lives.begin()
    order = []

    def note(ids: TableIds) -> None:
        order.append((road.fate_of(flow(0)), sorted(name for name, _ in ids.backends)))

    monkeypatch.setattr(road.forwarding, "_note", note)
    road.apply(service("b1", "b2"))
    assert order == [("not_vip", ["b1", "b2"])]
    assert road.fate_of(flow(0)) == "hash_new"


def test_damaged_tables_are_told_and_empty(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1"))
    homes(road, "S")
    kept = lives.kill()
    kept.tables[0][-64:-60] = struct.pack("=I", TABLE_LAYOUT + 1)
    road = lives.begin()
    assert not road.whole
    assert road.connections() == 0
    road.apply(service("b1"))
    assert road.fate_of(flow(0)) == "hash_new"


def test_one_damaged_table_empties_all(lives: Lives) -> None:
    lives.kept = Kept.new(workers=2, connections=6000)
    road = lives.begin(workers=2, connections=6000)
    road.apply(service("b1"))
    homes(road, "S")
    kept = lives.kill()
    kept.tables[1][-64:] = bytes(64)
    road = lives.begin(workers=2, connections=6000)
    assert not road.whole
    assert road.connections() == 0


# -- the data plane by itself


def test_the_clock_of_a_running_worker_is_the_machines(lives: Lives) -> None:
    """Layout, buckets and clock stand at the end of the table."""
    up = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    lives.road = Road(kept=lives.kept, now=up, layout=lives.layout)
    lives.road.start()

    def clock() -> int:
        return int(struct.unpack_from("=3I", lives.kept.tables[0], table_bytes(16384) - 64)[2])

    wait_until(lambda: clock() > up, "the clock has moved")
    assert clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    wait_until(lambda: clock() > up + 1, "the clock has moved again")
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - clock() < 2.5


def test_a_stepped_clock_goes_on_from_where_it_is_when_stages_start(lives: Lives) -> None:
    road = lives.begin()
    road.apply(service("b1"))
    homes(road, "S")
    road.start()
    road.give(flow(i, flags="A") for i in range(FLOWS))
    assert len(road.take_all()) == FLOWS
    assert road.fates() == {"hash_new": FLOWS, "conn_hit": FLOWS}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([], "one connection table for each worker"),
        ([mmap(-1, table_bytes(16384))] * 2, "one connection table for each worker"),
        ([mmap(-1, table_bytes(16384) - 4096)], "writable bytes, 64-byte aligned"),
        ([memoryview(mmap(-1, 1 << 20))[4:]], "writable bytes, 64-byte aligned"),
        ([mmap(-1, 1 << 20, access=ACCESS_READ)], "writable bytes, 64-byte aligned"),
    ],
    ids=["none", "too many", "too small", "unaligned", "read-only"],
)
def test_tables_that_do_not_fit_are_refused(tables: list[Any], words: str) -> None:
    kept = Kept(tables)
    with pytest.raises(ValueError, match=words):
        Road(kept=kept)


def test_memory_in_use_cannot_be_unmapped_and_tables_in_use_not_taken_over(lives: Lives) -> None:
    road = lives.begin()
    with pytest.raises(BufferError):
        lives.kept.tables[0].close()
    road.start()
    with pytest.raises(DataplaneError):
        road.dataplane.take_over({}, [], 1)
