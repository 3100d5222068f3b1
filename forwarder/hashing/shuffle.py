"""`shuffle`: Maglev with real permutations. An article on Maglev suggests Fisher-Yates shuffles where the paper has
(offset + j * skip) mod M: all M! orders instead of M (M - 1), at the price of N x M numbers or, as here, of a
shuffle that is drawn only as far as it is asked for. The laboratory compares the two; no vip needs it.
"""

from collections.abc import Iterator
from random import Random

import numpy as np

from forwarder.hashing import twin
from forwarder.hashing.by_slot import BySlot
from forwarder.hashing.scheme import Positions


def shuffled(seed: str, size: int) -> Iterator[int]:
    """0 .. size - 1 in random order (Fisher and Yates; Durstenfeld 1964), each drawn when it is asked for."""
    random = Random(seed)
    elsewhere: dict[int, int] = {}  # what stands where a number was taken from before its turn
    for place in range(size):
        chosen = random.randrange(place, size)
        yield elsewhere.pop(chosen, chosen)
        if chosen != place:
            elsewhere[chosen] = elsewhere.pop(place, place)


class Shuffle(BySlot):
    """A table of any size; turns as Maglev takes them."""

    scheme = "shuffle"

    def slots(self, size: int) -> Positions:
        """The table itself."""
        position = {name: at for at, name in enumerate(self.names)}
        weights = dict(zip(self.names, self.weights.tolist(), strict=True))
        owners = twin.populate(weights, {name: shuffled(name, size) for name in self.names}, size)
        return np.array([position[name] for name in owners], dtype=np.uint32)
