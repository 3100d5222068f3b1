"""`speaker: none`: wishes are recorded and nobody is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from controller.model import Address
from controller.process import adopt
from controller.rundir import RunDir
from controller.speakers.exabgp import STOP_GRACE, program


class NoSpeaker:
    """Announces nothing."""

    kind = "none"
    pid: int | None = None
    connected = True
    sessions: Mapping[str, str] = {}

    def __init__(self, run_dir: RunDir) -> None:
        self.wanted: frozenset[Address] = frozenset()
        self._run_dir = run_dir

    async def start(self) -> None:
        """End the speaker that an earlier controller, with another configuration, has left."""
        if left := adopt(program(self._run_dir)):
            await left.stop(STOP_GRACE)

    async def standing(self, within: float) -> frozenset[Address] | None:
        """Nobody to ask."""
        return None

    def want(self, addresses: Collection[Address], known: Collection[Address]) -> None:
        """Record the wish."""
        self.wanted = frozenset(addresses)

    async def settled(self, within: float) -> bool:
        """At once."""
        return True

    async def stop(self) -> None:
        """Forget the wish."""
        self.wanted = frozenset()
