"""`jump`: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014). Buckets are numbers; a key
jumps from one to a later one where it would have moved as buckets were added. No memory, and as even as hashes are,
but only the last bucket can leave without harm: a name in the middle shifts all behind it.
"""

from collections.abc import Mapping

import numpy as np

from forwarder import _hashing
from forwarder.hashing.scheme import Keys, Positions, Scheme


class Jump(Scheme):
    """Buckets are backends in order of name, each as often as its weight (in smallest terms)."""

    scheme = "jump"

    def __init__(self, weights: Mapping[str, int]) -> None:
        super().__init__(weights)
        self._owners = self.tickets()

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        buckets = np.empty(len(keys), dtype=np.uint32)
        _hashing.jump(np.ascontiguousarray(keys), len(self._owners), buckets)
        return self._owners[buckets]

    @property
    def memory(self) -> int:
        """The owners of buckets."""
        return len(self._owners) * 2
