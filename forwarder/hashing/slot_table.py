"""The table of a set of weighted names that a vip's packets are looked up in: slot -> backend.

A table is a function of (scheduler, names, weights, size) alone, so that all nodes build the same one. The packet
path knows nothing of schedulers: each is compiled to such a table here.
"""

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from forwarder import _hashing
from forwarder.hashing.primes import is_prime

MAX_SIZE = 1 << 24
MAX_MEMBERS = 0xFFFE
MAX_WEIGHT = (1 << 32) - 1
MAGLEV = "maglev"
SCHEDULERS = (MAGLEV, "rendezvous", "ring", "ketama", "bounded", "jump", "gateway", "range", "modulo")
"""The schemes that a vip may use, the best first: those without history."""
WITH_HISTORY = ("vnode", "partition", "sticky")
"""Schemes that no vip may use: two nodes with different pasts would not agree."""


@dataclass(frozen=True, slots=True)
class Table:
    """`slots[i]` is the position in `names` of the owner of slot i; no slots when there are no names.

    `digest` is SHA-256 over size, names and slots (16-bit little-endian): equal exactly for equal tables.
    """

    names: tuple[str, ...]
    size: int
    slots: "array[int]"
    digest: str

    def counts(self) -> dict[str, int]:
        """Slots per name."""
        owned = Counter(self.slots)
        return {name: owned[position] for position, name in enumerate(self.names)}


def _table(names: tuple[str, ...], size: int, slots: "array[int]") -> Table:
    little = slots
    if sys.byteorder == "big":
        little = array("H", slots)
        little.byteswap()
    hashed = hashlib.sha256("\0".join((str(size), *names, "")).encode())
    hashed.update(little)  # as it lies in memory: other threads run meanwhile
    return Table(names, size, slots, hashed.hexdigest())


def build(weights: Mapping[str, int], size: int, scheduler: str = MAGLEV) -> Table:
    """The table of `size` slots for {name: weight}. Names of weight 0 own nothing and are left out.

    Raises ValueError for a size that is not a prime, weights that are negative or beyond MAX_WEIGHT, too many names,
    or a scheduler that is not one.
    """
    if not is_prime(size) or size > MAX_SIZE:
        raise ValueError(f"table size {size} is not a prime of at most {MAX_SIZE}")
    if any(weight < 0 for weight in weights.values()):
        raise ValueError("a weight is negative")
    if any(weight > MAX_WEIGHT for weight in weights.values()):
        raise ValueError(f"a weight is more than {MAX_WEIGHT}")
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler {scheduler} is not one of {', '.join(SCHEDULERS)}")
    encoded = sorted(name.encode() for name, weight in weights.items() if weight > 0)
    if len(encoded) > MAX_MEMBERS:
        raise ValueError(f"{len(encoded)} backends in one table; at most {MAX_MEMBERS}")
    names = tuple(name.decode() for name in encoded)
    if not names:
        return _table((), size, array("H"))
    if scheduler == MAGLEV:
        slots = _hashing.build(encoded, [weights[name] for name in names], size)
    else:
        slots = _compiled(scheduler, weights, size)
    return _table(names, size, slots)


def _compiled(scheduler: str, weights: Mapping[str, int], size: int) -> "array[int]":
    from forwarder.hashing.schemes import SCHEMES  # here: who needs Maglev only needs no NumPy in memory

    slots = array("H")
    slots.frombytes(SCHEMES[scheduler](weights).slots(size).astype("u2").tobytes())
    return slots
