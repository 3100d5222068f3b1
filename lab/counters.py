"""The same packets, counted by the client, the nodes and the backends: the numbers must agree."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Self

from lab import nodes, topology
from lab.topology import BACKENDS, NODES

FORWARDED: Final = ("conn_hit", "hash_new", "hash_untracked", "icmp_error", "fragment")
NEW_FLOW: Final = ("hash_new", "hash_untracked")
PATIENCE: Final = 3.0  # seconds until the last acknowledgements are through


@dataclass(frozen=True, slots=True)
class Counters:
    """Packets since the lab is up, or between two readings."""

    segments: int  # sent by the client's TCP, retransmitted ones included
    forwarded: int  # by all nodes
    new_flows: int  # of the forwarded ones
    decapsulated: int  # at all backends

    @classmethod
    def read(cls) -> Self:
        """Ask every kernel and every node."""
        fates = [nodes.fates(node) for node in NODES]
        return cls(
            segments=topology.segments_sent(),
            forwarded=sum(each[fate] for each in fates for fate in FORWARDED),
            new_flows=sum(each[fate] for each in fates for fate in NEW_FLOW),
            decapsulated=sum(map(topology.decapsulated, BACKENDS)),
        )

    def since(self, before: Counters) -> Counters:
        """What was counted after `before`."""
        return Counters(
            self.segments - before.segments, self.forwarded - before.forwarded,
            self.new_flows - before.new_flows, self.decapsulated - before.decapsulated,
        )  # fmt: skip

    def agree(self, opened: int) -> bool:
        """Whether every segment was forwarded and came out at a backend, and each connection was new once."""
        return self.segments == self.forwarded == self.decapsulated and self.new_flows == opened

    def sentence(self, opened: int) -> str:
        """The numbers side by side."""
        return (
            f"packets sent {self.segments}, forwarded {self.forwarded}, decapsulated {self.decapsulated}; "
            f"flows {self.new_flows} of {opened}"
        )


def when_settled(before: Counters, opened: int) -> Counters:
    """The counters since `before` once they agree, or as they are when they still do not."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = Counters.read().since(before)
        if found.agree(opened) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)
