"""`load_bound`: new flows leave a backend that has more than so many times its share; all others go as without it.

Who is over is seen once a second. The tests step the clock, and open flows on a chosen backend through the table.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP

from forwarder._dataplane import DataplaneError, State
from forwarder.hashing import flow as hashing
from forwarder.hashing import slot_table
from packets.captures import NANOSECONDS, START, pcap
from packets.road import End, Kept, Road
from packets.test_explain import CONFIG, command, run
from packets.world import CLIENT, HASH_KEY, TUNNEL, VIP, VIP6, backend_address, ether, flow, member, state, vip

MakeRoad = Callable[..., Road]

FOUR = {f"b{i}": f"10.0.1{i}.2" for i in range(1, 5)}
NAMES = {address: name for name, address in FOUR.items()}
FEW = 8
"""Flows that a backend may have whatever its share (csrc/load_bound.h)."""
PORTS = 64000
PER_SECOND = 40
HALF_OPEN, SWEEP = 10, 60  # seconds: an entry's timer, and a round of what takes expired ones out


def bounded(bound: float | None = 1.25, members: tuple[Any, ...] = tuple(FOUR), **options: Any) -> dict[str, Any]:
    """The vip with four backends; `bound` None: it has no load bound."""
    www = vip("www", VIP, list(members), **options)
    return state(FOUR, www if bound is None else {**www, "load_bound": bound})


@cache
def table(size: int = 251) -> slot_table.Table:
    return slot_table.build(dict.fromkeys(FOUR, 100), size)


@cache
def slot_of(number: int, size: int = 251) -> int:
    """The slot of the client's `number`th flow."""
    source, destination = ip_address(CLIENT).packed, ip_address(VIP).packed
    return (hashing.flow_hash(HASH_KEY, source, destination, 1024 + number, 80, 6) >> 32) % size


def choice(number: int) -> str:
    """The backend that the Maglev table has for it."""
    return table().names[table().slots[slot_of(number)]]


def past(number: int, *over: str) -> str:
    """Where it is led when these are over: the owner of the next slot on its way (0.618 * 251) that has another."""
    names = (table().names[table().slots[(slot_of(number) + 155 * step) % 251]] for step in range(251))
    return next(name for name in names if name not in over)


def flows_of(name: str, start: int = 0) -> Iterator[int]:
    """The client's flows, from one on, that the table has for a backend."""
    return (number for number in range(start, PORTS) if choice(number) == name)


def to(road: Road, *frames: bytes) -> list[str]:
    """The backends of these frames."""
    return [NAMES[backend_address(out)] for out in road.send(*frames)]


def reasons(road: Road, *frames: bytes) -> Counter[str]:
    before = road.dataplane.reasons()
    road.send(*frames)
    return Counter(
        {reason: n - before[reason] for reason, n in road.dataplane.reasons().items() if n != before[reason]}
    )


def over(road: Road) -> list[str]:
    found: list[str] = road.forwarding.load_bounds()["www"]["over"]
    return found


def live(road: Road) -> dict[str, int]:
    return {name: counts["flows"] for name, counts in road.forwarding.traffic()[1].items()}


def tick(road: Road) -> None:
    road.now += 1
    road.step()


def load(road: Road, name: str, flows: int = 40) -> list[int]:
    """Open flows that the table has for one backend, and let a second pass; returns them."""
    opened = list(islice(flows_of(name), flows))
    assert set(to(road, *map(flow, opened))) == {name}
    tick(road)
    return opened


@pytest.fixture
def loaded(make_road: MakeRoad) -> Road:
    """b1 has forty flows, the others none."""
    road = make_road(trace=True)
    road.apply(bounded())
    load(road, "b1")
    assert over(road) == ["b1"]
    return road


# -- what is led elsewhere


def test_new_flows_leave_a_backend_that_is_over_and_only_those(loaded: Road) -> None:
    loaded.ends()
    new = range(30000, 30300)
    assert to(loaded, *map(flow, new)) == [past(number, "b1") for number in new]
    deflected = [number for number in new if choice(number) == "b1"]
    assert 50 < len(deflected) < 100
    ends = list(loaded.ends().values())
    assert ends == [
        End("new_deflected" if number in deflected else "new_flow", "www", past(number, "b1")) for number in new
    ]
    assert live(loaded)["b1"] == 40
    assert loaded.fates() == {"hash_new": 340}, "a flow that is led elsewhere is a new flow as any other"


def test_what_one_gives_up_is_spread_over_all_others(loaded: Road) -> None:
    counts = Counter(to(loaded, *map(flow, islice(flows_of("b1", 20000), 300))))
    assert set(counts) == {"b2", "b3", "b4"}
    assert min(counts.values()) > 50, "not all to one neighbor"


def test_later_packets_of_a_flow_follow_its_entry(loaded: Road) -> None:
    number = next(flows_of("b1", 20000))
    (home,) = to(loaded, flow(number))
    assert home != "b1"
    for flags in ("S", "A", "PA", "FA", "A"):
        assert reasons(loaded, flow(number, flags=flags)) == {"known_flow": 1}
        assert to(loaded, flow(number, flags="A")) == [home]
        tick(loaded)
    loaded.apply(bounded(None))
    assert to(loaded, flow(number, flags="A")) == [home], "nor does it move when the bound is taken away"


def test_flows_that_are_there_stay(loaded: Road) -> None:
    opened = list(islice(flows_of("b1"), 40))
    for flags in ("A", "S", "FA", "R"):
        assert set(to(loaded, *(flow(number, flags=flags) for number in opened))) == {"b1"}


def test_a_syn_on_a_closing_flow_is_a_new_flow_and_led_elsewhere(loaded: Road) -> None:
    number = next(flows_of("b1"))
    assert to(loaded, flow(number, flags="FA"), flow(number)) == ["b1", past(number, "b1")]
    assert loaded.dataplane.reasons()["new_deflected"] == 1


def test_a_syn_whose_backend_is_down_is_led_past_those_that_are_over(loaded: Road) -> None:
    number = next(flows_of("b1"))
    rest = [member("b1", 100, "down"), *(member(name) for name in ("b2", "b3", "b4"))]
    loaded.apply(bounded(members=tuple(rest)))
    assert to(loaded, flow(number)) != ["b1"]
    assert over(loaded) == []


# -- what is not


@pytest.mark.parametrize("flags", ["A", "SA", "PA", "FA", "SF", "SR", "R", ""])
def test_only_a_syn_is_led_elsewhere(loaded: Road, flags: str) -> None:
    new = list(islice(flows_of("b1", 20000), 20))
    assert to(loaded, *(flow(number, flags=flags) for number in new)) == ["b1"] * 20
    assert loaded.dataplane.reasons()["new_deflected"] == 0


def test_an_error_about_an_unknown_flow_goes_by_the_table(loaded: Road) -> None:
    number = next(flows_of("b1", 20000))
    quote = bytes(IP(src=VIP, dst=CLIENT) / TCP(sport=80, dport=1024 + number))[:28]
    error = IP(src="203.0.113.1", dst=VIP) / ICMP(type=3, code=1) / quote
    assert reasons(loaded, bytes(ether(error))) == {"error_by_table": 1}
    assert loaded.forwarding.traffic()[1]["b1"]["packets"] == 41


def test_a_first_fragment_goes_by_the_table(loaded: Road) -> None:
    number = next(flows_of("b1", 20000))
    first = IP(src=CLIENT, dst=VIP, id=7, flags="MF") / TCP(sport=1024 + number, dport=80, flags="S") / bytes(44)
    assert reasons(loaded, bytes(ether(first))) == {"fragment_first": 1}
    assert live(loaded)["b1"] == 41


def test_what_cannot_be_remembered_goes_by_the_table(make_road: MakeRoad) -> None:
    """All entries are taken by established flows: a node that does not have the flow would send it there too."""
    road = make_road(connections=40)
    road.apply(bounded())
    load(road, "b1", 25)
    opened = list(islice(flows_of("b1"), 25))
    road.send(*(flow(number, flags="A") for number in opened))
    for number in range(1000, 1400):  # until no place is left
        road.send(flow(number))
        road.now += 1
        road.send(flow(number, flags="A"))
    assert road.dataplane.worker(0)["live"] == road.dataplane.worker(0)["entries"]
    held = over(road)
    assert "b1" in held
    new = list(islice(flows_of("b1", 20000), 50))
    before = live(road)
    assert reasons(road, *map(flow, new)) == {"table_full": 50}
    assert set(to(road, *map(flow, new))) == {"b1"}
    assert live(road) == before


def test_more_than_a_fair_share_goes_by_the_table(make_road: MakeRoad) -> None:
    road = make_road(connections=40)
    others = [vip(f"other{port}", VIP, ["b4"], port=port) for port in range(81, 85)]
    message = bounded()
    road.apply({**message, "vips": [*message["vips"], *others]})
    load(road, "b1", 31)
    assert over(road) == ["b1"]
    new = list(islice(flows_of("b1", 20000), 20))
    assert reasons(road, *map(flow, new)) == {"over_share": 20}
    assert set(to(road, *map(flow, new))) == {"b1"}


def test_a_packet_of_our_own_goes_by_the_table(loaded: Road) -> None:
    """So the canary needs not know who is over."""
    number = next(flows_of("b1", 20000))
    loaded.dataplane.inject(flow(number), 0)
    loaded.step()
    came = loaded.dataplane.collect()
    assert came is not None
    assert (came[1], loaded.forwarding.names()[1][came[3]]) == ("own_untracked", "b1")


def test_other_vips_of_the_same_backends_go_by_the_table(make_road: MakeRoad) -> None:
    road = make_road()
    message = bounded()
    road.apply({**message, "vips": [*message["vips"], vip("api", VIP, list(FOUR), port=81)]})
    load(road, "b1")
    assert set(road.forwarding.load_bounds()) == {"www"}
    assert reasons(road, *(flow(number, dport=81) for number in range(500))) == {"new_flow": 500}


def test_without_a_bound_nothing_is_led_elsewhere(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(bounded(None))
    load(road, "b1")
    assert road.forwarding.load_bounds() == {}
    assert set(to(road, *map(flow, islice(flows_of("b1", 20000), 50)))) == {"b1"}


def test_when_no_backend_takes_new_flows_there_is_none(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(bounded(members=()))
    tick(road)
    assert over(road) == []
    assert road.fate_of(flow(1)) == "no_backend"


# -- who is over, and from when on


def test_nobody_is_over_while_loads_are_equal(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(bounded(1.01))
    for name in FOUR:
        load(road, name, 50)
    assert over(road) == []
    assert reasons(road, *map(flow, range(20000, 20300))) == {"new_flow": 300}


def test_nobody_is_over_with_few_flows(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(bounded(1.01))
    load(road, "b1", FEW)
    assert over(road) == []
    road.send(flow(next(flows_of("b1", 20000))))
    tick(road)
    assert over(road) == ["b1"]


def test_it_is_seen_once_a_second(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(bounded())
    opened = list(islice(flows_of("b1"), 60))
    assert set(to(road, *map(flow, opened))) == {"b1"}, "until then the second's flows all go by the table"
    assert over(road) == []
    tick(road)
    assert over(road) == ["b1"]


def test_it_takes_flows_again_when_others_have_more(loaded: Road) -> None:
    for name in ("b2", "b3", "b4"):
        loaded.send(*map(flow, islice(flows_of(name), 40)))
    tick(loaded)
    assert over(loaded) == []
    assert set(to(loaded, *map(flow, islice(flows_of("b1", 20000), 10)))) == {"b1"}


def test_it_takes_flows_again_when_its_own_have_ended(loaded: Road) -> None:
    for _ in range(HALF_OPEN + SWEEP):
        loaded.now += 1
        for _ in range(4):  # turns that a second's share of the sweep takes
            loaded.step()
    assert live(loaded)["b1"] == 0
    assert over(loaded) == []


@pytest.mark.parametrize(("weight", "expected"), [(100, []), (33, ["b1"])])
def test_a_share_goes_by_the_weight(make_road: MakeRoad, weight: int, expected: list[str]) -> None:
    """40 of 80 flows are too many for a quarter of the weight, and not for a half."""
    road = make_road()
    road.apply(bounded(members=(member("b1", weight), member("b2"), member("b3", 0), member("b4", 0))))
    entries = slot_table.build({"b1": weight, "b2": 100}, 251)
    for name in ("b1", "b2"):
        numbers = (n for n in range(PORTS) if entries.names[entries.slots[slot_of(n)]] == name)
        assert set(to(road, *map(flow, islice(numbers, 40)))) == {name}
    tick(road)
    assert over(road) == expected


def test_a_new_state_begins_with_those_that_are_over_now(make_road: MakeRoad) -> None:
    """Also one that brings the first bound, before a second has passed."""
    road = make_road()
    road.apply(bounded(None))
    opened = load(road, "b1")
    road.apply(bounded())
    assert over(road) == ["b1"]
    number = next(flows_of("b1", 20000))
    assert to(road, flow(number)) == [past(number, "b1")]
    assert set(to(road, *(flow(n, flags="A") for n in opened))) == {"b1"}, "no flow was touched"
    road.apply(bounded(4))
    assert over(road) == []
    road.apply(bounded(None))
    assert to(road, flow(next(flows_of("b1", 30000)))) == ["b1"]


def test_a_forwarder_that_goes_on_with_kept_tables_knows_at_once(make_road: MakeRoad) -> None:
    kept = Kept.new()
    first = make_road(kept=kept)
    first.apply(bounded())
    load(first, "b1")
    second = make_road(kept=kept.copy(), node="again", now=first.now)
    second.apply(bounded())
    assert over(second) == ["b1"]


def test_the_flows_of_all_workers_are_counted(make_road: MakeRoad) -> None:
    road = make_road(workers=3)
    road.apply(bounded())
    load(road, "b1", 60)
    assert [road.dataplane.worker(i)["live"] > 0 for i in range(3)] == [True] * 3
    assert over(road) == ["b1"]
    assert "b1" not in to(road, *map(flow, islice(flows_of("b1", 20000), 30)))


def test_a_lookup_says_where_its_syn_would_go(loaded: Road) -> None:
    number, known = next(flows_of("b1", 20000)), next(flows_of("b1"))
    asked = ip_address(CLIENT), 1024 + number, ip_address(VIP), 80
    answer = loaded.forwarding.lookup(6, *asked)
    assert (answer.slot, answer.backend, answer.fate) == (slot_of(number), past(number, "b1"), "hash_new")
    assert to(loaded, flow(number)) == [answer.backend]
    assert loaded.forwarding.lookup(6, ip_address(CLIENT), 1024 + known, ip_address(VIP), 80).backend == "b1"


def test_ipv6(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(state(FOUR, {**vip("www", VIP6, list(FOUR)), "load_bound": 1.25}))
    assert set(to(road, *(flow(number, VIP6) for number in range(400)))) == set(FOUR)
    for name in ("b2", "b3", "b4"):
        road.forwarding.flush(name)
    tick(road)
    assert over(road) == ["b1"]
    assert set(to(road, *(flow(number, VIP6) for number in range(1000, 1400)))) == {"b2", "b3", "b4"}


# -- over time


def skewed(road: Road, bound: float | None) -> list[int]:
    """Flows of each backend after a minute in which nine of ten new flows have slots of b1. 800 are alive at last."""
    road.apply(bounded(bound))
    dice = random.Random(7)
    of_one, of_all = flows_of("b1"), iter(range(PORTS // 2, PORTS))
    alive: list[int] = []
    for _ in range(60):
        new = [next(of_one) if dice.random() < 0.9 else next(of_all) for _ in range(PER_SECOND)]
        road.send(*map(flow, new))
        alive += new
        tick(road)
        road.send(*(flow(number, flags="A") for number in alive))
        ending = [alive.pop(dice.randrange(len(alive))) for _ in range(len(alive) - 800)]
        road.send(*(flow(number, flags="FA") for number in ending))
    return list(live(road).values())


@pytest.mark.parametrize("bound", [1.1, 1.25, 2.0])
def test_a_skewed_load_converges_to_the_bound(make_road: MakeRoad, bound: float) -> None:
    flows = skewed(make_road(), bound)
    assert max(flows) <= bound * sum(flows) / 4 + PER_SECOND, "what a second brings may come before it is seen"
    assert min(flows) > 0


def test_without_a_bound_a_skewed_load_stays_skewed(make_road: MakeRoad) -> None:
    flows = skewed(make_road(), None)
    assert max(flows) > 3.5 * sum(flows) / 4


def test_while_running(make_road: MakeRoad) -> None:
    """Stages run on lcores; the control thread says when a second has passed."""
    road = make_road(workers=2)
    road.apply(bounded())
    road.start()
    road.give(map(flow, islice(flows_of("b1"), 40)))
    road.settle()
    assert over(road) == []
    road.dataplane.weigh()
    assert over(road) == ["b1"]
    road.take_all()
    road.give(map(flow, islice(flows_of("b1", 20000), 40)))
    assert "b1" not in {NAMES[backend_address(out)] for out in road.take_all()}
    road.apply(bounded(3.5))
    road.dataplane.weigh()
    assert over(road) == []


# -- captures


def test_explain_and_replay_see_it_by_the_clock_of_the_capture(tmp_path: Path) -> None:
    config, source, out = tmp_path / "lb1.yaml", tmp_path / "in.pcap", tmp_path / "out.pcap"
    backends = ", ".join(f"{{name: {name}, address: {address}}}" for name, address in FOUR.items())
    config.write_text(
        CONFIG.replace("{name: web1, address: 10.0.3.2}", backends).replace(
            "pools: [web]", "pools: [web], load_bound: 1.25, table_size: 251"
        )
    )
    before, after = list(islice(flows_of("b1"), 40)), list(islice(flows_of("b1", 20000), 40))
    times = {START: before, START + NANOSECONDS: after}
    source.write_bytes(pcap((at, flow(number)) for at, numbers in times.items() for number in numbers))
    lines = run(command(config, source, "--json")).lines
    assert [(line["reason"], line["backend"]) for line in lines] == [
        *[("new_flow", "b1")] * 40,
        *[("new_deflected", past(number, "b1")) for number in after],
    ]
    done = run([sys.executable, "-m", "controller.cli", "replay", str(config), str(source), str(out)])
    told = {name: counts["packets"] for name, counts in json.loads(done.stdout)["backends"].items()}
    counted = Counter(line["backend"] for line in lines)
    assert {name: told[name] for name in FOUR} == {name: counted[name] for name in FOUR}


# -- the state


def entry(**bound: Any) -> State:
    backends = [(i, 1, 0, ip_address(f"10.0.3.{i + 1}").packed, ip_address(TUNNEL).packed) for i in range(2)]
    vips = [(0, ip_address(VIP).packed, 6, 80, False, array("H", [0, 1, 0]), [0, 1])]
    values = {"factor": 1.25, "owners": array("H", [0, 1]), "weights": array("I", [1, 1]), **bound}
    return State(vips, backends, None, {0: (values["factor"], values["owners"], values["weights"])})


def test_a_state_refuses_a_bound_that_cannot_hold() -> None:
    entry()
    for wrong in (
        {"factor": 1.0},
        {"factor": float("nan")},
        {"factor": -2.0},
        {"owners": array("H", [0, 2])},
        {"weights": array("I", [1, 0])},
    ):
        with pytest.raises(DataplaneError, match="Invalid argument"):
            entry(**wrong)
    for odd in ({"weights": array("I", [1])}, {"weights": array("H", [1, 1])}):
        with pytest.raises(ValueError, match="each owner of slots has a weight"):
            entry(**odd)
