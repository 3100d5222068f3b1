"""What the controller wants of a BGP speaker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from controller.model import Address


class Speaker(Protocol):
    """Announces addresses for as long as the controller renews them."""

    kind: str

    @property
    def pid(self) -> int | None:
        """The speaker's process, where it has one."""

    @property
    def connected(self) -> bool:
        """Whether the speaker listens to us."""

    @property
    def sessions(self) -> Mapping[str, str]:
        """BGP sessions by neighbor: "up", "down - REASON", or "unknown"."""

    async def start(self) -> None:
        """Start the speaker, or adopt the one that runs. Nothing is said to it before `want`."""

    async def standing(self, within: float) -> frozenset[Address] | None:
        """What is announced by an adopted speaker, as far as it can tell in that time; None: unknown."""

    def want(self, addresses: Collection[Address], known: Collection[Address]) -> None:
        """Announce exactly these, from now on. `known` is all that may ever have been announced."""

    async def settled(self, within: float) -> bool:
        """Whether the speaker confirms in that time that it has taken the last wish."""

    async def stop(self) -> None:
        """Withdraw everything and end the speaker."""
