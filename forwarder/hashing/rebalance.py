"""Moving as few places as it takes: what `vnode` and `partition` do when the set of backends changes."""

import heapq
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

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

    A place moves only from an owner that, by weight, still has no less after it than the taker has with it. Ties go
    to the smaller position, and an owner gives its first place first. `allowed(place, owner)` may refuse a taker;
    it sees `owners` as it is meanwhile, since that is changed in place.
    """
    counts = np.bincount(owners[owners != NOBODY], minlength=len(weights)).astype(np.int64)
    share = weights.tolist()
    takers = [((counts[o] + 1) / share[o], o) for o in range(len(share))]
    heapq.heapify(takers)
    for place in np.flatnonzero(owners == NOBODY).tolist():
        _give(owners, counts, share, takers, place, allowed)
    donors = [(-counts[o] / share[o], o) for o in range(len(share))]
    heapq.heapify(donors)
    places = _places(owners)
    while donors:
        fullness, donor = heapq.heappop(donors)
        if -fullness <= takers[0][0]:
            break
        for place in places[donor]:  # the next one only: then another donor may be the fullest
            if _give(owners, counts, share, takers, place, allowed, below=-fullness):
                counts[donor] -= 1
            heapq.heappush(donors, (-counts[donor] / share[donor], donor))
            break
    return owners


def _places(owners: Owners) -> dict[int, Iterator[int]]:
    """What each owner has, in order."""
    order = np.argsort(owners, kind="stable")
    found, first = np.unique(owners[order], return_index=True)
    pieces = np.split(order, first[1:])
    return {owner: iter(piece.tolist()) for owner, piece in zip(found.tolist(), pieces, strict=True)}


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
        heapq.heappush(takers, ((counts[taker] + 1) / share[taker], taker))
        given = True
        break
    for one in refused:
        heapq.heappush(takers, one)
    return given
