"""Health of one (address, check): what a row of probe results amounts to. No clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from controller.model import Verdict


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict and the run of equal results that may change it; one of the two counts is always 0."""

    verdict: Verdict = Verdict.UNKNOWN
    passes: int = 0
    failures: int = 0

    @property
    def in_doubt(self) -> bool:
        """Whether there is no verdict yet, or the last result speaks against it."""
        return {Verdict.UP: self.failures > 0, Verdict.DOWN: self.passes > 0}.get(self.verdict, True)

    def after(self, passed: bool, rise: int, fall: int) -> Health:
        """The health after one more result.

        `rise` passes in a row bring up, `fall` failures in a row bring down; the first verdict takes as many.
        """
        if passed:
            passes = self.passes + 1
            return Health(Verdict.UP if passes >= rise else self.verdict, passes, 0)
        failures = self.failures + 1
        return Health(Verdict.DOWN if failures >= fall else self.verdict, 0, failures)
