"""What is measured of a scheme: how even it is, what a change moves, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forwarder.hashing.scheme import Keys, Positions, Scheme


@dataclass(frozen=True, slots=True)
class Balance:
    """Loads, each divided by the fair one, which is the backend's share by weight. 1.0 is perfect."""

    largest: float
    smallest: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Disruption:
    """Shares of all keys that a change moved. `needed`: the old backend is gone or the new one is new; `extra`:
    both were there before and after, so nothing made this key move but the scheme.
    """

    needed: float
    extra: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one build and of lookups in many: seconds, nanoseconds a key, bytes."""

    build_seconds: float
    lookup_ns: float
    memory: int


def loads(scheme: Scheme, positions: Positions) -> NDArray[np.float64]:
    """Keys of each backend, divided by its fair share."""
    counts = np.bincount(positions, minlength=len(scheme.names))
    fair = len(positions) * scheme.weights / scheme.weights.sum()
    relative: NDArray[np.float64] = counts / fair
    return relative


def balance(relative: NDArray[np.float64]) -> Balance:
    """Of what `loads` said."""
    return Balance(float(relative.max()), float(relative.min()), float(relative.std()))


def disruption(old: Scheme, before: Positions, new: Scheme, after: Positions) -> Disruption:
    """The same keys placed by two schemes. Backends are the same when their names are."""
    number = {name: at for at, name in enumerate({*old.names, *new.names})}
    was = np.array([number[name] for name in old.names])
    now = np.array([number[name] for name in new.names])
    moved = was[before] != now[after]
    stayed = np.isin(was[before], now) & np.isin(now[after], was)
    extra = int(np.count_nonzero(moved & stayed))
    needed = int(np.count_nonzero(moved)) - extra
    return Disruption(needed / len(before), extra / len(before))


def timed_build(
    kind: type[Scheme], weights: Mapping[str, int], options: Mapping[str, object]
) -> tuple[Scheme, float]:
    """A scheme, and the seconds that its making took."""
    began = time.perf_counter()
    scheme = kind(weights, **options)
    return scheme, time.perf_counter() - began


def timed_place(scheme: Scheme, keys: Keys) -> tuple[Positions, float]:
    """Positions, and the nanoseconds per key that finding them took."""
    began = time.perf_counter()
    positions = scheme.place(keys)
    return positions, (time.perf_counter() - began) * 1e9 / max(len(keys), 1)
