"""`ring`: consistent hashing (Karger et al., STOC 1997). Backends and keys are points of a circle, and a key
belongs to the next backend clockwise. With one point each, shares differ wildly; `points` virtual nodes a backend,
the MD5 of `name#i`, even them out as 1 / sqrt(points).
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from forwarder.hashing.circle import Circle, Points, digest
from forwarder.hashing.scheme import Keys, Positions, Scheme


@lru_cache(maxsize=1 << 14)  # a backend that comes and goes does not hash anew those that stay
def points_of(name: str, count: int) -> Points:
    """The first four bytes, big-endian, of the MD5 of `name#0` .. `name#count-1`."""
    digests = b"".join(digest(f"{name}#{number}") for number in range(count))
    return np.frombuffer(digests, dtype=">u4")[::4].astype(np.uint32)


class Ring(Scheme):
    """Karger's circle with `points` virtual nodes for the heaviest backend."""

    scheme = "ring"

    def __init__(self, weights: Mapping[str, int], points: int = 160) -> None:
        super().__init__(weights, points=points)
        self.circle = Circle(self, points, points_of)

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return self.circle.owners[self.circle.successors(keys)]

    @property
    def memory(self) -> int:
        """The circle."""
        return self.circle.memory
