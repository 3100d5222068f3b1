"""Gregory Holt, "Building a Consistent Hashing Ring" (OpenStack Swift's documentation): from the remainder to the
ring.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forwarder.hashing.modulo import Modulo
from forwarder.hashing.partition import Partition
from forwarder.hashing.ranges import Range
from forwarder.hashing.scheme import Keys, Positions, Scheme
from forwarder.hashing.vnode import Vnode

IDS = 10_000_000
NODES = 100
VNODES = 1000
POWER, RING_NODES = 23, 65536


def nodes(count: int) -> dict[str, int]:
    """Names whose order is that of the article's numbers."""
    return {f"{number:05}": 1 for number in range(count)}


@dataclass(frozen=True, slots=True)
class Spread:
    """The fullest and the emptiest of the nodes, in ids."""

    largest: int
    smallest: int


@dataclass(frozen=True, slots=True)
class Moves:
    """Ids that moved when the hundred nodes became 101, by scheme."""

    modulo: int
    ranges: int
    vnodes: int


@dataclass(frozen=True, slots=True)
class Ring:
    """2^23 partitions over 65536 nodes, and then over one more."""

    spread: Spread
    table_bytes: int
    moved: int
    spread_after: Spread
    table_bytes_after: int


def spread(positions: Positions, count: int) -> Spread:
    """How many each of `count` nodes has."""
    counts = np.bincount(positions, minlength=count)
    return Spread(int(counts.max()), int(counts.min()))


def modulo_spread(keys: Keys) -> Spread:
    """The first step of the article."""
    return spread(Modulo(nodes(NODES)).place(keys), NODES)


def moves(keys: Keys) -> Moves:
    """What a node more moves in the article's first three steps. `keys` are the MD5 of the ids."""
    remainders = keys % np.uint32(IDS)

    def moved(scheme: Scheme, placed: Keys) -> int:
        return int(np.count_nonzero(scheme.place(placed) != scheme.after(nodes(NODES + 1)).place(placed)))

    return Moves(
        modulo=moved(Modulo(nodes(NODES)), keys),
        ranges=moved(Range(nodes(NODES), space=IDS), remainders),
        vnodes=moved(Vnode(nodes(NODES), vnodes=VNODES, space=IDS), remainders),
    )


def ring() -> Ring:
    """The ring in full size."""
    before = Partition(nodes(RING_NODES), power=POWER)
    after = before.after(nodes(RING_NODES + 1))
    return Ring(
        spread(before.owners[0], RING_NODES),
        before.memory,
        int(np.count_nonzero(before.owners != after.owners)),
        spread(after.owners[0], RING_NODES + 1),
        after.memory,
    )
