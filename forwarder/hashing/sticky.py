"""`sticky`: the article on game servers ends with something simpler than any ring: give each new key to the backend
with the least, and remember it. Balance is perfect and nothing moves; the price is a memory of every key, shared by
all who decide.
"""

import heapq
from collections.abc import Mapping
from typing import Self

import numpy as np

from forwarder.hashing.rebalance import NOBODY, kept
from forwarder.hashing.scheme import Keys, Positions, Scheme


class Sticky(Scheme):
    """Least-loaded by weight, ties to the earlier name. `place` remembers."""

    scheme = "sticky"
    has_history = True

    def __init__(self, weights: Mapping[str, int]) -> None:
        super().__init__(weights)
        self._keys = np.empty(0, dtype=np.uint32)  # ascending
        self._owners = np.empty(0, dtype=np.int64)

    def place(self, keys: Keys) -> Positions:
        """See Scheme. New keys are given out in their order."""
        found, first = np.unique(keys, return_index=True)
        new = ~np.isin(found, self._keys, assume_unique=True)
        new_keys = keys[np.sort(first[new])]
        self._remember(new_keys, self._least_loaded(len(new_keys)))
        return self._owners[np.searchsorted(self._keys, keys)].astype(np.uint32)

    def _least_loaded(self, count: int) -> list[int]:
        share = self.weights.tolist()
        loads = np.bincount(self._owners, minlength=len(share)).tolist()
        emptiest = [((load + 1) / weight, o) for o, (load, weight) in enumerate(zip(loads, share, strict=True))]
        heapq.heapify(emptiest)
        chosen = []
        for _ in range(count):
            owner = emptiest[0][1]
            loads[owner] += 1
            heapq.heapreplace(emptiest, ((loads[owner] + 1) / share[owner], owner))
            chosen.append(owner)
        return chosen

    def _remember(self, keys: Keys, owners: list[int]) -> None:
        joined = np.concatenate([self._keys, keys])
        order = np.argsort(joined)
        self._keys = joined[order]
        self._owners = np.concatenate([self._owners, np.array(owners, dtype=np.int64)])[order]

    def after(self, weights: Mapping[str, int]) -> Self:
        """Keys of those who stay are remembered, the others are new again."""
        changed = super().after(weights)
        owners = kept(self._owners, self.names, changed.names)
        stay = owners != NOBODY
        changed._keys, changed._owners = self._keys[stay], owners[stay]
        return changed

    @property
    def memory(self) -> int:
        """32 bits for each key, 16 for its owner."""
        return 6 * len(self._keys)
