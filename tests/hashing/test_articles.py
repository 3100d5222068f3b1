"""What the articles and the paper say of schemes, found again; each number with where it comes from."""

from statistics import mean

import numpy as np
import pytest

from forwarder.hashing.maglev import Maglev
from forwarder.hashing.scheme import Keys
from forwarder.hashing.shuffle import Shuffle
from hashlab.articles import game_servers, karger, maglev_paper, swift
from hashlab.keys import md5_keys


@pytest.fixture(scope="module")
def ten_million() -> Keys:
    return md5_keys(swift.IDS)


# -- OpenStack Swift: exact ---------------------------------------------------------------------------------------


def test_keys_are_the_first_four_bytes_of_the_md5_of_decimal_ids(ten_million: Keys) -> None:
    assert ten_million[0] == 0xCFCD2084  # of "0"
    assert ten_million[9_999_999] == 0x283F42764DA6DBA2522412916B031080 >> 96


def test_the_remainder_spreads_ten_million_ids_evenly(ten_million: Keys) -> None:
    assert swift.modulo_spread(ten_million) == swift.Spread(largest=100_695, smallest=99_073)


def test_one_node_more_moves_what_the_article_says(ten_million: Keys) -> None:
    assert swift.moves(ten_million) == swift.Moves(modulo=9_900_989, ranges=4_901_707, vnodes=90_423)


def test_the_ring_of_full_size_is_even_in_two_bytes_a_partition_and_moves_what_it_must() -> None:
    ring = swift.ring()
    partitions = 2**swift.POWER
    assert ring.spread == swift.Spread(largest=128, smallest=128)
    assert ring.table_bytes == 2 * partitions
    assert ring.moved == partitions // (swift.RING_NODES + 1) == 127
    assert ring.spread_after == swift.Spread(largest=128, smallest=127)
    assert ring.table_bytes_after == 4 * partitions  # 65537 nodes have no 16-bit numbers


# -- game servers: near -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers() -> tuple[Keys, Keys]:
    old = game_servers.ids(0, game_servers.IDS)
    return old, game_servers.ids(game_servers.IDS, game_servers.NEW_IDS)


@pytest.mark.parametrize(("points", "near"), [(160, 750), (1280, 317)])
def test_points_even_nodes_out(servers: tuple[Keys, Keys], points: int, near: float) -> None:
    assert game_servers.deviation(servers[0], points) == pytest.approx(near, rel=0.15)


def test_without_a_bound_new_ids_go_to_all_sixty_nodes(servers: tuple[Keys, Keys]) -> None:
    growth = game_servers.grown(*servers, bound=None)
    assert growth.before.sum() == game_servers.IDS
    assert growth.new.min() > 0
    assert growth.to_new_nodes == pytest.approx(10 / 60, abs=0.03)


def test_bounded_at_the_mean_new_ids_go_mainly_to_the_new_ten(servers: tuple[Keys, Keys]) -> None:
    free, bounded = game_servers.grown(*servers, bound=None), game_servers.grown(*servers, bound=1.0)
    mean_load = (game_servers.IDS + game_servers.NEW_IDS) // 60
    assert bounded.new.sum() == game_servers.NEW_IDS
    assert bounded.to_new_nodes > 0.75
    assert all(bounded.new[bounded.after > mean_load] == 0), "only those that were over the mean are over it"
    assert bounded.overload < 0.6 * free.overload


# -- Karger's ring ------------------------------------------------------------------------------------------------


def test_the_two_caches_have_one_object_and_three_and_with_virtual_nodes_two_each() -> None:
    def counts(points: int) -> list[int]:
        return np.bincount([owner for _, owner in karger.drawn(points).objects], minlength=2).tolist()

    assert counts(1) == [1, 3]
    assert counts(karger.VIRTUAL) == [2, 2]


@pytest.mark.parametrize("points", [1, karger.VIRTUAL, 100])
def test_arcs_make_the_whole_circle_and_objects_lie_on_their_cache_s(points: int) -> None:
    drawn = karger.drawn(points)
    assert sum(drawn.shares) == pytest.approx(1)
    for place, owner in drawn.objects:
        clockwise = min(drawn.points, key=lambda point: (point[0] - place) % 1.0)
        assert clockwise[1] == owner


# -- Maglev -------------------------------------------------------------------------------------------------------


def test_the_example_of_the_go_article() -> None:
    assert maglev_paper.go_table() == [2, 1, 0, 1, 0]


@pytest.mark.parametrize("size", maglev_paper.SIZES)
@pytest.mark.parametrize("kind", [Maglev, Shuffle])
def test_equal_weights_differ_by_at_most_one_slot(kind: type[Maglev] | type[Shuffle], size: int) -> None:
    count = maglev_paper.BACKENDS if kind is Maglev else 10
    assert maglev_paper.spread_of_slots(kind, size, count) <= 1


@pytest.mark.parametrize(
    ("name", "size", "low", "high"),
    [
        ("maglev", 65537, 0, 0.01),
        ("maglev", 655373, 0, 0.001),
        ("ring", 65537, 0.297, 0.5),  # the paper: 29.7 %, less than chance alone makes of 65 slots a backend
        ("ring", 655373, 0.09, 0.15),  # 10.3 %
        ("rendezvous", 65537, 0.35, 0.55),  # 49.5 %
        ("rendezvous", 655373, 0.1, 0.17),  # 12.3 %
    ],
)
def test_provisioning_of_a_thousand_backends(name: str, size: int, low: float, high: float) -> None:
    seeds = [maglev_paper.over_provisioning(name, size, seed) for seed in range(maglev_paper.SEEDS)]
    assert low <= min(seeds) <= mean(seeds) <= max(seeds) <= high


@pytest.mark.parametrize(
    ("size", "failures", "percent"),
    [
        *((65537, 1, 0.58), (65537, 5, 1.79), (65537, 10, 2.34), (65537, 30, 2.77)),
        *((655373, 1, 0.33), (655373, 5, 0.47), (655373, 10, 0.58), (655373, 30, 0.79)),
    ],
)
def test_what_failures_move_besides(size: int, failures: int, percent: float) -> None:
    assert maglev_paper.extra_disruption(size, failures) * 100 == pytest.approx(percent, abs=0.06)


def test_shuffles_move_about_as_much_as_offset_and_skip() -> None:
    def extra(kind: type[Maglev] | type[Shuffle]) -> float:
        return mean(maglev_paper.failed(kind, 65537, 1, seed, 20).extra for seed in range(3))

    assert extra(Shuffle) == pytest.approx(extra(Maglev), rel=0.35)
