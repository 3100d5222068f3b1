"""What one probe found out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`reason` is for the operator, `seconds` how long it took."""

    passed: bool
    reason: str
    seconds: float


class Probe(Protocol):
    """One kind of health check aimed at one address."""

    async def probe(self) -> ProbeResult:
        """Ask once, within the timeout of the check. Never raises."""


def refusal(error: OSError) -> str:
    """Why there is no connection, in the words of the system."""
    return f"no connection: {os.strerror(error.errno)}" if error.errno else f"no connection: {error}"
