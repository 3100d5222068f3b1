"""`speaker: none`: wishes are recorded and nobody is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from controller.model import Address


class NoSpeaker:
    """Announces nothing."""

    kind = "none"
    pid: int | None = None
    connected = True
    sessions: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.wanted: frozenset[Address] = frozenset()

    async def start(self) -> None:
        """Nobody to start."""

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
