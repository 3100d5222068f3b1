"""`range`: each backend owns one piece of the key space, as long as its weight. From the article on OpenStack
Swift's ring by Gregory Holt, who shows why it is no way out either: one backend more shifts every border, and half
the keys move.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.scheme import MOST_TICKETS, SPACE, Keys, Positions, Scheme


class Range(Scheme):
    """Contiguous ranges of 0 .. `space` - 1. As in the article a border belongs to the range that ends there, and
    what is behind the last one to the first backend.
    """

    scheme = "range"

    def __init__(self, weights: Mapping[str, int], space: int = SPACE) -> None:
        super().__init__(weights, space=space)
        lengths = np.bincount(self.tickets(min(MOST_TICKETS, space)), minlength=len(self.names))
        # Of the first one's range, all but key 0 is what is behind the last border.
        self._starts: NDArray[np.int64] = (np.cumsum(lengths) - lengths[0]) * (space // int(lengths.sum()))

    def place(self, keys: Keys) -> Positions:
        """By bisection; see Scheme."""
        return (np.searchsorted(self._starts, keys, side="left") % len(self.names)).astype(np.uint32)

    @property
    def memory(self) -> int:
        """The borders."""
        return self._starts.nbytes
