"""`maglev hashing compare`: schemes side by side over the same nodes, keys and changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from numpy.typing import NDArray
from rich.table import Table

from forwarder.hashing.scheme import Keys
from forwarder.hashing.schemes import SCHEMES
from hashlab.measure import Balance, Cost, Disruption, balance, disruption, loads, timed_build, timed_place
from hashlab.request import Asked, Change, Weights


@dataclass(frozen=True, slots=True)
class Row:
    """One scheme. `loads` is each node's load by its fair share, `changes` in the order in which they were asked."""

    scheme: str
    balance: Balance
    changes: dict[str, Disruption]
    cost: Cost
    loads: NDArray[Any]


def rows(
    schemes: Sequence[Asked],
    weights: Weights,
    keys: Keys,
    changes: Sequence[Change],
    seed: int,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """Measure one scheme after the other; each change is made to the first set, by chance that depends on `seed`
    only.

    Raises ValueError where a scheme cannot do with so many nodes.
    """
    changed = [(one.text, one.apply(weights, Random(seed))) for one in changes]
    found = []
    for asked in schemes:
        progress(asked.text)
        try:
            found.append(_row(asked, weights, keys, changed))
        except ValueError as error:
            raise ValueError(f"{asked.text}: {error}") from error
    return found


def _row(asked: Asked, weights: Weights, keys: Keys, changed: Sequence[tuple[str, Weights]]) -> Row:
    scheme, seconds = timed_build(SCHEMES[asked.scheme], weights, asked.options)
    placed, nanoseconds = timed_place(scheme, keys)
    relative = loads(scheme, placed)
    after = {}
    for text, new_weights in changed:
        new = scheme.after(new_weights)
        after[text] = disruption(scheme, placed, new, new.place(keys))
    return Row(asked.text, balance(relative), after, Cost(seconds, nanoseconds, scheme.memory), relative)


def as_json(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Everything but the single loads."""
    return [
        {
            "scheme": row.scheme,
            "balance": asdict(row.balance),
            "disruption": {text: asdict(change) for text, change in row.changes.items()},
            "cost": asdict(row.cost),
        }
        for row in found
    ]


def table(found: Sequence[Row], changes: Sequence[str]) -> Table:
    """For a person. Of each change the keys that had to move, and those that moved besides."""
    shown = Table("scheme", box=None)
    for head in ("max", "min", "sd", *(f"{text}, % + extra" for text in changes), "build ms", "ns/key", "memory"):
        shown.add_column(head, justify="right")
    for row in found:
        moved = [row.changes[text] for text in changes]
        shown.add_row(
            row.scheme,
            f"{row.balance.largest:.3f}",
            f"{row.balance.smallest:.3f}",
            f"{row.balance.deviation:.4f}",
            *(f"{one.needed * 100:.2f} + {one.extra * 100:.2f}" for one in moved),
            f"{row.cost.build_seconds * 1e3:.1f}",
            f"{row.cost.lookup_ns:.1f}",
            _bytes(row.cost.memory),
        )
    return shown


def _bytes(count: int) -> str:
    return f"{count} B" if count < 10_000 else f"{count / 1024:.0f} KiB" if count < 1 << 23 else f"{count >> 20} MiB"
