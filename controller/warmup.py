"""When a new controller knows enough to change anything that already runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from controller.model import Verdict
from controller.probes.check import Check


def is_warm(verdicts: Iterable[Verdict]) -> bool:
    """Whether every check has a verdict."""
    return Verdict.UNKNOWN not in verdicts


def grace(checks: Iterable[Check]) -> float:
    """Seconds after which what has no verdict is flapping, and is not waited for any longer.

    A check that gives equal results has its verdict by then: a start somewhere in its first beat, its beats, of which
    a slow probe needs several, and a timeout.
    """
    return max(map(_longest, checks), default=0.0)


def _longest(check: Check) -> float:
    pace = check.pace(in_doubt=True)
    beats = max(check.rise, check.fall) * max(1, math.ceil(check.timeout / pace))
    return (beats + 1) * pace + check.timeout
