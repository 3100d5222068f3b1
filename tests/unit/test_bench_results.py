"""Result files: what is in them, and what is printed; the command that runs benchmarks."""

import argparse
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from controller.bench import BENCHMARKS
from controller.cli import maglev
from perf import machine
from perf.compare import compare, load
from perf.results import Law, Results, finish, steps


def example() -> Results:
    results = Results("scale", {"rounds": 5}, {"case": "case", "ns": "ns", "floor_ns": "floor ns"})
    for at in (1, 1000):
        results.rows.append({"case": f"vips {at}", "axis": "vips", "x": at, "ns": 40.0, "floor_ns": 10.0})
    results.laws.append(Law("cost grows little", 1.2, 1.5))
    return results


def asked(path: Path, *, as_json: bool = False, check: bool = False) -> argparse.Namespace:
    return argparse.Namespace(out=path, json=as_json, check=check)


def test_a_file_has_machine_settings_results_and_a_picture_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "scale.json"
    assert finish(example(), asked(path)) == 0
    read = json.loads(path.read_text())
    assert set(read["machine"]) == {"cpu", "cpus", "kernel", "dpdk", "commit", "changed"}
    assert read["settings"] == {"rounds": 5}
    assert read["results"][1]["ns"] == 40.0
    assert read["laws"] == [{"text": "cost grows little", "value": 1.2, "bound": 1.5, "holds": True}]
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_json_is_all_that_is_printed_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(example(), asked(tmp_path / "scale.json", as_json=True))
    assert json.loads(capsys.readouterr().out)["results"] == example().rows


def test_a_file_compares_with_itself(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    finish(example(), asked(path))
    compared = compare(load(path), load(path))
    assert [row["ns_times"] for row in compared["results"]] == [1.0, 1.0]
    assert compared["notes"] == []


def test_a_law_says_whether_it_holds() -> None:
    assert str(Law("a law", 1.0, 1.0)) == "holds: a law: 1, bound 1"
    assert str(Law("a law", 1.1, 1.0)) == "does NOT hold: a law: 1.1, bound 1"


@pytest.mark.parametrize(("value", "check", "status"), [(1.6, True, 1), (1.6, False, 0), (1.5, True, 0)])
def test_who_asks_for_a_check_gets_a_status(tmp_path: Path, value: float, check: bool, status: int) -> None:
    results = example()
    results.laws = [Law("cost grows little", value, 1.5)]
    assert finish(results, asked(tmp_path / "scale.json", check=check)) == status


def test_progress_goes_to_stderr_a_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(steps(["a", "b"], str.upper)) == ["a", "b"]
    assert capsys.readouterr() == ("", "[1/2] A\n[2/2] B\n")


def test_a_picture_is_titled_with_the_machine() -> None:
    described = {
        "cpu": "AMD EPYC",
        "cpus": 2,
        "kernel": "6.18.5",
        "dpdk": "22.11.11",
        "commit": "abc",
        "changed": True,
    }
    written = {"machine": described, "settings": {}}
    assert machine.title(written) == "2 CPUs AMD EPYC, Linux 6.18, DPDK 22.11.11, commit abc and changes"
    written["settings"] = {"hugepages": True}
    assert machine.title(written).startswith("2 CPUs AMD EPYC, hugepages, Linux 6.18")


def test_every_benchmark_is_a_command_and_hands_its_options_on(tmp_path: Path) -> None:
    answer = CliRunner().invoke(maglev, ["bench", "--help"])
    assert answer.exit_code == 0
    assert all(name in answer.output for name in BENCHMARKS)
    refused = CliRunner().invoke(
        maglev, ["bench", "compare", str(tmp_path / "none"), str(tmp_path / "none"), "--json"]
    )
    assert refused.exit_code == 2
