from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forwarder.stable_ids import MAX_GENERATION, Counted, IdsExhausted, StableIds


def test_a_key_keeps_its_number_until_it_is_released() -> None:
    ids: StableIds[str] = StableIds(10)
    assert [ids.assign(key) for key in ("a", "b", "a", "c", "b")] == [(0, 1), (1, 1), (0, 1), (2, 1), (1, 1)]
    assert ids.items() == [("a", 0), ("b", 1), ("c", 2)]


def test_a_number_comes_back_with_the_next_generation() -> None:
    ids: StableIds[str] = StableIds(10)
    ids.assign("a")
    ids.release("a")
    assert ids.items() == []
    assert ids.assign("b") == (0, 2)
    ids.release("b")
    assert ids.assign("a") == (0, 3)


def test_the_number_that_was_free_longest_is_used_first() -> None:
    ids: StableIds[str] = StableIds(10)
    for key in "abc":
        ids.assign(key)
    for key in "bca":
        ids.release(key)
    assert [ids.assign(key) for key in "xyz"] == [(1, 2), (2, 2), (0, 2)]
    assert ids.assign("new") == (3, 1)


def test_generations_go_round_and_are_never_zero() -> None:
    ids: StableIds[int] = StableIds(1)
    seen = []
    for key in range(2 * MAX_GENERATION + 1):
        seen.append(ids.assign(key))
        ids.release(key)
    once = [(0, generation) for generation in range(1, MAX_GENERATION + 1)]
    assert seen == [*once, *once, (0, 1)]


def test_more_keys_than_numbers_are_refused_and_the_others_keep_theirs() -> None:
    ids: StableIds[str] = StableIds(2)
    ids.assign("a")
    ids.assign("b")
    for _ in range(2):
        with pytest.raises(IdsExhausted, match="more than 2"):
            ids.assign("c")
    assert ids.items() == [("a", 0), ("b", 1)]
    ids.release("a")
    assert ids.assign("c") == (0, 2)


def test_numbers_of_another_process_are_held_on_to() -> None:
    ids: StableIds[str] = StableIds(10, {"a": (4, 7), "b": (1, MAX_GENERATION)})
    assert ids.held() == {"b": (1, MAX_GENERATION), "a": (4, 7)}
    assert [ids.assign(key) for key in "ab"] == [(4, 7), (1, MAX_GENERATION)]
    assert [ids.assign(key) for key in "cdef"] == [(0, 1), (2, 1), (3, 1), (5, 1)]
    ids.release("b")
    ids.release("a")
    assert [ids.assign(key) for key in "gh"] == [(1, 1), (4, 8)]


def test_a_limit_holds_for_numbers_of_another_process_too() -> None:
    ids: StableIds[str] = StableIds(2, {"a": (1, 1)})
    assert ids.assign("b") == (0, 1)
    with pytest.raises(IdsExhausted):
        ids.assign("c")


class Plane:
    """What the data plane counts, by number; its counters never go back."""

    def __init__(self) -> None:
        self.traffic: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.flows: dict[int, int] = defaultdict(int)

    def counted(self, limit: int = 8, held: dict[str, tuple[int, int]] | None = None) -> Counted[str]:
        return Counted(limit, lambda number: self.traffic[number], lambda number: self.flows[number], held)


def test_traffic_of_a_key_starts_at_zero_on_a_used_number() -> None:
    plane = Plane()
    ids = plane.counted()
    ids.assign("a")
    plane.traffic[0] = (10, 1000)
    plane.flows[0] = 3
    assert ids.traffic() == [("a", {"packets": 10, "bytes": 1000, "flows": 3})]
    plane.flows[0] = 0
    ids.release_unless(set())
    assert ids.assign("b") == (0, 2)
    assert ids.traffic() == [("b", {"packets": 0, "bytes": 0, "flows": 0})]
    plane.traffic[0] = (11, 1100)
    assert ids.traffic() == [("b", {"packets": 1, "bytes": 100, "flows": 0})]


def test_a_key_with_flows_is_not_released() -> None:
    plane = Plane()
    ids = plane.counted()
    for key in "abc":
        ids.assign(key)
    plane.flows.update({0: 1, 2: 0})
    ids.release_unless({"b"})
    assert ids.items() == [("a", 0), ("b", 1)]
    assert ids.flows("a") == 1
    plane.flows[0] = 0
    ids.release_unless({"b"})
    assert ids.items() == [("b", 1)]


def test_a_key_that_comes_back_before_its_release_goes_on_counting() -> None:
    plane = Plane()
    ids = plane.counted()
    ids.assign("a")
    plane.traffic[0], plane.flows[0] = (5, 50), 1
    ids.release_unless(set())
    assert ids.assign("a") == (0, 1)
    assert ids.traffic() == [("a", {"packets": 5, "bytes": 50, "flows": 1})]


def test_a_key_of_another_process_counts_from_here_on_and_goes_when_its_flows_end() -> None:
    plane = Plane()
    plane.flows[2] = 3
    ids = plane.counted(held={"a": (2, 5)})
    assert ids.traffic() == [("a", {"packets": 0, "bytes": 0, "flows": 3})]
    ids.release_unless(set())
    assert ids.held() == {"a": (2, 5)}
    plane.flows[2] = 0
    ids.release_unless(set())
    assert ids.held() == {}


LIMIT = 5
KEYS = st.sampled_from("abcdefgh")


class Churn(RuleBasedStateMachine):
    """Keys come and go: what was remembered as (number, generation) must never be taken for another key's."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: StableIds[str] = StableIds(LIMIT)
        self.held: dict[str, tuple[int, int]] = {}
        self.given: set[tuple[int, int]] = set()

    @rule(key=KEYS)
    def assign(self, key: str) -> None:
        if key in self.held:
            assert self.ids.assign(key) == self.held[key]
        elif len(self.held) == LIMIT:
            with pytest.raises(IdsExhausted):
                self.ids.assign(key)
        else:
            pair = self.ids.assign(key)
            assert pair not in self.given
            assert pair[0] < LIMIT
            assert pair[0] not in {number for number, _ in self.held.values()}
            self.given.add(pair)
            self.held[key] = pair

    @rule(key=KEYS)
    def release(self, key: str) -> None:
        if key in self.held:
            self.ids.release(key)
            del self.held[key]

    @invariant()
    def items_are_those_held(self) -> None:
        assert dict(self.ids.items()) == {key: number for key, (number, _) in self.held.items()}


TestChurn = Churn.TestCase
TestChurn.settings = settings(deadline=None, max_examples=50)
