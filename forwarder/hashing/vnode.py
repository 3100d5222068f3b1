"""`vnode`: the third step of the article on OpenStack Swift's ring: a fixed number of ranges, dealt to the
backends, and a new backend is given some of theirs. Only those move. Who owns what depends on what was before.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.rebalance import Owners, kept, rebalance, settled
from forwarder.hashing.scheme import SPACE, Keys, Positions, Scheme


class Vnode(Scheme):
    """`vnodes` ranges of 0 .. `space` - 1, their borders as in `range`."""

    scheme = "vnode"
    has_history = True

    def __init__(self, weights: Mapping[str, int], vnodes: int = 1000, space: int = SPACE) -> None:
        super().__init__(weights, vnodes=vnodes, space=space)
        if vnodes < len(self.names):
            raise ValueError(f"{vnodes} virtual nodes for {len(self.names)} backends; write at least one for each")
        self._starts = np.arange(vnodes, dtype=np.int64) * (space // vnodes)
        self.owners: Owners = dealt(self.weights, vnodes)

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        vnode = np.searchsorted(self._starts, keys, side="left") % len(self._starts)
        return self.owners[vnode].astype(np.uint32)

    def after(self, weights: Mapping[str, int]) -> Self:
        """The same ranges, as few as possible with another backend."""
        changed = super().after(weights)
        changed.owners = rebalance(kept(self.owners, self.names, changed.names), changed.weights)
        return changed

    @property
    def memory(self) -> int:
        """Borders, and 16 bits for each owner."""
        return self._starts.nbytes + 2 * len(self.owners)


def dealt(weights: NDArray[np.int64], places: int) -> Owners:
    """Owners of `places`, dealt round until each one's share is reached."""
    left = settled(weights, places)
    rounds = [np.flatnonzero(left > turn) for turn in range(int(left.max()))]
    return np.concatenate(rounds).astype(np.int64)
