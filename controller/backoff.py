"""How long to wait before starting a program again. No clock: the caller says how long it ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubles from `first` to `cap` with every early death, and starts over after a healthy while."""

    first: float = 0.1
    cap: float = 10.0
    healthy_after: float = 30.0
    failures: int = 0

    def after(self, ran_for: float) -> float:
        """The seconds to wait now that a run of `ran_for` seconds has ended."""
        self.failures = 1 if ran_for >= self.healthy_after else self.failures + 1
        return delay(self.failures, self.first, self.cap)


def delay(failures: int, first: float, cap: float) -> float:
    """The wait after so many failures in a row (the first one is 1)."""
    doublings = min(failures - 1, 60)  # far beyond any cap, and a float holds it
    return min(cap, first * float(2**doublings))
