"""`maglev`: Eisenbud et al., "Maglev" (NSDI 2016), with weights. Each backend prefers the slots of a table in an
order of its own and they take turns, so shares are exact; when one leaves, its slots are shared out and a few
others move.
"""

import numpy as np

from forwarder import _hashing
from forwarder.hashing.by_slot import BySlot
from forwarder.hashing.primes import is_prime
from forwarder.hashing.scheme import Positions


class Maglev(BySlot):
    """The paper's table; `size` is a prime."""

    scheme = "maglev"

    def slots(self, size: int) -> Positions:
        """The table itself. Raises ValueError for a size that is no prime."""
        if not is_prime(size):
            raise ValueError(f"table size {size} is not a prime")
        names = [name.encode() for name in self.names]
        return np.frombuffer(_hashing.build(names, self.weights.tolist(), size), dtype=np.uint16).astype(np.uint32)
