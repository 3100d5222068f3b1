"""Python's collector of cyclic garbage, set for a process with many things that live long and few cycles."""

from __future__ import annotations

import gc

_THRESHOLDS = (50_000, 20, 100)


def collect_seldom() -> None:
    """Look for garbage after 50 000 new objects instead of 700.

    Thousands of probes under way look like things that stay, and each time so many have come, everything is looked
    through: a quarter of a second in which no probe starts. Hardly anything of ours is in a cycle.
    """
    gc.set_threshold(*_THRESHOLDS)
