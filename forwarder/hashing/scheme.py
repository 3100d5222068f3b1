"""What all hashing schemes have in common: named, weighted backends, and keys that go to one of them each.

A key is a 32-bit hash of something; a position says which of `names`. Names stand in order of their bytes, so that
a scheme is a function of the set and never of the order in which it was listed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.quotas import quotas

Keys = NDArray[np.uint32]
Positions = NDArray[np.uint32]

SPACE = 1 << 32
"""Keys are 0 .. SPACE - 1."""
MOST_TICKETS = 1 << 16


def even_keys(count: int) -> Keys:
    """`count` keys at equal distances: what the slots of a table stand for."""
    return ((np.arange(count, dtype=np.uint64) << np.uint64(32)) // np.uint64(count)).astype(np.uint32)


def by_remainder(owners: Positions, keys: Keys) -> Positions:
    """For each key the owner at its remainder."""
    found: Positions = owners[keys % np.uint32(len(owners))]
    return found


class Scheme(ABC):
    """One way to place keys on {name: weight}. Names of weight 0 get nothing and are left out.

    Raises ValueError when nobody is left. `options` are those of the subclass, kept for `after`.
    """

    scheme: ClassVar[str]
    has_history: ClassVar[bool] = False
    """Whether what it does depends on what was before: then nodes would not agree, and no vip may use it."""

    def __init__(self, weights: Mapping[str, int], **options: Any) -> None:
        self.names = tuple(sorted((name for name, weight in weights.items() if weight > 0), key=str.encode))
        if not self.names:
            raise ValueError("no name has a positive weight")
        self.weights = np.array([weights[name] for name in self.names], dtype=np.int64)
        self.options = options

    @abstractmethod
    def place(self, keys: Keys) -> Positions:
        """The position of each key's owner, by the rules of the scheme itself."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes that placing a key reads from."""

    def after(self, weights: Mapping[str, int]) -> Self:
        """The scheme once the set has become `weights`; one without history begins anew."""
        return type(self)(weights, **self.options)

    def slots(self, size: int) -> Positions:
        """Owners of the `size` slots of a table that does what the scheme does."""
        return self.place(even_keys(size))

    def tickets(self, most: int = MOST_TICKETS) -> Positions:
        """Each position as often as its weight, smallest terms, in order; at most `most` in all."""
        smallest = self.weights // math.gcd(*self.weights.tolist())
        if smallest.sum() > most:
            smallest = np.array(quotas(self.weights.tolist(), most))
        return np.repeat(np.arange(len(self.names), dtype=np.uint32), smallest)
