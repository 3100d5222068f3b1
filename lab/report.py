"""What a run of the scenario found, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lab.load import LongConnection, Results


@dataclass(slots=True)
class Step:
    """One step of the scenario: what the client saw, and which expectations were not met."""

    name: str
    requests: int = 0
    answered: int = 0
    failed: int = 0
    retried: int = 0
    per_backend: dict[str, int] = field(default_factory=dict)
    connections: int = 0
    broken: int = 0
    route_ms: float | None = None  # from the signal until the router's kernel had no route to the node
    notes: list[str] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)

    def add(self, results: Results) -> Results:
        """Add what one load saw."""
        self.requests += results.requests
        self.answered += results.answered
        self.failed += results.failed
        self.retried += len(results.retries)
        for name, count in sorted(results.per_backend.items()):
            self.per_backend[name] = self.per_backend.get(name, 0) + count
        self.add_connections(results.connections)
        return results

    def add_connections(self, connections: Sequence[LongConnection]) -> None:
        """Count long connections; why one broke is worth a note."""
        self.connections += len(connections)
        broken = [connection for connection in connections if connection.broken is not None]
        self.broken += len(broken)
        for reason in sorted({str(connection.broken) for connection in broken}):
            alike = [connection for connection in broken if connection.broken == reason]
            example = f"{alike[0].client} with {alike[0].backend}"
            self.notes.append(f"{len(alike)} broken: {reason} (such as {example})")

    def expect(self, met: bool, sentence: str) -> None:
        """Note an expectation that is not met."""
        if not met:
            self.unmet.append(sentence)

    def expect_whole(self) -> None:
        """What holds in every step: each request was answered in the end, and no connection broke."""
        self.expect(self.answered == self.requests, f"{self.answered} of {self.requests} requests answered")
        self.expect(self.failed == 0, f"{self.failed} requests failed")
        self.expect(self.broken == 0, f"{self.broken} of {self.connections} connections broken")

    def document(self) -> dict[str, Any]:
        """The step as JSON."""
        return {
            "name": self.name, "requests": self.requests, "answered": self.answered, "failed": self.failed,
            "per_backend": dict(sorted(self.per_backend.items())), "connections": self.connections,
            "broken": self.broken, "route_ms": self.route_ms and round(self.route_ms, 1),
            "retried": self.retried, "notes": self.notes, "unmet": self.unmet,
        }  # fmt: skip


def document(steps: Sequence[Step]) -> dict[str, Any]:
    """The whole run as JSON; `ok` says whether every expectation of every step was met."""
    return {"steps": [step.document() for step in steps], "ok": not any(step.unmet for step in steps)}


def _shares(step: Step) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(step.per_backend.items()))


def view(steps: Sequence[Step]) -> RenderableType:
    """The whole run for a terminal of 80 columns."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("step", no_wrap=True)
    for column in ("requests", "answered", "failed", "retried", "kept", "broken", "route ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for step in steps:
        table.add_row(
            Text(step.name, "red" if step.unmet else "green"),
            str(step.requests),
            str(step.answered),
            str(step.failed),
            str(step.retried),
            str(step.connections - step.broken),
            str(step.broken),
            "" if step.route_ms is None else f"{step.route_ms:.1f}",
        )
    notes: list[Text] = []
    for step in steps:
        notes.append(Text(f"{step.name}: {_shares(step)}", "bold"))
        notes += [Text(f"  {note}") for note in step.notes]
        notes += [Text(f"  UNMET: {line}", "bold red") for line in step.unmet]
    met = not any(step.unmet for step in steps)
    return Group(table, *notes, Text("Every expectation was met.", "bold green") if met else Text(""))
