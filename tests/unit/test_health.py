import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.health import Health
from controller.model import Verdict

UNKNOWN, UP, DOWN = Verdict.UNKNOWN, Verdict.UP, Verdict.DOWN


def played(results: str, rise: int = 2, fall: int = 3, start: Health | None = None) -> Health:
    health = start or Health()
    for result in results:
        health = health.after(result == "S", rise, fall)
    return health


@pytest.mark.parametrize(
    ("what", "results", "verdict"),
    [
        ("nothing is known before the first result", "", UNKNOWN),
        ("one pass is not yet a verdict", "S", UNKNOWN),
        ("the first verdict takes rise passes", "SS", UP),
        ("two failures are not yet a verdict", "FF", UNKNOWN),
        ("or fall failures", "FFF", DOWN),
        ("a mixed start stays unknown", "FSFFSFFS", UNKNOWN),
        ("a hiccup changes nothing", "SSFFS", UP),
        ("fall failures bring down", "SSFFF", DOWN),
        ("one pass does not bring back", "SSFFFS", DOWN),
        ("rise passes do", "SSFFFSS", UP),
        ("alternating results keep what was", "SS" + "FS" * 100, UP),
        ("alternating results keep it down too", "FFF" + "SF" * 100, DOWN),
        ("and then fall failures count", "SS" + "FS" * 100 + "FFF", DOWN),
    ],
)
def test_verdicts(what: str, results: str, verdict: Verdict) -> None:
    assert played(results).verdict is verdict, what


@pytest.mark.parametrize(
    ("what", "results", "in_doubt"),
    [
        ("nothing is known yet", "", True),
        ("one pass is not yet a verdict", "S", True),
        ("up, and it passes", "SS", False),
        ("up, and one fails", "SSF", True),
        ("up, and the hiccup is over", "SSFFS", False),
        ("down, and it fails", "SSFFF", False),
        ("down, and one passes", "SSFFFS", True),
        ("down, and it fails again", "SSFFFSF", False),
        ("up again", "SSFFFSS", False),
    ],
)
def test_what_is_in_doubt(what: str, results: str, in_doubt: bool) -> None:
    assert played(results).in_doubt == in_doubt, what


def test_with_rise_and_fall_of_one_every_result_is_a_verdict() -> None:
    assert played("S", 1, 1).verdict is UP
    assert played("F", 1, 1).verdict is DOWN
    assert played("SFSF", 1, 1).verdict is DOWN


def test_a_shorter_fall_after_a_reload_counts_the_failures_already_seen() -> None:
    assert played("F", fall=3, start=played("SSFF", fall=5)).verdict is DOWN


RUNS = st.text("SF", max_size=60)
COUNTS = st.integers(1, 6)


@given(RUNS, COUNTS, COUNTS)
def test_a_verdict_changes_only_at_the_end_of_a_long_enough_run(results: str, rise: int, fall: int) -> None:
    health = Health()
    for position, result in enumerate(results):
        before, health = health, health.after(result == "S", rise, fall)
        if health.verdict is not before.verdict:
            needed = "S" * rise if health.verdict is UP else "F" * fall
            assert results[: position + 1].endswith(needed)


@given(RUNS, COUNTS, COUNTS)
def test_a_long_enough_run_always_decides(results: str, rise: int, fall: int) -> None:
    assert played(results + "S" * rise, rise, fall).verdict is UP
    assert played(results + "F" * fall, rise, fall).verdict is DOWN


@given(RUNS, COUNTS, COUNTS)
def test_no_verdict_is_ever_forgotten(results: str, rise: int, fall: int) -> None:
    decided = played("S" * rise, rise, fall)
    assert played(results, rise, fall, decided).verdict is not UNKNOWN
