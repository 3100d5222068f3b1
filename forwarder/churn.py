"""What another state would do to the live flows, counted before it is applied."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from forwarder import _hashing
from forwarder._dataplane import Dataplane
from forwarder.hashing.flow import PROTOCOLS
from forwarder.hashing.slot_table import Table
from forwarder.stable_ids import Held
from forwarder.state_message import VipMessage
from forwarder.table_ids import BackendKey

NOBODY = 0xFFFF
"""Stands in slots for a backend without a number: it has no flow."""
Backends = frozenset[BackendKey]


@dataclass(frozen=True, slots=True)
class Side:
    """One vip as one state has it. Vips of one pool share what is in it, so that work is done once."""

    table: Table
    known: Backends
    usable: Backends
    """Those whose old flows go on."""
    client_affinity: bool


GONE = Side(Table((), 0, array("H"), ""), frozenset(), frozenset(), client_affinity=False)
"""A vip that a state does not have."""


@dataclass(frozen=True, slots=True)
class Churn:
    """A question about the state in force. `count` may run on a thread of its own, whatever is applied meanwhile.

    `vips`: (vip, its number, its side in force, its side in the other state) each. `backends`: what has a number.
    """

    dataplane: Dataplane
    vips: list[tuple[VipMessage, int, Side, Side]]
    backends: dict[BackendKey, Held]

    def count(self) -> list[dict[str, Any]]:
        """Of each vip: {"name", "address", "protocol", "port"}, and flows: {"live", "at_risk", "moved", "lost"}.

        `at_risk` and `moved` are None where entries do not tell a flow's slot: it is that of the client.
        """
        slots, usable = self._slots_by_table(), cache(self._bits)
        asked = [
            (number, slots(now), usable(now.usable), slots(then), usable(then.usable))
            for _, number, now, then in self.vips
        ]
        generations = dict(self.backends.values())
        counts = self.dataplane.churn(asked, generations)
        return [
            _service(vip) | _flows(now, then, *counted)
            for (vip, _, now, then), counted in zip(self.vips, counts, strict=True)
        ]

    def _slots_by_table(self) -> Callable[[Side], "array[int]"]:
        made: dict[tuple[str, int], array[int]] = {}

        def slots(side: Side) -> "array[int]":
            key = side.table.digest, id(side.known)
            if key not in made:
                made[key] = self._slots(side)
            return made[key]

        return slots

    def _slots(self, side: Side) -> "array[int]":
        addresses = dict(side.known)
        owners = [self.backends.get((name, addresses[name]), (NOBODY, 0))[0] for name in side.table.names]
        return _hashing.renumber(side.table.slots, array("H", owners))

    def _bits(self, backends: Backends) -> bytes:
        bits = bytearray(max((number for number, _ in self.backends.values()), default=0) // 8 + 1)
        for key in backends & self.backends.keys():
            number, _ = self.backends[key]
            bits[number // 8] |= 1 << number % 8
        return bytes(bits)


def _service(vip: VipMessage) -> dict[str, Any]:
    protocol = next(name for name, number in PROTOCOLS.items() if number == vip.protocol)
    return {"name": vip.name, "address": str(vip.address), "protocol": protocol, "port": vip.port}


def _flows(now: Side, then: Side, live: int, at_risk: int, moved: int, lost: int) -> dict[str, int | None]:
    gone = then is GONE
    return {
        "live": live,
        "at_risk": at_risk if gone or not then.client_affinity else None,
        "moved": moved if gone or not (now.client_affinity or then.client_affinity) else None,
        "lost": lost,
    }
