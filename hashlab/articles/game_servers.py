"""An article on spreading game servers over nodes: how many points a node needs, and what a bound does for new
ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.bounded import Bounded
from forwarder.hashing.ketama import Ketama
from forwarder.hashing.ring import Ring
from forwarder.hashing.scheme import Keys
from hashlab.keys import md5_keys

NODES, NEW_NODES = 50, 10
IDS, NEW_IDS = 500_000, 100_000
POINTS = (1, 10, 40, 160, 320, 640, 1280, 2560)

Counts = NDArray[np.int64]


def nodes(count: int) -> dict[str, int]:
    """node01, node02, ..."""
    return {f"node{number:02}": 1 for number in range(1, count + 1)}


def ids(first: int, count: int) -> Keys:
    """Keys of server_`first` and those after it, shuffled."""
    keys = md5_keys(first + count, prefix="server_")[first:].tolist()
    Random(1).shuffle(keys)
    return np.array(keys, dtype=np.uint32)


def deviation(keys: Keys, points: int) -> float:
    """Of the ids that each of the nodes has, by points a node; the mean is IDS / NODES = 10 000."""
    return float(np.bincount(Ketama(nodes(NODES), points).place(keys), minlength=NODES).std())


@dataclass(frozen=True, slots=True)
class Growth:
    """Ids per node with 50 nodes, and after ten nodes and 100 000 ids more; the 500 000 ids stay where they were."""

    before: Counts
    new: Counts
    """Of the new ids alone, on each of the 60 nodes."""

    @property
    def after(self) -> Counts:
        """All ids."""
        total: Counts = np.concatenate([self.before, np.zeros(NEW_NODES, dtype=np.int64)]) + self.new
        return total

    @property
    def to_new_nodes(self) -> float:
        """Share of the new ids that the ten new nodes got."""
        return float(self.new[NODES:].sum() / NEW_IDS)

    @property
    def overload(self) -> float:
        """Of the fullest node, beyond the mean of all."""
        return float(self.after.max() / self.after.mean() - 1)


def grown(keys: Keys, new_keys: Keys, bound: float | None) -> Growth:
    """`bound`: None lets new ids go where the circle says, else nodes that hold bound times the mean are passed
    over.
    """
    before = np.bincount(Ring(nodes(NODES)).place(keys), minlength=NODES)
    all_nodes = nodes(NODES + NEW_NODES)
    if bound is None:
        placed = Ring(all_nodes).place(new_keys)
    else:
        loads = np.concatenate([before, np.zeros(NEW_NODES, dtype=np.int64)]).astype(np.uint64)
        placed = Bounded(all_nodes, bound=bound).place_more(new_keys, loads)
    return Growth(before, np.bincount(placed, minlength=NODES + NEW_NODES))
