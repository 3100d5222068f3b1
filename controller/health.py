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

    def after(self, passed: bool, rise: int, fall: int) -> Health:
        """The health after one more result.

        `rise` passes in a row bring up, `fall` failures in a row bring down; the first verdict takes as many.
        """
        if passed:
            passes = self.passes + 1
            return Health(Verdict.UP if passes >= rise else self.verdict, passes, 0)
        failures = self.failures + 1
        return Health(Verdict.DOWN if failures >= fall else self.verdict, 0, failures)
