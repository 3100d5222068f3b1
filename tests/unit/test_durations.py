import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import durations


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("500ms", 0.5), ("2h", 7200), ("1.5m", 90), ("0s", 0), ("007s", 7)]
)
def test_a_number_with_a_unit_is_a_duration(text: str, seconds: float) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "s", "1 s", "1S", "1d", "-1s", "+1s", "1e3s", ".5s", "1.s", "1s ", "1s\n", "٣s"]
)
def test_anything_else_is_none(text: str) -> None:
    assert durations.parse(text) is None


@given(st.integers(0, 10**8))
def test_a_spelt_duration_reads_as_itself(milliseconds: int) -> None:
    assert durations.parse(durations.spell(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)
