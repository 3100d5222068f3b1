"""`bounded` and `bounded-maglev`: consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016).
No backend gets more than `bound` times its share of the keys; one that has that many is passed over, and the key
goes to the next backend of the circle, or of the Maglev table.
"""

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from forwarder import _hashing
from forwarder.hashing import ring
from forwarder.hashing.circle import Circle
from forwarder.hashing.maglev import Maglev
from forwarder.hashing.scheme import Keys, Positions, Scheme

Loads = NDArray[np.uint64]


class BoundedLoads(Scheme):
    """A key's place depends on those before it, so `place` takes its keys as all there are, one after another."""

    bound: float
    met: NDArray[np.int64]
    """Weights of those that a key can meet on its way, 0 of others."""

    @abstractmethod
    def walk(self, keys: Keys) -> tuple[NDArray[np.uint32], Positions]:
        """For each key where it begins, and the owners that it goes along from there."""

    def caps(self, keys: int) -> Loads:
        """The most of `keys` that each backend may have: its share times the bound, rounded up."""
        bound = Fraction(str(self.bound))  # as it was written: 1.2 * 5 is not more than 6
        total = int(self.met.sum()) * bound.denominator
        caps = [-(-keys * bound.numerator * weight // total) for weight in self.met.tolist()]
        return np.array(caps, dtype=np.uint64)

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return self.place_more(keys, np.zeros(len(self.names), dtype=np.uint64))

    def place_more(self, keys: Keys, loads: Loads) -> Positions:
        """Place keys that come to backends which have `loads` already; these are raised."""
        positions = np.empty(len(keys), dtype=np.uint32)
        caps = self.caps(len(keys) + int(loads.sum()))
        starts, owners = self.walk(keys)
        _hashing.bounded(starts, owners, caps, loads, positions)
        return positions


class Bounded(BoundedLoads):
    """Along Karger's circle with `points` points for the heaviest backend."""

    scheme = "bounded"

    def __init__(self, weights: Mapping[str, int], bound: float = 1.25, points: int = 160) -> None:
        super().__init__(weights, bound=bound, points=points)
        self.bound = at_least_one(bound)
        self.met = self.weights
        self._circle = Circle(self, points, ring.points_of)

    def walk(self, keys: Keys) -> tuple[NDArray[np.uint32], Positions]:
        """See BoundedLoads."""
        return self._circle.successors(keys), self._circle.owners

    @property
    def memory(self) -> int:
        """The circle, and a load and a cap per backend."""
        return self._circle.memory + 16 * len(self.names)


class BoundedMaglev(BoundedLoads):
    """Along a Maglev table of `size` slots: what a vip's `load_bound` does with live connections."""

    scheme = "bounded-maglev"

    def __init__(self, weights: Mapping[str, int], bound: float = 1.25, size: int = 65537) -> None:
        super().__init__(weights, bound=bound, size=size)
        self.bound = at_least_one(bound)
        self._slots = Maglev(weights, size).slots(size)
        self.met = np.where(np.bincount(self._slots, minlength=len(self.names)) > 0, self.weights, 0)

    def walk(self, keys: Keys) -> tuple[NDArray[np.uint32], Positions]:
        """See BoundedLoads."""
        return keys % np.uint32(len(self._slots)), self._slots

    @property
    def memory(self) -> int:
        """The table, and a load and a cap per backend."""
        return len(self._slots) * 2 + 16 * len(self.names)


def at_least_one(bound: float) -> float:
    """The bound, or ValueError: below 1 some keys would have no backend."""
    if bound < 1:
        raise ValueError(f"a bound of {bound} leaves keys without a backend; write one of at least 1")
    return bound
