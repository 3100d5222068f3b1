from __future__ import annotations

from typing import Any

import pytest

from controller.fitness import FIT, SILENCE_SECONDS, Canary, Fitness, Turns, judge, unreachable

PASSED = Canary(True, "came out right")
UP = [{"device": "eth1", "link": True}]


def lcores(*turns: int) -> list[dict[str, Any]]:
    return [{"stage": "worker", "index": n, "turns": count} for n, count in enumerate(turns)]


@pytest.mark.parametrize(
    ("stalled", "ports", "canary", "expected"),
    [
        ([], UP, PASSED, FIT),
        ([], [], PASSED, FIT),
        (["worker 1"], UP, PASSED, Fitness(False, "no progress on worker 1", sick=True)),
        ([], [{"device": "eth1", "link": False}], PASSED, Fitness(False, "link down: eth1")),
        ([], UP, Canary(), Fitness(False, "no canary yet")),
        ([], UP, Canary(False, "lost", 2), Fitness(False, "canary: lost")),
        ([], UP, Canary(False, "lost", 3), Fitness(False, "canary: lost", sick=True)),
    ],
)
def test_what_an_answer_amounts_to(
    stalled: list[str], ports: list[dict[str, Any]], canary: Canary, expected: Fitness
) -> None:
    assert judge(stalled, ports, canary) == expected


def test_silence_withdraws_at_once_and_is_sick_after_a_while() -> None:
    assert unreachable("no answer", 0.1) == Fitness(False, "no answer", sick=False)
    assert unreachable("no answer", SILENCE_SECONDS) == Fitness(False, "no answer", sick=True)


def test_failed_canaries_count_in_a_row_when_the_forwarder_is_to_blame() -> None:
    canary = Canary().after(False, "a", True).after(False, "b", True)
    assert canary == Canary(False, "b", 2)
    assert canary.after(True, "c", False) == Canary(True, "c", 0)
    assert canary.after(False, "no neighbor", False) == Canary(False, "no neighbor", 0)


def test_an_lcore_is_stalled_when_it_stands_still_for_a_second() -> None:
    turns = Turns()
    assert turns.stalled(lcores(5, 5), 0.0) == []
    assert turns.stalled(lcores(6, 5), 0.5) == []
    assert turns.stalled(lcores(7, 5), 0.9) == []
    assert turns.stalled(lcores(8, 5), 1.0) == ["worker 1"]
    assert turns.stalled(lcores(8, 6), 1.1) == []
    assert turns.stalled(lcores(8, 7), 1.5) == []
    assert turns.stalled(lcores(8, 8), 1.95) == []
    assert turns.stalled(lcores(9, 9), 2.45) == []


def test_what_happened_while_the_controller_stood_still_is_held_against_nobody() -> None:
    """As when all of a virtual machine is held: its lcores are not the first to go on."""
    turns = Turns()
    turns.stalled(lcores(5), 0.0)
    assert turns.stalled(lcores(5), 3.0) == []
    assert turns.stalled(lcores(5), 3.25) == []
    assert turns.stalled(lcores(5), 3.5) == ["worker 0"], "it had the time to go on"


def test_a_controller_that_slept_blames_no_lcore() -> None:
    turns = Turns()
    turns.stalled(lcores(5), 0.0)
    assert turns.stalled(lcores(6), 3600.0) == []
