from __future__ import annotations

import json
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from config_text import GOOD, edited
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import offline, views
from controller.churn import expected_verdicts, refusal, spell, trusting, with_flows
from controller.cli import maglev
from controller.config import loads
from controller.model import Backend, CheckKey, Member, Verdict, Vip
from controller.plan import Owned, Situation, compare, slots_that_move
from forwarder.hashing import slot_table

Json = dict[str, Any]
KEY = "00" * 16
SIZE = 251


def vip(weights: dict[int, int], name: str = "www", **changes: Any) -> Vip:
    """Backend n has the name bn and the address 10.0.0.n; it is always up."""
    members = tuple(
        Member(Backend(f"b{n}", ip_address(f"10.0.0.{n}")), weight, False, ())
        for n, weight in sorted(weights.items())
    )
    shape = {
        "address": ip_address("192.0.2.1"),
        "protocol": "tcp",
        "port": 80,
        "table_size": SIZE,
        "affinity": "flow",
    }
    return Vip(**{"name": name, "members": members, "scheduler": "maglev", "min_healthy": 1, **shape, **changes})


def situation(*vips: Vip, **changes: Any) -> Situation:
    return Situation(**{"vips": vips, "hash_key": KEY, "verdicts": {}, "drained": (), **changes})


def moved(before: Vip, after: Vip) -> Json:
    (told,) = slots_that_move(situation(before), situation(after))
    return told


def owners(of: Vip) -> list[str]:
    built = slot_table.build({m.backend.name: m.weight for m in of.members}, of.table_size, of.scheduler)
    return [built.names[position] for position in built.slots]


FLEETS = st.dictionaries(st.integers(1, 9), st.integers(0, 3), max_size=9)


@settings(deadline=None)
@given(FLEETS, FLEETS, st.sampled_from(["maglev", "rendezvous"]))
def test_the_kinds_add_up_to_the_slots_whose_owner_differs(
    one: dict[int, int], other: dict[int, int], to: str
) -> None:
    before, after = vip(one), vip(other, scheduler=to)
    slots = moved(before, after)["slots"]
    was, becomes = owners(before), owners(after) or [None] * SIZE
    assert slots["moved"] == slots["left"] + slots["joined"] + slots["besides"]
    assert slots["moved"] == sum(a != b for a, b in zip(was, becomes, strict=False))
    assert slots["left"] == sum(a not in becomes for a in was)
    assert slots["joined"] == sum(a in becomes and b not in was for a, b in zip(was, becomes, strict=False))


@settings(deadline=None)
@given(FLEETS, st.sampled_from(slot_table.SCHEDULERS))
def test_the_same_configuration_moves_nothing(fleet: dict[int, int], scheduler: str) -> None:
    told = moved(vip(fleet, scheduler=scheduler), vip(fleet, scheduler=scheduler))
    assert told["slots"] == {"moved": 0, "left": 0, "joined": 0, "besides": 0}
    assert (told["share"], told["change"], told["differs"]) == (0.0, "kept", [])


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 9), st.integers(1, 3), min_size=2), st.data())
def test_all_slots_of_a_removed_backend_are_those_whose_owner_left(
    fleet: dict[int, int], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(fleet)))
    told = moved(vip(fleet), vip({n: weight for n, weight in fleet.items() if n != gone}))
    assert told["slots"]["left"] == owners(vip(fleet)).count(f"b{gone}")
    assert told["slots"]["joined"] == 0


@settings(deadline=None)
@given(st.dictionaries(st.integers(1, 8), st.integers(1, 3), min_size=1))
def test_a_new_backend_takes_all_that_it_owns_from_others(fleet: dict[int, int]) -> None:
    grown = {**fleet, 9: 1}
    told = moved(vip(fleet), vip(grown))
    assert told["slots"]["joined"] == owners(vip(grown)).count("b9")
    assert told["joining"] == ["b9"]
    assert told["slots"]["left"] == 0


def test_a_weight_of_zero_and_a_drain_leave_as_a_removal_does() -> None:
    told = moved(vip({1: 1, 2: 1}), vip({1: 1}))
    assert (told["leaving"], told["joining"]) == (["b2"], [])
    removed = told["slots"]
    assert removed == {"moved": 125, "left": 125, "joined": 0, "besides": 0}
    assert moved(vip({1: 1, 2: 1}), vip({1: 1, 2: 0}))["slots"] == removed
    both = vip({1: 1, 2: 1})
    (drained,) = slots_that_move(situation(both), situation(both, drained={"b2"}))
    assert drained["slots"] == removed


def test_a_backend_of_the_same_name_and_another_address_is_another_one() -> None:
    before = vip({1: 1, 2: 1})
    members = (before.members[0], Member(Backend("b2", ip_address("10.0.9.9")), 1, False, ()))
    assert moved(before, vip({}, members=members))["slots"] == {"moved": 125, "left": 125, "joined": 0, "besides": 0}


def test_slots_that_had_no_owner_do_not_move_and_those_that_get_none_do() -> None:
    assert moved(vip({}), vip({1: 1}))["slots"]["moved"] == 0
    assert moved(vip({1: 1}), vip({}))["slots"] == {"moved": SIZE, "left": SIZE, "joined": 0, "besides": 0}


def test_a_vip_is_the_same_under_another_name_and_another_one_at_another_port() -> None:
    told = moved(vip({1: 1}), vip({1: 1}, "web"))
    assert (told["name"], told["change"], told["share"]) == ("web", "kept", 0.0)
    old, new = slots_that_move(situation(vip({1: 1}, port=80)), situation(vip({1: 1}, port=81)))
    assert [(v["port"], v["change"], v["share"]) for v in (old, new)] == [(80, "removed", 1.0), (81, "added", 0.0)]


def test_a_scheduler_moves_slots_that_can_be_compared() -> None:
    told = moved(vip({1: 1, 2: 1, 3: 1}), vip({1: 1, 2: 1, 3: 1}, scheduler="rendezvous"))
    assert told["differs"] == ["scheduler"]
    assert told["slots"]["besides"] == told["slots"]["moved"] > 0


@pytest.mark.parametrize("change", [{"table_size": 241}, {"affinity": "client"}, {"hash_key": "11" * 16}], ids=str)
def test_where_a_flow_has_another_slot_the_share_is_that_of_all_hashes(change: Json) -> None:
    before, after = vip({1: 2, 2: 1}), vip({1: 1, 2: 1, 3: 1}, **{k: v for k, v in change.items() if k != "hash_key"})
    keys = {"hash_key": change["hash_key"]} if "hash_key" in change else {}
    (told,) = slots_that_move(situation(before), situation(after, **keys))
    assert (told["differs"], told["slots"]) == (list(change), None)
    was, becomes = owners(before), owners(after)
    if "table_size" in change:  # every pair of slots is met once in as many hashes as there are pairs
        differing = sum(was[h % SIZE] != becomes[h % 241] for h in range(SIZE * 241))
        assert told["share"] == pytest.approx(differing / (SIZE * 241), abs=1e-6)
    assert told["share"] == pytest.approx(1 - 2 / 9 - 1 / 9, abs=0.01)


@pytest.mark.parametrize("size", [241, 251])
def test_nobody_before_and_nobody_afterwards_are_told_in_shares_too(size: int) -> None:
    assert moved(vip({}), vip({1: 1}, table_size=size))["share"] == 0.0
    assert moved(vip({1: 1}), vip({}, table_size=size))["share"] == 1.0


def test_vips_are_told_in_order_of_name() -> None:
    vips = [vip({1: 1}, name, port=port) for port, name in enumerate(("c", "a", "b"))]
    assert [told["name"] for told in slots_that_move(situation(*vips), situation(*vips))] == ["a", "b", "c"]


def test_equal_tables_of_different_owners_are_not_taken_for_each_other() -> None:
    table = slot_table.build({"b1": 1, "b2": 1}, SIZE)
    one, other = (
        Owned((("b1", a), ("b2", a)), table.digest, table) for a in map(ip_address, ("10.0.0.1", "10.0.0.2"))
    )
    assert sum(compare(one, one)) == 0
    assert compare(one, other).left == SIZE


# -- flows, and how much is too much


def told(share: float = 0.0, live: int = 0, moved: int | None = 0, lost: int = 0, name: str = "www") -> Json:
    flows = {"live": live, "at_risk": moved, "moved": moved, "lost": lost}
    return {"name": name, "address": "192.0.2.1", "protocol": "tcp", "port": 80, "share": share, "flows": flows}


@pytest.mark.parametrize(
    ("what", "vip", "churn"),
    [
        ("nothing moves", told(), 0),
        ("slots without flows", told(0.25), 25),
        ("more flows than slots", told(0.25, live=10, moved=3), 30),
        ("more slots than flows", told(0.25, live=10, moved=1), 25),
        ("flows that cannot be told, some are lost", told(0.25, live=10, moved=None, lost=5), 50),
        ("nobody has counted", {**told(0.25), "flows": None}, 25),
    ],
)
def test_the_larger_of_slots_and_flows_is_what_is_allowed(what: str, vip: Json, churn: float) -> None:
    assert refusal([vip], churn) is None, what
    assert churn == 0 or refusal([vip], churn - 0.01) is not None, what


def test_a_refusal_names_the_worst_vip_and_its_figures() -> None:
    assert refusal([], 0) is None
    vips = [told(0.1, name="a"), told(0.2, live=50, moved=33, name="b"), told(0.3, name="c")]
    assert refusal(vips, 12.5) == (
        "vip b: 20.0 % of its slots and 66.0 % of its live flows (33 of 50) would move, "
        "more than 12.5 %; nothing was changed"
    )
    assert refusal(vips[2:], 0) == "vip c: 30.0 % of its slots would move, more than 0 %; nothing was changed"


@pytest.mark.parametrize(("share", "text"), [(0, "0.0 %"), (0.0004, "< 0.1 %"), (0.001, "0.1 %"), (1, "100.0 %")])
def test_a_share_is_not_spelled_as_nothing_when_it_is_something(share: float, text: str) -> None:
    assert spell(share) == text


def test_flows_go_to_the_vip_of_the_same_address_protocol_and_port() -> None:
    plans = [
        {key: value for key, value in told(name=name).items() if key != "flows"} for name in ("new name", "other")
    ]
    plans[1]["port"] = 81
    one, other = with_flows(plans, [told(live=5, moved=1, name="old name") | told(live=5, moved=1)["flows"]])
    assert one["flows"] == {"live": 5, "at_risk": 1, "moved": 1, "lost": 0}
    assert set(other["flows"].values()) == {0}


def test_what_is_not_probed_yet_is_expected_up_and_what_is_known_stays() -> None:
    keys = [CheckKey(ip_address(f"10.0.0.{n}"), "http") for n in (1, 2, 3)]
    vips = [
        vip({}, members=tuple(Member(Backend(f"b{n}", k.address), 1, False, ("http",)) for n, k in enumerate(keys)))
    ]
    known = {keys[0]: Verdict.DOWN, keys[1]: Verdict.UNKNOWN}
    assert list(expected_verdicts(vips, known).values()).count(Verdict.UP) == 1
    assert expected_verdicts(vips, known) == {**known, keys[2]: Verdict.UP}
    assert trusting(known) == {keys[0]: Verdict.DOWN, keys[1]: Verdict.UP}


# -- the command


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(maglev, ["plan", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(GOOD)
    new.write_text(edited(", drain: true}", "}"))
    return old, new


def test_plan_says_what_a_change_moves(files: tuple[Path, Path]) -> None:
    answer = json.loads(run(*files, "--json").stdout)
    assert answer["restart"] == []
    assert len(answer["changes"]) == 1
    (www,) = answer["vips"]
    assert www["slots"]["joined"] == offline.table(loads(files[1].read_text()), "www")["backends"]["web2"]
    text = run(*files)
    assert text.exit_code == 0
    assert (
        f"www tcp 192.0.2.1:80  -        65537  {www['slots']['moved']}  0     21846   5        33.3 %" in text.stdout
    )


def test_plan_of_the_same_configuration_says_so(files: tuple[Path, Path]) -> None:
    result = run(files[0], files[0])
    assert result.exit_code == 0
    assert result.stdout.startswith("nothing changes\n")


def test_plan_names_what_needs_a_restart_and_a_key_that_moves_every_flow(files: tuple[Path, Path]) -> None:
    files[1].write_text(edited("000102030405060708090a0b0c0d0e0f", "ff" * 16))
    result = run(*files)
    assert "a running node has to be restarted for node.hash_key" in result.stdout
    assert "hash_key" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize("words", [(), ("old.yaml",), ("old.yaml", "new.yaml", "more.yaml"), ("--nosuch",)], ids=str)
def test_plan_wrongly_asked_says_its_usage(words: tuple[str, ...]) -> None:
    began = time.monotonic()
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: maglev plan [OPTIONS] OLD NEW")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("side", [0, 1])
def test_plan_of_a_wrong_or_missing_configuration_names_the_file(files: tuple[Path, Path], side: int) -> None:
    files[side].write_text("nodes: {}\n")
    result = run(*files)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{files[side].name}:1: nodes" in result.stderr
    files[side].unlink()
    assert run(*files).exit_code == 2


@pytest.mark.parametrize("percent", ["-1", "100.1", "many", "5%", "nan", "inf", ""])
def test_a_churn_that_is_no_percentage_is_wrong_usage(percent: str) -> None:
    result = CliRunner().invoke(maglev, ["reload", "--max-churn", percent])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: maglev reload [OPTIONS]")
    assert "--max-churn" in result.stderr


def test_a_reload_is_shown_with_the_flows_that_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    vips = [
        told(0.5, live=9, moved=None, lost=4)
        | {"differs": ["affinity"], "change": "kept", "slots": None, "table_size": 7}
    ]
    views.reload({"applied": False, "changes": ["a"], "vips": vips, "flows_unknown": None})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "a",
        "(dry run: nothing was applied)",
        "slots",
        "vip differs slots moved left joined besides share",
        "www tcp 192.0.2.1:80 affinity 7 - - - - 50.0 %",
        "live flows",
        "vip live at risk moved lost",
        "www tcp 192.0.2.1:80 9 - - 4",
    ]
