"""Milliseconds to build a Maglev table, beside those of the straightforward C loop, in turns within one run.

The loop is that of the paper with one % per probe, and for weights the rounds of DESIGN 5 as they are written; each
turn compares its table with ours. Hashing the names, which both need, is in neither. Times mean little on a shared
machine, the ratio does. `whole` is what a change of a pool costs a forwarder: names hashed, table built, its digest.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from forwarder.hashing import maglev
from perf.machine import describe

ROUNDS = 9
SIZES = (65537, 655373)
MEMBERS = (10, 100, 1000, 10000)
LARGEST_WEIGHT = 100
TARGET = 0.9  # of the reference's time, at TARGET_MEMBERS
TARGET_MEMBERS = 1000

SLOT_BYTES = 2
VIP_BYTES = 24  # struct vip
ENTRY_BYTES = 32  # struct vip_entry
ENTRIES = 8  # at most, of the vip table: the vip and its address, at a load of a quarter to a half


@dataclass(frozen=True, slots=True)
class Case:
    """A table to build."""

    size: int
    members: int
    mixed: bool

    @property
    def weights(self) -> list[int]:
        """Of the members in order of name."""
        return [1 + 37 * i % LARGEST_WEIGHT if self.mixed else 100 for i in range(self.members)]


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over the rounds; `ratio` is the median of the rounds' own ratios."""

    size: int
    members: int
    weights: str
    ms: float
    reference_ms: float
    ratio: float
    whole_ms: float


def measure(case: Case, rounds: int) -> Result:
    """One case. Raises AssertionError when a table is not that of the reference."""
    from perf._reference import Tables

    names = [f"backend{i:05}" for i in range(case.members)]
    by_name = dict(zip(names, case.weights, strict=True))
    tables = Tables([name.encode() for name in names], case.weights, case.size)
    tables.build()
    turns, whole = [], []
    for _ in range(rounds):
        turns.append(tables.build())
        began = time.perf_counter()
        maglev.build(by_name, case.size)
        whole.append(time.perf_counter() - began)
    assert all(equal for _, _, equal in turns), f"{case}: the tables differ"
    return Result(
        case.size,
        case.members,
        "mixed" if case.mixed else "equal",
        statistics.median(ours for ours, _, _ in turns) * 1e3,
        statistics.median(reference for _, reference, _ in turns) * 1e3,
        statistics.median(ours / reference for ours, reference, _ in turns),
        statistics.median(whole) * 1e3,
    )


def memory(size: int, backends: int) -> dict[str, int]:
    """Bytes of one vip in a forwarding state: its slots, which vips with equal tables share, and what is its own."""
    return {
        "table_size": size,
        "backends": backends,
        "slots": SLOT_BYTES * size,
        "vip": VIP_BYTES + ENTRIES * ENTRY_BYTES + 8 * (backends // 64 + 1),
    }


def missed(results: Sequence[Result]) -> list[Result]:
    """Those that take longer than the target allows."""
    return [result for result in results if result.members == TARGET_MEMBERS and result.ratio > TARGET]


def show(results: Sequence[Result]) -> Table:
    """For a person."""
    table = Table("slots", "backends", "weights", box=None)
    for column in ("ms", "reference ms", "ratio", "whole ms"):
        table.add_column(column, justify="right")
    for r in results:
        times = (f"{r.ms:.3f}", f"{r.reference_ms:.3f}", f"{r.ratio:.2f}", f"{r.whole_ms:.2f}")
        table.add_row(str(r.size), str(r.members), r.weights, *times)
    return table


def say_memory(size: int) -> str:
    """One sentence about the memory of a vip."""
    bytes_of = memory(size, TARGET_MEMBERS)
    return (
        f"{size} slots: {bytes_of['slots']} bytes, once for all vips with the same members and weights, and as many "
        f"for the table that they were made from; each vip {bytes_of['vip']} bytes more at {TARGET_MEMBERS} backends."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 1 when the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m perf.tables", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write the JSON to a file too")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each table; the median counts")
    asked = parser.parse_args(argv)
    cases = [Case(size, members, mixed) for size in SIZES for members in MEMBERS for mixed in (False, True)]
    progress = Console(stderr=True)
    results = [measure(case, asked.rounds) for case in track(cases, "building", console=progress, transient=True)]
    written: dict[str, Any] = {
        "benchmark": "tables",
        "machine": describe(),
        "settings": {"rounds": asked.rounds, "largest_weight": LARGEST_WEIGHT, "target": TARGET},
        "results": [asdict(result) for result in results],
        "memory": [memory(size, members) for size in SIZES for members in MEMBERS],
    }
    if asked.out is not None:
        asked.out.write_text(json.dumps(written, indent=1) + "\n")
    if asked.json:
        print(json.dumps(written))
    else:
        console = Console()
        console.print(show(results))
        for size in SIZES:
            console.print(say_memory(size), highlight=False, soft_wrap=True)
    for result in missed(results):
        Console(stderr=True).print(f"ratio {result.ratio:.2f} is above {TARGET}: {result}", highlight=False)
    return 1 if missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
