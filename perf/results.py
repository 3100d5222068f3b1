"""Result files, the tables printed from them, and what every benchmark's command line has in common."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from perf.machine import Others, describe, title

DIRECTORY = Path("build/bench")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Law:
    """Something that must be so, and whether it was."""

    text: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """Laws are upper bounds."""
        return self.value <= self.bound

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'does NOT hold'}: {self.text}: {self.value:.4g}, bound {self.bound:.4g}"


@dataclass(slots=True)
class Results:
    """One run of one benchmark. `rows` have a `case`, unique in the run, and figures; `columns` are heads by key."""

    benchmark: str
    settings: dict[str, Any]
    columns: dict[str, str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=describe)
    others: Others = field(default_factory=Others)
    began: float = field(default_factory=time.time)

    def as_json(self) -> dict[str, Any]:
        """The file's content."""
        seconds = time.time() - self.began
        return {
            "benchmark": self.benchmark,
            "machine": self.machine,
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "seconds": round(seconds, 1),
            "other_processes_cpus": round(self.others.cpus(seconds), 2),
            "settings": self.settings,
            "columns": self.columns,
            "results": self.rows,
            "laws": [{**asdict(law), "holds": law.holds} for law in self.laws],
            "notes": self.notes,
        }


def options(parser: argparse.ArgumentParser, name: str) -> None:
    """What every benchmark can be asked."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="end with status 1 when a law does not hold")
    parser.add_argument(
        "--out",
        type=Path,
        default=DIRECTORY / f"{name}.json",
        metavar="FILE",
        help="where the JSON goes, and beside it a picture as .png (default: %(default)s)",
    )


def finish(results: Results, asked: argparse.Namespace) -> int:
    """Write the file and the picture, print the table; returns the exit status."""
    written = results.as_json()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(written, indent=1) + "\n")
    status = 1 if asked.check and not all(law.holds for law in results.laws) else 0
    files = f"{asked.out}, {_draw(written, asked.out.with_suffix('.png'))}"
    if asked.json:
        print(json.dumps(written))
        return status
    console = Console(width=None if sys.stdout.isatty() else 118)
    console.print(table(results.columns, results.rows))
    for law in results.laws:
        console.print(str(law), style="" if law.holds else "bold", highlight=False)
    for note in results.notes:
        console.print(note, highlight=False)
    others = written["other_processes_cpus"]
    console.print(f"{title(written)}; other processes used {others} CPUs", highlight=False)
    console.print(files, highlight=False)
    return status


def _draw(written: dict[str, Any], path: Path) -> str:
    """The picture's path, or why there is none."""
    try:
        from perf import pictures  # here: slow to import, and not wanted where instructions are counted
    except ModuleNotFoundError as error:
        return f"no picture, since {error.name} is not installed: pip install matplotlib"
    pictures.draw(written, path)
    return str(path)


def table(columns: dict[str, str], rows: Sequence[dict[str, Any]]) -> Table:
    """For a person."""
    shown = Table(columns["case"], box=None)
    for head in list(columns.values())[1:]:
        shown.add_column(head, justify="right")
    for row in rows:
        shown.add_row(*(_cell(row.get(key)) for key in columns))
    return shown


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def steps(items: Sequence[T], name: Callable[[T], str]) -> Iterator[T]:
    """The items one by one, with what is under way shown on stderr: a bar on a terminal, else a line each."""
    if not sys.stderr.isatty():
        for number, item in enumerate(items, 1):
            print(f"[{number}/{len(items)}] {name(item)}", file=sys.stderr, flush=True)
            yield item
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(items))
        for item in items:
            progress.update(task, description=name(item))
            yield item
            progress.advance(task)
