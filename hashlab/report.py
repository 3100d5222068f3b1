"""`python -m hashlab.report`: every figure of docs/hashing.md beside what the literature says, as a table, JSON,
pictures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hashlab import compare, figures, story
from hashlab.articles import maglev_paper, swift
from hashlab.figures import Figures

STEPS = 7


def lines(found: Figures) -> list[tuple[str, str, str]]:
    """What, here, in the literature."""
    return [*_swift(found), *_game_servers(found), *_maglev(found)]


def _swift(found: Figures) -> list[tuple[str, str, str]]:
    spread, moves, ring = found.modulo_spread, found.moves, found.partition_ring
    return [
        ("hash mod 100, 10^7 ids: fullest, emptiest", f"{spread.largest}, {spread.smallest}", "100695, 99073"),
        ("100 nodes become 101, mod: ids moved", f"{moves.modulo}", "9900989"),
        ("the same, contiguous ranges", f"{moves.ranges}", "4901707"),
        ("the same, 1000 virtual nodes", f"{moves.vnodes}", "90423"),
        (
            f"2^{swift.POWER} partitions over {swift.RING_NODES} nodes: fullest, emptiest",
            f"{ring.spread.largest}, {ring.spread.smallest}",
            "128 is even",
        ),
        ("bytes a partition; with one node more", _bytes_each(ring), "2"),
        (
            "partitions moved by one node more",
            f"{ring.moved}",
            f"{2**swift.POWER // (swift.RING_NODES + 1)} must",
        ),
    ]


def _bytes_each(ring: swift.Ring) -> str:
    partitions = 2**swift.POWER
    return f"{ring.table_bytes // partitions}; {ring.table_bytes_after // partitions} (numbers beyond 16 bits)"


def _game_servers(found: Figures) -> list[tuple[str, str, str]]:
    free, bound = found.growth["none"], found.growth["1.0"]
    return [
        ("500 000 ids over 50 nodes, 160 points: sd of 10 000", f"{found.deviations[160]:.0f}", "about 750"),
        ("the same, 1280 points", f"{found.deviations[1280]:.0f}", "about 317"),
        ("10 nodes and 100 000 ids more: share to the new ones", f"{free.to_new_nodes:.1%}", "10 of 60 nodes"),
        ("the same, bounded at the mean", f"{bound.to_new_nodes:.1%}", "mainly"),
        ("overload of the fullest, unbounded and bounded", f"{free.overload:.1%}, {bound.overload:.1%}", "-"),
    ]


def _maglev(found: Figures) -> list[tuple[str, str, str]]:
    told = []
    for (name, size), seeds in found.provisioning.items():
        paper = maglev_paper.PAPER_PROVISIONING.get((name, size))
        here = f"{mean(seeds):.1%} ({min(seeds):.1%} to {max(seeds):.1%})"
        told.append((f"over-provisioning, {name}, {size} slots", here, f"{paper:.1%}" if paper else "-"))
    for size in maglev_paper.SIZES:
        extra = ", ".join(f"{found.extra[size, failed]:.2%}" for failed in maglev_paper.FAILURES)
        told.append((f"1, 5, 10, 30 of 1000 fail: moved besides, {size} slots", extra, "-"))
        told.append(
            (f"ms to build it, {size} slots", f"{found.build_ms[size]:.2f}", f"{maglev_paper.PAPER_BUILD_MS[size]}")
        )
    for name, (one, five, seconds) in found.shuffled.items():
        here = f"{one:.2%}, {five:.2%}; {seconds * 1e3:.1f} ms"
        told.append((f"100 backends, {name}: 1 and 5 fail, moved besides; build", here, "-"))
    for scheduler, (first, again) in found.table_ms.items():
        told.append((f"ms to build a vip's table, {scheduler}; its names known", f"{first:.1f}; {again:.1f}", "-"))
    return told


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hashlab.report", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/hashing"), metavar="DIR", help="default: %(default)s")
    asked = parser.parse_args()
    began = time.monotonic()
    found = _compute()
    told = lines(found)
    shown = Table("figure", "here", "in the literature", box=None)
    for line in told:
        shown.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 130).print(shown)
    asked.out.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {
        "figures": [dict(zip(("figure", "here", "literature"), line, strict=True)) for line in told],
        "compared": compare.as_json(found.compared),
    }
    (asked.out / "figures.json").write_text(json.dumps(written, indent=1) + "\n")
    paths = story.draw(found, asked.out)
    print(f"{asked.out}/figures.json and {len(paths)} pictures beside it; {time.monotonic() - began:.0f} s")
    return 0


def _compute() -> Figures:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        steps = progress.add_task("", total=STEPS)
        hashing = progress.add_task("MD5", total=swift.IDS)

        def next_step(what: str) -> None:
            progress.update(steps, description=what, advance=1)

        return figures.compute(next_step, lambda done: progress.advance(hashing, done))


if __name__ == "__main__":
    sys.exit(main())
