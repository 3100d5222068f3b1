"""Before and after: ratio columns, and what makes a comparison doubtful."""

import json
from pathlib import Path
from typing import Any

import pytest

from perf.compare import CompareError, compare, load, main

MACHINE = {"cpu": "a CPU", "cpus": 2, "kernel": "6.1", "dpdk": "22.11", "commit": "aaaaaaa", "changed": False}


def written(ns: float, **other: Any) -> dict[str, Any]:
    columns = {"case": "case", "ns": "ns", "ratio": "ratio"}
    rows = [{"case": "hit", "flows": 1024, "ns": ns, "ratio": ns / 10}]
    return {
        "benchmark": "worker", "machine": MACHINE, "settings": {"rounds": 5}, "columns": columns, "results": rows
    } | other  # fmt: skip


def test_each_figure_has_before_after_and_their_quotient() -> None:
    (row,) = compare(written(40.0), written(20.0))["results"]
    assert row == {
        "case": "hit",
        "ns_before": 40.0, "ns_after": 20.0, "ns_times": 0.5,
        "ratio_before": 4.0, "ratio_after": 2.0, "ratio_times": 0.5,
    }  # fmt: skip


def test_equal_circumstances_need_no_note() -> None:
    assert compare(written(40.0), written(20.0))["notes"] == []


def test_another_commit_is_what_is_compared_and_no_note() -> None:
    assert compare(written(1.0), written(1.0, machine=MACHINE | {"commit": "bbbbbbb"}))["notes"] == []


@pytest.mark.parametrize("key", ["cpu", "cpus", "kernel", "dpdk"])
def test_another_machine_is_noted(key: str) -> None:
    (note,) = compare(written(1.0), written(1.0, machine=MACHINE | {key: "other"}))["notes"]
    assert note.startswith(f"The machines differ: {key} was {MACHINE[key]}, now other")


def test_other_settings_are_noted() -> None:
    (note,) = compare(written(1.0), written(1.0, settings={"rounds": 9}))["notes"]
    assert note == "The settings differ: rounds was 5, now 9."


def test_cases_that_only_one_has_are_named_and_not_compared() -> None:
    compared = compare(written(1.0), written(1.0, results=[{"case": "new", "ns": 1.0, "ratio": 1.0}]))
    assert compared["results"] == []
    assert compared["notes"] == ["Only before: hit", "Only after: new"]


def test_a_figure_that_was_not_measured_has_no_quotient() -> None:
    (row,) = compare(written(1.0), written(1.0, results=[{"case": "hit", "ns": None, "ratio": 0.1}]))["results"]
    assert row["ns_times"] is None


def test_different_benchmarks_are_refused() -> None:
    with pytest.raises(CompareError, match="worker and scale"):
        compare(written(1.0), written(1.0, benchmark="scale"))


@pytest.mark.parametrize(
    ("text", "says"), [("{", "not JSON"), ("[]", "no"), ('{"benchmark": 1}', "not a result file")]
)
def test_what_is_no_result_file_is_refused_with_its_name(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "before.json"
    path.write_text(text)
    with pytest.raises(CompareError, match=f"before.json.*{says}"):
        load(path)


def test_the_command_prints_both_and_ends_with_2_for_a_missing_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(written(40.0)))
    after.write_text(json.dumps(written(20.0)))
    assert main([str(before), str(after)]) == 0
    assert "0.50" in capsys.readouterr().out
    assert main([str(before), str(after), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["ns_times"] == 0.5
    assert main([str(before), str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file" in capsys.readouterr().err
