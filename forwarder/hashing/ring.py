"""`ring`: consistent hashing (Karger et al., STOC 1997). Backends and keys are points of a circle, and a key
belongs to the next backend clockwise. With one point each, shares differ wildly; `points` virtual nodes a backend,
the MD5 of `name#i`, even them out as 1 / sqrt(points).
"""

from functools import lru_cache

import numpy as np

from forwarder.hashing.circle import OnCircle, Points, digest


@lru_cache(maxsize=1 << 14)  # a backend that comes and goes does not hash anew those that stay
def points_of(name: str, count: int) -> Points:
    """The first four bytes, big-endian, of the MD5 of `name#0` .. `name#count-1`."""
    digests = b"".join(digest(f"{name}#{number}") for number in range(count))
    return np.frombuffer(digests, dtype=">u4")[::4].astype(np.uint32)


class Ring(OnCircle):
    """Karger's circle; the points of a name are the MD5s of `name#i`."""

    scheme = "ring"
    points_of = staticmethod(points_of)
