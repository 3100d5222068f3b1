"""`ketama`: the ring as memcached clients (libketama, Richard Jones, 2007) and Dubbo's ConsistentHashSelector build
it: one MD5 gives four points, so that 160 points cost 40 digests.
"""

from functools import lru_cache

import numpy as np

from forwarder.hashing.circle import OnCircle, Points, digest

POINTS_PER_DIGEST = 4


@lru_cache(maxsize=1 << 14)  # as in ring.py
def points_of(name: str, count: int) -> Points:
    """The 16 bytes of the MD5 of `name-0`, `name-1`, ... as four little-endian numbers each."""
    digests = -(-count // POINTS_PER_DIGEST)
    joined = b"".join(digest(f"{name}-{number}") for number in range(digests))
    return np.frombuffer(joined, dtype="<u4")[:count].astype(np.uint32)


class Ketama(OnCircle):
    """Four points from each MD5."""

    scheme = "ketama"
    points_of = staticmethod(points_of)
