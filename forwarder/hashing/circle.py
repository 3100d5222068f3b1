"""The circle of 2^32 points on which `ring`, `ketama` and `bounded` put backends: points and owners, in order."""

from collections.abc import Callable, Mapping
from hashlib import md5

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.scheme import Keys, Positions, Scheme

Points = NDArray[np.uint32]


def digest(text: str) -> bytes:
    """The 16 bytes of MD5, which all the schemes of the literature use to spread names."""
    return md5(text.encode(), usedforsecurity=False).digest()


class Circle:
    """`points` ascend; `owners[i]` is the position that owns points[i]. Equal points are the first position's."""

    def __init__(self, scheme: Scheme, most: int, points_of: Callable[[str, int], Points]) -> None:
        """`points_of(name, count)`: the heaviest name has `most` points, others by weight fewer, nobody none."""
        if most < 1:
            raise ValueError(f"{most} points for a backend; write at least 1")
        heaviest = int(scheme.weights.max())
        counts = np.maximum(1, (scheme.weights * (2 * most) + heaviest) // (2 * heaviest)).tolist()
        points = np.concatenate([points_of(name, count) for name, count in zip(scheme.names, counts, strict=True)])
        owners = np.repeat(np.arange(len(scheme.names), dtype=np.uint32), counts)
        order = np.argsort(points, kind="stable")
        self.points: Points = points[order]
        self.owners: Positions = owners[order]

    def successors(self, keys: Keys) -> NDArray[np.uint32]:
        """For each key the index of the first point that is not before it, going round."""
        found = np.searchsorted(self.points, keys, side="left")
        found[found == len(self.points)] = 0
        return found.astype(np.uint32)

    @property
    def memory(self) -> int:
        """Bytes of points and owners (16 bits each)."""
        return len(self.points) * 6


class OnCircle(Scheme):
    """A circle on which the heaviest backend has `points` points; a key belongs to the next one clockwise."""

    points_of: Callable[[str, int], Points]
    """The first so many points of a name."""

    def __init__(self, weights: Mapping[str, int], points: int = 160) -> None:
        super().__init__(weights, points=points)
        self.circle = Circle(self, points, self.points_of)

    def place(self, keys: Keys) -> Positions:
        """See Scheme."""
        return self.circle.owners[self.circle.successors(keys)]

    @property
    def memory(self) -> int:
        """The circle."""
        return self.circle.memory
