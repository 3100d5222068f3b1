"""Pools of which too large a part is down at once to believe it: their checks count for nothing until fewer are.

A function of the configuration, the verdicts and the operator's drains: nodes that see the same do the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controller.config_sections import BackendEntry, Pool
from controller.model import Address, Verdict
from controller.reconcile import Verdicts


@dataclass(frozen=True, slots=True)
class Panic:
    """A pool that is kept: how many of its backends are down, and of how many that should take new flows."""

    down: int
    of: int


def panics(pools: Mapping[str, Pool], verdicts: Verdicts, drained: Collection[str]) -> dict[str, Panic]:
    """The pools of which more than `panic_above` is down, by name.

    A pool's own backends count, not those of pools inside, and of them only those that should take new flows. One
    without a verdict is not down: nothing is known to have failed.
    """
    found = {}
    known: dict[tuple[Address, str], set[Verdict]] = {}
    for key, verdict in verdicts.items():
        known.setdefault((key.address, key.check), set()).add(verdict)
    for name, pool in sorted(pools.items()):
        if pool.panic_above is None or not pool.health_checks:
            continue
        entries = [e for e in pool.backends if isinstance(e, BackendEntry)]
        wanted = [e for e in entries if e.weight and not e.drain and e.name not in drained]
        down = sum(_is_down(entry, pool, known) for entry in wanted)
        if down > pool.panic_above * len(wanted):
            found[name] = Panic(down, len(wanted))
    return found


def _is_down(entry: BackendEntry, pool: Pool, known: Mapping[tuple[Address, str], set[Verdict]]) -> bool:
    """Of a check through the tunnel, for every vip that it is made for."""
    return any(known.get((entry.address, check)) == {Verdict.DOWN} for check in pool.health_checks)
