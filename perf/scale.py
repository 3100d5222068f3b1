"""Cost of a packet against what grows: flows, vips, backends, workers, the share of packets that begin a new flow.

Beside each figure stands the memory floor of the same bursts, so that a cache that others use less or more shows in
both. Workers share a machine's memory; each has its own flows and runs on a CPU of its own, all at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from perf import lcores, memory
from perf.results import Law, Results, finish, options, steps
from perf.worker import BURST, ROUNDS, Case, measure

BURSTS = 4000
GROWTH = 1.5  # cost with the most of something, as a multiple of that with the least
BASE = Case("", "hit", 1 << 17)
FLOWS = (1 << 10, 1 << 13, 1 << 15, 1 << 17, 1 << 20, 1 << 22)
VIPS = (1, 10, 100, 1000)
BACKENDS = (10, 100, 1000, 10_000)
NEW_PERMILLE = (0, 10, 100, 500, 1000)


def cases() -> Iterator[tuple[str, int, Case]]:
    """(axis, place on it, what is measured there)."""
    for flows in FLOWS:
        yield "flows", flows, replace(BASE, flows=flows)
    for vips in VIPS:
        yield "vips", vips, replace(BASE, vips=vips)
    for backends in BACKENDS:
        yield "backends", backends, replace(BASE, backends=backends)
    for workers in range(1, len(lcores.CPUS) + 1):
        yield "workers", workers, replace(BASE, workers=workers)
    for share in NEW_PERMILLE:
        yield "new flows, packets of 1000", share, replace(BASE, new_permille=share)


def one(axis: str, at: int, case: Case, bursts: int) -> dict[str, Any]:
    """A row: the worker's figures, and what they mean where flows begin."""
    result = measure(replace(case, name=f"{axis} {at}"), bursts)
    per_second = case.new_permille / 1000 / result.ns * 1e3 if case.new_permille else None
    return {**asdict(result), "axis": axis, "x": at, "new_per_second": per_second}


def growth(rows: Sequence[dict[str, Any]], axis: str) -> float:
    """How many times more a packet costs at the far end of an axis than at its beginning."""
    mine = sorted((row for row in rows if row["axis"] == axis), key=lambda row: int(row["x"]))
    return float(mine[-1]["ns"] / mine[0]["ns"])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench scale", description=__doc__)
    options(parser, "scale")
    memory.option(parser, default=False)
    parser.add_argument("--bursts", type=int, default=BURSTS, help=f"of {BURST} packets, in each of five rounds")
    asked = parser.parse_args(argv)
    todo = list(cases())
    results = Results(
        "scale",
        {"rounds": ROUNDS, "bursts": asked.bursts, "hugepages": asked.hugepages, "base": asdict(BASE)},
        {"case": "case", "ns": "ns", "floor_ns": "floor ns", "ratio": "ratio"}
        | {"new_per_second": "new flows, millions per second"},
    )
    lcores.start_workers(len(lcores.CPUS), hugepages=asked.hugepages)
    for axis, at, case in steps(todo, lambda one: f"{one[0]} {one[1]}"):
        results.rows.append(one(axis, at, case, asked.bursts))
    for axis, least, most in (("vips", VIPS[0], VIPS[-1]), ("backends", BACKENDS[0], BACKENDS[-1])):
        text = f"cost per packet with {most} {axis}, as a multiple of that with {least}"
        results.laws.append(Law(text, growth(results.rows, axis), GROWTH))
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
