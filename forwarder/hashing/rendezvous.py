"""`rendezvous`: highest random weight (Thaler and Ravishankar, 1998). Every backend scores every key, the highest
takes it. Nothing is kept, weights are exact (Schindelhauer and Schomaker, 2005) and nothing moves that need not; a
lookup costs a score per backend, so a load balancer compiles it to a table.
"""

from collections.abc import Mapping

import numpy as np

from forwarder import _hashing
from forwarder.hashing.circle import digest
from forwarder.hashing.scheme import Keys, Positions, Scheme


class Rendezvous(Scheme):
    """Scores from two words of the name's MD5 (`csrc/place.h`)."""

    scheme = "rendezvous"

    def __init__(self, weights: Mapping[str, int]) -> None:
        super().__init__(weights)
        words = np.frombuffer(b"".join(digest(name)[:8] for name in self.names), dtype="<u4")
        self._seeds = np.ascontiguousarray(words.reshape(-1, 2), dtype=np.uint32)

    def place(self, keys: Keys) -> Positions:
        """See Scheme; a score per key and backend."""
        positions = np.empty(len(keys), dtype=np.uint32)
        _hashing.rendezvous(np.ascontiguousarray(keys), self._seeds, self.weights.astype(np.float64), positions)
        return positions

    @property
    def memory(self) -> int:
        """Seeds and weights."""
        return self._seeds.nbytes + self.weights.nbytes
