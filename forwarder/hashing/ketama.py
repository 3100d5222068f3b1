"""`ketama`: the ring as memcached clients (libketama, Richard Jones, 2007) and Dubbo's ConsistentHashSelector build
it: one MD5 gives four points, so that 160 points cost 40 digests.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from forwarder.hashing.circle import Circle, Points, digest
from forwarder.hashing.scheme import Keys, Positions, Scheme

POINTS_PER_DIGEST = 4


@lru_cache(maxsize=1 << 14)  # as in ring.py
def points_of(name: str, count: int) -> Points:
    """The 16 bytes of the MD5 of `name-0`, `name-1`, ... as four little-endian numbers each."""
    digests = -(-count // POINTS_PER_DIGEST)
    joined = b"".join(digest(f"{name}-{number}") for number in range(digests))
    return np.frombuffer(joined, dtype="<u4")[:count].astype(np.uint32)


class Ketama(Scheme):
    """A circle with `points` points for the heaviest backend."""

    scheme = "ketama"

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
