"""The section of a health check: what all kinds have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from controller.config_values import duration, one_of, whole
from controller.durations import DAY
from controller.section import Section


class Check(Section):
    """When a target is probed and what its results amount to; a kind adds what is asked, and of which port.

    `rise` passes in a row bring up, `fall` failures bring down. While a target is in doubt it is probed every
    `fast_interval`, if there is one.
    """

    type: str = Field(examples=["http"])
    interval: Annotated[float, duration(0.01, DAY)] = 1.0
    fast_interval: Annotated[float, duration(0.01, DAY)] | None = None
    timeout: Annotated[float, duration(0.01, DAY)] = 0.5
    rise: Annotated[int, whole(1, 1000)] = 2
    fall: Annotated[int, whole(1, 1000)] = 3

    @property
    def through_tunnel(self) -> bool:
        """Whether it goes to the vip by way of the backend, as packets of clients do."""
        return False

    def pace(self, in_doubt: bool) -> float:
        """Seconds from one probe to the next."""
        return self.fast_interval if in_doubt and self.fast_interval else self.interval


class PortCheck(Check):
    """A check of a port, of the backend's address or, `via: tunnel`, of each vip that the backend serves."""

    via: Annotated[Literal["direct", "tunnel"], one_of("direct", "tunnel")] = "direct"

    @property
    def through_tunnel(self) -> bool:
        """See Check."""
        return self.via == "tunnel"
