"""Traffic sources, one kind a file, and the nodes that they send to."""

from typing import Protocol


class Source(Protocol):
    """Sends frames of many flows to a node's vips."""

    name: str

    def start(self, rate: float, size: int) -> None:
        """Send `rate` packets per second of `size` bytes, check sequence included; rate 0: as many as it can."""

    def stop(self) -> int:
        """Stop; return when all is on the wire, with how many packets were sent."""


class Counted(Protocol):
    """What forwards them, and knows how many."""

    name: str

    def forwarded(self) -> int:
        """Packets forwarded since it began. Moves on until what was sent has passed."""
