"""Eisenbud et al., "Maglev" (NSDI 2016): how even tables of 1000 backends are, and what failures move."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import mean, median

import numpy as np

from forwarder import _hashing
from forwarder.hashing.maglev import Maglev
from forwarder.hashing.rendezvous import Rendezvous
from forwarder.hashing.ring import Ring
from forwarder.hashing.scheme import Scheme
from forwarder.hashing.shuffle import Shuffle
from hashlab.measure import Disruption, balance, disruption, loads

BACKENDS = 1000
SIZES = (65537, 655373)
SEEDS = 8
FAILURES = (1, 5, 10, 30)
RING_POINTS = 1000

PAPER_PROVISIONING = {("ring", 65537): 0.297, ("rendezvous", 65537): 0.495,
                      ("ring", 655373): 0.103, ("rendezvous", 655373): 0.123}  # fmt: skip
PAPER_BUILD_MS = {65537: 1.8, 655373: 22.9}

GO_PERMUTATIONS = ((4, 3, 2, 1, 0), (3, 2, 1, 0, 4), (0, 1, 2, 3, 4))
"""The example of an article on Maglev in Go: three backends, five slots."""


def backends(seed: int, count: int = BACKENDS) -> dict[str, int]:
    """Names that differ from seed to seed: the only chance there is in a table."""
    return {f"seed{seed}-backend{number:04}": 1 for number in range(count)}


def go_table() -> list[int]:
    """Owners of the five slots."""
    offsets = [permutation[0] for permutation in GO_PERMUTATIONS]
    skips = [(permutation[1] - permutation[0]) % 5 for permutation in GO_PERMUTATIONS]
    return list(_hashing.populate(offsets, skips, [1, 1, 1], 5))


def scheme(name: str, seed: int) -> Scheme:
    """One of the three that the paper compares."""
    if name == "ring":
        return Ring(backends(seed), RING_POINTS)
    return Maglev(backends(seed)) if name == "maglev" else Rendezvous(backends(seed))


def over_provisioning(name: str, size: int, seed: int) -> float:
    """Capacity that must be kept beyond the mean so that the fullest of the backends is not overloaded."""
    made = scheme(name, seed)
    return balance(loads(made, made.slots(size))).largest - 1


def failed(kind: type[Maglev] | type[Shuffle], size: int, failures: int, seed: int, count: int) -> Disruption:
    """What the table loses when so many of `count` backends fail, chosen by the seed."""
    names = backends(seed, count)
    gone = set(Random(seed).sample(sorted(names), failures))
    before, after = kind(names, size), kind({name: 1 for name in names if name not in gone}, size)
    return disruption(before, before.slots(size), after, after.slots(size))


def extra_disruption(size: int, failures: int, seeds: Sequence[int] = range(SEEDS)) -> float:
    """Mean over the seeds: share of slots that changed hands between backends that both stayed."""
    return mean(failed(Maglev, size, failures, seed, BACKENDS).extra for seed in seeds)


def build_ms(size: int, rounds: int = 5) -> float:
    """Milliseconds for a Maglev table of the 1000 backends, median."""
    names = [name.encode() for name in backends(0)]
    return median(_milliseconds(lambda: _hashing.build(names, [1] * BACKENDS, size)) for _ in range(rounds))


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def spread_of_slots(kind: type[Maglev] | type[Shuffle], size: int, count: int, seed: int = 0) -> int:
    """How many slots the fullest of `count` backends has more than the emptiest."""
    counts = np.bincount(kind(backends(seed, count), size).slots(size), minlength=count)
    return int(counts.max() - counts.min())
