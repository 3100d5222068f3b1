"""The binary search of RFC 2544 for the highest rate without loss. Pure: a trial is a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """One run at one rate: packets sent, and of those forwarded."""

    sent: int
    forwarded: int

    @property
    def lost(self) -> int:
        """Packets sent and not forwarded."""
        return self.sent - self.forwarded


def highest_rate(
    trial: Callable[[float], Trial], highest: float, resolution: float, tries: int = 1, tolerated: float = 0.0
) -> float:
    """The highest rate, to within `resolution` (a share of `highest`), at which a trial lost nothing; 0: none was.

    A rate passes when one of `tries` trials lost at most the share `tolerated`: on a machine that others use too, one
    loss may be theirs. What is returned has passed itself; nothing above it by `resolution` has.
    """

    def passes(rate: float) -> bool:
        runs = (trial(rate) for _ in range(tries))
        return any(run.sent > 0 and run.lost <= tolerated * run.sent for run in runs)

    if passes(highest):
        return highest
    low, high = 0.0, highest
    while high - low > resolution * highest:
        middle = (low + high) / 2
        if passes(middle):
            low = middle
        else:
            high = middle
    return low
