"""Moving as few places as it takes: what `vnode` and `partition` do when the set of backends changes."""

import heapq
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.quotas import quotas

NOBODY = -1
Owners = NDArray[np.int64]
Allowed = Callable[[int, int], bool]


def kept(owners: Owners, before: tuple[str, ...], names: tuple[str, ...]) -> Owners:
    """Positions in `names` of owners that were positions in `before`; NOBODY where a name has left."""
    known = {name: position for position, name in enumerate(names)}
    return np.array([known.get(name, NOBODY) for name in before] + [NOBODY], dtype=np.int64)[owners]


def rebalance(owners: Owners, weights: NDArray[np.int64], allowed: Allowed = lambda place, owner: True) -> Owners:
    """Owners of the places once those of nobody are given out, and then the fullest give to the emptiest while it
    pays.

    A place moves only while its owner without half of it is fuller by weight than the taker with half of it
    (Sainte-Lague's rule): each one's share is rounded as if by itself, and whoever comes or goes, no place moves
    between those who stay. Ties go to the smaller position, and an owner gives its first place first.
    `allowed(place, owner)` may refuse a taker; it sees `owners` as it is meanwhile, since that is changed in place. A
    place of nobody that all refuse stays nobody's.
    """
    counts = np.bincount(owners[owners != NOBODY], minlength=len(weights)).astype(np.int64)
    share = weights.tolist()
    takers = [((counts[o] + 0.5) / share[o], o) for o in range(len(share))]
    heapq.heapify(takers)
    for place in np.flatnonzero(owners == NOBODY).tolist():
        _give(owners, counts, share, takers, place, allowed)
    donors = [((0.5 - counts[o]) / share[o], o) for o in range(len(share))]
    heapq.heapify(donors)
    places = _places(owners)
    while donors:
        fullness, donor = heapq.heappop(donors)
        if -fullness <= takers[0][0]:
            break
        for place in places[donor]:  # the next one only: then another donor may be the fullest
            if _give(owners, counts, share, takers, place, allowed, below=-fullness):
                counts[donor] -= 1
            heapq.heappush(donors, ((0.5 - counts[donor]) / share[donor], donor))
            break
    return owners


def settled(weights: NDArray[np.int64], places: int) -> Owners:
    """How many of `places` each one has by weight, so that a rebalance moves none."""
    first = np.repeat(np.arange(len(weights)), quotas(weights.tolist(), places))
    return np.bincount(rebalance(first, weights), minlength=len(weights))


def _places(owners: Owners) -> dict[int, Iterator[int]]:
    """What each owner has, in order."""
    order = np.argsort(owners, kind="stable")
    found, first = np.unique(owners[order], return_index=True)
    pieces = np.split(order, first[1:])
    # Of no places at all there is one piece nevertheless, and nobody has it.
    return {owner: iter(piece.tolist()) for owner, piece in zip(found.tolist(), pieces, strict=False)}


def _give(
    owners: Owners,
    counts: Owners,
    share: list[int],
    takers: list[tuple[float, int]],
    place: int,
    allowed: Allowed,
    below: float | None = None,
) -> bool:
    """The place to the emptiest owner that may have it; below `below` only."""
    refused = []
    given = False
    while takers and (below is None or takers[0][0] < below):
        fullness, taker = heapq.heappop(takers)
        if not allowed(place, taker):
            refused.append((fullness, taker))
            continue
        owners[place] = taker
        counts[taker] += 1
        heapq.heappush(takers, ((counts[taker] + 0.5) / share[taker], taker))
        given = True
        break
    for one in refused:
        heapq.heappush(takers, one)
    return given
