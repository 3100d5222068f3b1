"""All figures of docs/hashing.md, computed: what the articles say, found again, and what follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from forwarder.hashing import slot_table
from forwarder.hashing.maglev import Maglev
from forwarder.hashing.scheme import Keys
from forwarder.hashing.shuffle import Shuffle
from hashlab import compare, request
from hashlab.articles import game_servers, karger, maglev_paper, swift
from hashlab.compare import Row
from hashlab.keys import md5_keys
from hashlab.measure import timed_build

BOUNDS: tuple[float | None, ...] = (None, 1.25, 1.1, 1.0)
SHUFFLED_BACKENDS = 100
KEYS_COMPARED = 1_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """By article; see there what each one is."""

    modulo_spread: swift.Spread
    moves: swift.Moves
    partition_ring: swift.Ring
    deviations: dict[int, float]
    """Ids, by points a node."""
    growth: dict[str, game_servers.Growth]
    """By the bound, "none" for none."""
    karger: dict[int, karger.Drawn]
    provisioning: dict[tuple[str, int], list[float]]
    """By scheme and table size, for each seed."""
    extra: dict[tuple[int, int], float]
    """By table size and number of failures."""
    build_ms: dict[int, float]
    shuffled: dict[str, tuple[float, float, float]]
    """Maglev's permutations and real ones: extra disruption of 1 and of 5 of 100 failing, seconds to build."""
    table_ms: dict[str, tuple[float, float]]
    """By scheduler: a vip's table of 65537 slots for 1000 new names, and once more."""
    compared: list[Row]


def compute(progress: Callable[[str], None], hashed: Callable[[int], None] = lambda done: None) -> Figures:
    """Takes about half a minute. `progress` is told what comes next, `hashed` how many ids of Swift's are done."""
    progress("ids")
    keys = md5_keys(swift.IDS, progress=hashed)
    progress("swift")
    moves, spread, ring = swift.moves(keys), swift.modulo_spread(keys), swift.ring()
    progress("game servers")
    old, new = game_servers.ids(0, game_servers.IDS), game_servers.ids(game_servers.IDS, game_servers.NEW_IDS)
    deviations = {points: game_servers.deviation(old, points) for points in game_servers.POINTS}
    growth = {str(bound or "none"): game_servers.grown(old, new, bound) for bound in BOUNDS}
    progress("maglev, how even")
    provisioning = {
        (name, size): [maglev_paper.over_provisioning(name, size, seed) for seed in range(maglev_paper.SEEDS)]
        for name in ("maglev", "ring", "rendezvous")
        for size in maglev_paper.SIZES
    }
    progress("maglev, what failures move")
    sized = [(size, failures) for size in maglev_paper.SIZES for failures in maglev_paper.FAILURES]
    extra = {(size, failures): maglev_paper.extra_disruption(size, failures) for size, failures in sized}
    build = {size: maglev_paper.build_ms(size) for size in maglev_paper.SIZES}
    progress("shuffles")
    shuffled = {"offset and skip": _permuted(Maglev), "Fisher-Yates": _permuted(Shuffle)}
    tables = {scheduler: (_table_ms(scheduler), _table_ms(scheduler)) for scheduler in slot_table.SCHEDULERS}
    progress("all schemes")
    compared = compared_schemes(keys[:KEYS_COMPARED])
    drawn = {points: karger.drawn(points) for points in (1, karger.VIRTUAL)}
    return Figures(
        spread, moves, ring, deviations, growth, drawn, provisioning, extra, build, shuffled, tables, compared
    )


def compared_schemes(keys: Keys) -> list[Row]:
    """What `maglev hashing compare` tells of 100 nodes."""
    schemes = [request.scheme(name) for name in request.DEFAULT_SCHEMES]
    changes = [request.change(text) for text in request.default_changes(100)]
    return compare.rows(schemes, request.nodes("100", "1"), keys, changes, seed=0)


def _table_ms(scheduler: str) -> float:
    weights = {f"{scheduler}-{name}": 1 for name in maglev_paper.backends(0)}
    began = time.perf_counter()
    slot_table.build(weights, maglev_paper.SIZES[0], scheduler)
    return (time.perf_counter() - began) * 1e3


def _permuted(kind: type[Maglev] | type[Shuffle]) -> tuple[float, float, float]:
    size = maglev_paper.SIZES[0]
    lost = partial(maglev_paper.failed, kind, size, seed=0, count=SHUFFLED_BACKENDS)
    _, seconds = timed_build(kind, maglev_paper.backends(0, SHUFFLED_BACKENDS), {"size": size})
    return lost(failures=1).extra, lost(failures=5).extra, seconds
