"""Milliseconds to build a Maglev table, beside those of the straightforward C loop, in turns within one run.

The loop is that of the paper with one % per probe, and for weights the rounds of DESIGN 5 as they are written; each
turn compares its table with ours. Hashing the names, which both need, is in neither. Times mean little on a shared
machine, the ratio does. `whole` is what a change of a pool costs a forwarder: names hashed, table built, its digest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forwarder.hashing import slot_table
from perf.lcores import require_bench
from perf.results import Law, Results, finish, options, steps

ROUNDS = 9
SIZES = (65537, 655373)
MEMBERS = (10, 100, 1000, 10000)
LARGEST_WEIGHT = 100
TARGET = 0.9  # of the reference's time, at TARGET_MEMBERS
TARGET_MEMBERS = 1000

SLOT_BYTES = 2
VIP_BYTES = 24  # struct vip
BUCKET_BYTES = 64  # struct vip_bucket
BUCKETS = 8  # at most, of the vip table: four to eight for each vip


@dataclass(frozen=True, slots=True)
class Case:
    """A table to build."""

    size: int
    members: int
    mixed: bool

    def __str__(self) -> str:
        return f"{self.size} slots, {self.members} backends, {'mixed' if self.mixed else 'equal'} weights"

    @property
    def weights(self) -> list[int]:
        """Of the members in order of name."""
        return [1 + 37 * i % LARGEST_WEIGHT if self.mixed else 100 for i in range(self.members)]


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """A row: medians over the rounds. Raises AssertionError when a table is not that of the reference."""
    from perf._reference import Tables

    names = [f"backend{i:05}" for i in range(case.members)]
    by_name = dict(zip(names, case.weights, strict=True))
    tables = Tables([name.encode() for name in names], case.weights, case.size)
    tables.build()
    turns, whole = [], []
    for _ in range(rounds):
        turns.append(tables.build())
        began = time.perf_counter()
        slot_table.build(by_name, case.size)
        whole.append(time.perf_counter() - began)
    assert all(equal for _, _, equal in turns), f"{case}: the tables differ"
    return {
        "case": str(case),
        "size": case.size,
        "backends": case.members,
        "ms": statistics.median(ours for ours, _, _ in turns) * 1e3,
        "reference_ms": statistics.median(reference for _, reference, _ in turns) * 1e3,
        "ratio": statistics.median(ours / reference for ours, reference, _ in turns),
        "whole_ms": statistics.median(whole) * 1e3,
    }


def memory(size: int, backends: int) -> str:
    """One sentence about the memory of a vip."""
    own = VIP_BYTES + BUCKETS * BUCKET_BYTES + 8 * (backends // 64 + 1)
    return (
        f"A vip of {size} slots: {SLOT_BYTES * size} bytes, once for all vips with the same members and weights, and "
        f"as many for the table that they were made from; of its own at most {own} bytes at {backends} backends."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench tables", description=__doc__)
    options(parser, "tables")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each table; the median counts")
    asked = parser.parse_args(argv)
    require_bench()
    results = Results(
        "tables",
        {"rounds": asked.rounds, "largest_weight": LARGEST_WEIGHT},
        {"case": "table", "ms": "ms", "reference_ms": "reference ms", "ratio": "ratio", "whole_ms": "whole ms"},
    )
    cases = [Case(size, members, mixed) for size in SIZES for members in MEMBERS for mixed in (False, True)]
    for case in steps(cases, str):
        results.rows.append(measure(case, asked.rounds))
    for size in SIZES:
        worst = max(r["ratio"] for r in results.rows if (r["size"], r["backends"]) == (size, TARGET_MEMBERS))
        text = f"time of {size} slots at {TARGET_MEMBERS} backends, as a multiple of the straightforward loop's"
        results.laws.append(Law(text, worst, TARGET))
        results.notes.append(memory(size, TARGET_MEMBERS))
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
