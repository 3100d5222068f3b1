"""One probe: asks once within its deadline, and tells a backend's failure from a trouble of this node."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

_OUT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}
_OURS = frozenset(_OUT_OF | {errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
"""Errors of this machine, out of files, memory or local ports, or without IPv6: the backend was never asked."""


class Outcome(Enum):
    """What a probe says of its target."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_PROBED = "not probed"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`reason` is for the operator, `seconds` how long it took."""

    outcome: Outcome
    reason: str
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the backend is as it should be; if not, it need not be the backend that failed."""
        return self.outcome is Outcome.PASSED


class ProbeFailedError(Exception):
    """The backend is not as it should be; the message is the reason."""


class NotProbedError(Exception):
    """This node could not ask; the message says why."""


class Probe(ABC):
    """One kind of health check aimed at one address."""

    awaited = "answer"
    """What there was not when time is up, or the way to the backend is closed."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    @abstractmethod
    async def ask(self) -> str:
        """Ask once; returns the reason of a pass. A failure is an OSError or a ProbeFailedError."""

    async def probe(self) -> ProbeResult:
        """Ask once within the timeout. Raises only what is a fault of ours."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                outcome, reason = Outcome.PASSED, await self.ask()
        except ProbeFailedError as failure:
            outcome, reason = Outcome.FAILED, str(failure)
        except NotProbedError as trouble:
            outcome, reason = Outcome.NOT_PROBED, f"not probed: {trouble}"
        except OSError as error:
            outcome, reason = self._refusal(error)
        return ProbeResult(outcome, reason, time.monotonic() - began)

    def _refusal(self, error: OSError) -> tuple[Outcome, str]:
        """In the words of the system, but for our own deadline."""
        if isinstance(error, TimeoutError) and not error.errno:
            return Outcome.FAILED, f"no {self.awaited} within {self._timeout:g} s"
        words = os.strerror(error.errno) if error.errno else str(error) or "the connection ended"
        if error.errno in _OURS:
            return Outcome.NOT_PROBED, f"not probed: {words}"
        return Outcome.FAILED, f"no {self.awaited}: {words}"
