"""`maglev`: Eisenbud et al., "Maglev" (NSDI 2016), with weights. Each backend prefers the slots of a table in an
order of its own and they take turns, so shares are exact; when one leaves, its slots are shared out and a few
others move.
"""

from collections.abc import Mapping

import numpy as np

from forwarder import _hashing
from forwarder.hashing.primes import is_prime
from forwarder.hashing.scheme import Keys, Positions, Scheme, by_remainder


class Maglev(Scheme):
    """A table of `size` slots, a prime; a key's slot is its remainder."""

    scheme = "maglev"

    def __init__(self, weights: Mapping[str, int], size: int = 65537) -> None:
        super().__init__(weights, size=size)
        self._slots = self.slots(size)

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return by_remainder(self._slots, keys)

    @property
    def memory(self) -> int:
        """The table, 16 bits a slot."""
        return len(self._slots) * 2

    def slots(self, size: int) -> Positions:
        """The table itself. Raises ValueError for a size that is no prime."""
        if not is_prime(size):
            raise ValueError(f"table size {size} is not a prime")
        names = [name.encode() for name in self.names]
        return np.frombuffer(_hashing.build(names, self.weights.tolist(), size), dtype=np.uint16).astype(np.uint32)
