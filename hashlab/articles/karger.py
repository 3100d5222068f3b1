"""Karger's ring in the smallest example: two caches, four objects, and then virtual nodes. Positions are real MD5s:
with one point each the caches have one object and three, with four points two and two.
"""

from __future__ import annotations

from dataclasses import dataclass

from forwarder.hashing.ring import Ring
from forwarder.hashing.scheme import SPACE
from hashlab.keys import md5_keys

CACHES = ("cache A", "cache C")
OBJECTS = 4
VIRTUAL = 4


@dataclass(frozen=True, slots=True)
class Drawn:
    """A ring to look at: where things are, as fractions of the circle, and who has each object."""

    points: tuple[tuple[float, int], ...]
    objects: tuple[tuple[float, int], ...]
    shares: tuple[float, ...]
    """Of the whole circle, by cache."""


def drawn(points: int) -> Drawn:
    """The two caches with so many points each."""
    ring = Ring(dict.fromkeys(CACHES, 1), points)
    keys = md5_keys(OBJECTS + 1, prefix="object")[1:]  # object1 .. object4
    owners = ring.place(keys).tolist()
    at, whose = [point / SPACE for point in ring.circle.points.tolist()], ring.circle.owners.tolist()
    shares = [0.0] * len(CACHES)
    for index, owner in enumerate(whose):
        shares[owner] += (at[index] - at[index - 1]) % 1.0 or 1.0  # the arc that ends at this point
    return Drawn(
        tuple(zip(at, whose, strict=True)),
        tuple(zip([key / SPACE for key in keys.tolist()], owners, strict=True)),
        tuple(shares),
    )
