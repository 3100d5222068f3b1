"""Two result files of one benchmark side by side, for a commit message.

A case's row has each figure before and after, and how many times the one is the other. On a shared machine look at
ratios and instructions; nanoseconds of two runs differ for reasons that are nobody's work.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from perf.results import table

SAME = ("cpu", "cpus", "kernel", "dpdk")


class CompareError(Exception):
    """Why two files cannot be compared, in one sentence."""


def load(path: Path) -> dict[str, Any]:
    """A result file. Raises CompareError when it is none."""
    try:
        read = json.loads(path.read_text())
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CompareError(f"{path} is not JSON: {error}") from error
    if not isinstance(read, dict) or not {"benchmark", "machine", "columns", "results"} <= read.keys():
        raise CompareError(f"{path} is not a result file: write one with `maglev bench ... --out {path}`")
    return read


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Columns, rows of the cases that both have, and notes about what makes the comparison doubtful."""
    if before["benchmark"] != after["benchmark"]:
        raise CompareError(f"the files are of different benchmarks: {before['benchmark']} and {after['benchmark']}")
    figures = [key for key in before["columns"] if key != "case" and key in after["columns"]]
    was, now = ({row["case"]: row for row in side["results"]} for side in (before, after))
    columns = {"case": "case"}
    for key in figures:
        head = before["columns"][key]
        columns |= {f"{key}_before": head, f"{key}_after": "after", f"{key}_times": "times"}
    rows = [_row(case, was[case], now[case], figures) for case in was if case in now]
    return {"benchmark": before["benchmark"], "columns": columns, "results": rows, "notes": _notes(before, after)}


def _row(case: str, was: dict[str, Any], now: dict[str, Any], figures: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case}
    for key in figures:
        first, second = was.get(key), now.get(key)
        row[f"{key}_before"], row[f"{key}_after"] = first, second
        row[f"{key}_times"] = second / first if first and second is not None else None
    return row


def _notes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    notes = [
        f"The machines differ: {key} was {before['machine'].get(key)}, now {after['machine'].get(key)}; "
        "only instructions and ratios within a run can be compared."
        for key in SAME
        if before["machine"].get(key) != after["machine"].get(key)
    ]
    ignored = {"cases"}
    was, now = (
        {key: value for key, value in side.get("settings", {}).items() if key not in ignored}
        for side in (before, after)
    )
    notes += [
        f"The settings differ: {key} was {was.get(key)}, now {now.get(key)}."
        for key in sorted(was.keys() | now.keys())
        if was.get(key) != now.get(key)
    ]
    names = [{row["case"] for row in side["results"]} for side in (before, after)]
    notes += [f"Only before: {case}" for case in sorted(names[0] - names[1])]
    notes += [f"Only after: {case}" for case in sorted(names[1] - names[0])]
    return notes


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 2 for files that cannot be compared."""
    parser = argparse.ArgumentParser(prog="maglev bench compare", description=__doc__)
    parser.add_argument("before", type=Path, metavar="BEFORE.json")
    parser.add_argument("after", type=Path, metavar="AFTER.json")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args(argv)
    try:
        compared = compare(load(asked.before), load(asked.after))
    except CompareError as error:
        print(error, file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps(compared))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 118)
    console.print(table(compared["columns"], compared["results"]))
    for note in compared["notes"]:
        console.print(note, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
