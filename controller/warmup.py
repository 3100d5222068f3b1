"""When a new controller knows enough to change anything that already runs."""

from __future__ import annotations

from collections.abc import Iterable

from controller.config_sections import HealthCheck
from controller.model import Verdict


def is_warm(verdicts: Iterable[Verdict]) -> bool:
    """Whether every check has a verdict."""
    return Verdict.UNKNOWN not in verdicts


def grace(checks: Iterable[HealthCheck]) -> float:
    """Seconds after which what has no verdict is flapping, and is not waited for any longer.

    A check that gives equal results has its verdict by then: a jittered start, its beats, a timeout.
    """
    return max(((max(c.rise, c.fall) + 1) * c.interval + c.timeout for c in checks), default=0.0)
