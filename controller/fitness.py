"""Is the forwarder fit to attract traffic? Decided from what it answers; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STALL_SECONDS = 1.0
"""An lcore whose loop counter stands still this long is sick; idle ones turn too."""

LONGEST_LOOK = 0.5
"""Two looks at an lcore that lie further apart tell of so many seconds of it."""

SILENCE_SECONDS = 2.0
"""A forwarder that answers no ping this long is sick. The first silence already withdraws."""

CANARY_FAILURES = 3
"""Canaries in a row, failed by the forwarder's fault, after which a restart is tried. One already withdraws."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """`fit`: may be announced. `sick`: only a restart helps (a link that is down is not sick)."""

    fit: bool
    reason: str
    sick: bool = False


ADOPTED = Fitness(True, "adopted, not judged yet")
STARTING = Fitness(False, "starting")
NO_CANARY = Fitness(False, "no canary yet")
FIT = Fitness(True, "ok")


@dataclass(frozen=True, slots=True)
class Canary:
    """The last canary, and how many in a row failed by the forwarder's fault and not the network's around it."""

    passed: bool | None = None
    reason: str = "not sent yet"
    failures: int = 0

    def after(self, passed: bool, reason: str, sick: bool) -> Canary:
        """The record after one more canary."""
        return Canary(passed, reason, self.failures + 1 if sick and not passed else 0)


def unreachable(reason: str, silent_for: float) -> Fitness:
    """A forwarder that lives and has not answered well for so many seconds."""
    return Fitness(False, reason, sick=silent_for >= SILENCE_SECONDS)


def judge(stalled: Sequence[str], ports: Sequence[Mapping[str, Any]], canary: Canary) -> Fitness:
    """The verdict on a forwarder that answered a ping."""
    if stalled:
        return Fitness(False, f"no progress on {', '.join(stalled)}", sick=True)
    down = sorted(str(port["device"]) for port in ports if not port["link"])
    if down:
        return Fitness(False, f"link down: {', '.join(down)}")
    if canary.passed is None:
        return NO_CANARY
    if not canary.passed:
        return Fitness(False, f"canary: {canary.reason}", sick=canary.failures >= CANARY_FAILURES)
    return FIT


@dataclass(slots=True)
class Turns:
    """The loop counter of each lcore, and for how long it was seen to stand still."""

    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    _looked: float = 0.0

    def stalled(self, lcores: Sequence[Mapping[str, Any]], now: float) -> list[str]:
        """Names of the lcores that have not moved for STALL_SECONDS, given what a ping at `now` said.

        A long time between two looks counts as a short one: who stood still then was this process, and perhaps all of
        the machine with it, and an lcore must have had the time to go on.
        """
        passed = min(now - self._looked, LONGEST_LOOK)
        self._looked = now
        result = []
        for lcore in lcores:
            name = f"{lcore['stage']} {lcore['index']}"
            turns, still = self._seen.get(name, (None, 0.0))
            still = still + passed if turns == lcore["turns"] else 0.0
            self._seen[name] = (lcore["turns"], still)
            if still >= STALL_SECONDS:
                result.append(name)
        return result
