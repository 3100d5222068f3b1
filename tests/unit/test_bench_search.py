"""The law of the zero-loss search: what it returns passed, and nothing a little above it would."""

from hypothesis import given
from hypothesis import strategies as st

from perf.search import Trial, highest_rate

RATES = st.floats(min_value=1.0, max_value=1e8)
RESOLUTION = 0.01


class FakeSource:
    """A node that forwards so many packets per second, and a source that sends for a second."""

    def __init__(self, capacity: float, stolen: frozenset[int] = frozenset()) -> None:
        self.capacity = capacity
        self.stolen = stolen  # trials that another process disturbs
        self.rates: list[float] = []

    def trial(self, rate: float) -> Trial:
        self.rates.append(rate)
        disturbed = len(self.rates) in self.stolen
        forwarded = min(rate, self.capacity) * (0.5 if disturbed else 1.0)
        return Trial(round(rate * 1000), round(forwarded * 1000))


@given(capacity=RATES, highest=RATES)
def test_finds_the_capacity_from_below_to_within_the_resolution(capacity: float, highest: float) -> None:
    found = highest_rate(FakeSource(capacity).trial, highest, RESOLUTION)
    wanted = min(capacity, highest)
    assert found <= wanted * (1 + 1e-3)
    assert found >= wanted - RESOLUTION * highest * 1.01


@given(capacity=RATES, highest=RATES)
def test_what_is_returned_was_tried_and_lost_nothing(capacity: float, highest: float) -> None:
    source = FakeSource(capacity)
    found = highest_rate(source.trial, highest, RESOLUTION)
    assert found == 0 or found in source.rates
    assert found == 0 or FakeSource(capacity).trial(found).lost == 0


@given(highest=RATES)
def test_takes_as_many_trials_as_halvings(highest: float) -> None:
    source = FakeSource(highest / 3)
    highest_rate(source.trial, highest, RESOLUTION)
    assert len(source.rates) <= 1 + 7  # 2 ** 7 > 100


@given(capacity=RATES, stolen=st.frozensets(st.integers(1, 40), max_size=10))
def test_one_good_trial_of_several_is_enough(capacity: float, stolen: frozenset[int]) -> None:
    calm = highest_rate(FakeSource(capacity).trial, capacity * 2, RESOLUTION)
    found = highest_rate(FakeSource(capacity, stolen).trial, capacity * 2, RESOLUTION, tries=len(stolen) + 1)
    assert found == calm


def test_a_node_that_forwards_nothing_has_no_rate() -> None:
    assert highest_rate(lambda rate: Trial(int(rate), 0), 1e6, RESOLUTION) == 0


def test_a_source_that_sends_nothing_proves_nothing() -> None:
    assert highest_rate(lambda rate: Trial(0, 0), 1e6, RESOLUTION) == 0


def test_a_tolerated_share_may_be_lost() -> None:
    def leaky(rate: float) -> Trial:
        return Trial(10_000, 9_999)

    assert highest_rate(leaky, 1e6, RESOLUTION) == 0
    assert highest_rate(leaky, 1e6, RESOLUTION, tolerated=0.001) == 1e6
