from array import array

import pytest

from forwarder.hashing import slot_table
from forwarder.tables import Tables


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, int], int, str]]:
    """What was really built, in order."""
    calls: list[tuple[dict[str, int], int, str]] = []
    real = slot_table.build

    def build(weights: dict[str, int], size: int, scheduler: str) -> slot_table.Table:
        calls.append((dict(weights), size, scheduler))
        return real(weights, size, scheduler)

    monkeypatch.setattr(slot_table, "build", build)
    return calls


def test_a_table_is_built_once_however_its_members_are_listed(built: list[object]) -> None:
    tables = Tables()
    one = tables.build({"a": 1, "b": 2}, 7, "maglev")
    assert tables.build({"b": 2, "a": 1}, 7, "maglev") is one
    assert tables.build({"a": 1, "b": 3}, 7, "maglev") is not one
    assert tables.build({"a": 1, "b": 2}, 11, "maglev") is not one
    assert tables.build({"a": 1, "b": 2}, 7, "ring") is not one
    assert built == [
        ({"a": 1, "b": 2}, 7, "maglev"),
        ({"a": 1, "b": 3}, 7, "maglev"),
        ({"a": 1, "b": 2}, 11, "maglev"),
        ({"a": 1, "b": 2}, 7, "ring"),
    ]


def test_a_table_stays_while_states_use_it_and_goes_when_one_does_not(built: list[object]) -> None:
    tables = Tables()
    for _ in range(3):
        tables.build({"a": 1}, 7, "maglev")
        tables.build({"b": 1}, 7, "maglev")
        tables.forget_unused()
    assert len(built) == 2
    tables.build({"a": 1}, 7, "maglev")
    tables.forget_unused()
    tables.build({"a": 1}, 7, "maglev")
    tables.build({"b": 1}, 7, "maglev")
    assert built[2:] == [({"b": 1}, 7, "maglev")]


def test_a_refused_size_leaves_no_table() -> None:
    tables = Tables()
    for _ in range(2):
        with pytest.raises(ValueError, match="not a prime"):
            tables.build({"a": 1}, 8, "maglev")


def test_slots_are_the_owners_numbers() -> None:
    tables = Tables()
    table = tables.build({"a": 1, "b": 1, "c": 0}, 7, "maglev")
    slots = tables.slots(table, {"a": 500, "b": 3, "c": 4})
    assert isinstance(slots, array)
    assert slots.typecode == "H"
    assert [{500: "a", 3: "b"}[number] for number in slots] == [table.names[position] for position in table.slots]


def test_slots_are_shared_while_the_numbers_are_the_same() -> None:
    tables = Tables()
    table = tables.build({"a": 1, "b": 1}, 7, "maglev")
    one = tables.slots(table, {"a": 1, "b": 2})
    assert tables.slots(table, {"a": 1, "b": 2, "other": 9}) is one
    other = tables.slots(table, {"a": 1, "b": 3})
    assert other is not one
    assert set(one) == {1, 2}
    assert set(other) == {1, 3}


def test_slots_of_former_numbers_are_forgotten_though_the_table_stays() -> None:
    tables = Tables()
    for number in range(100):  # a backend whose address changes gets another number and keeps its name
        table = tables.build({"a": 1, "b": 1}, 7, "maglev")
        slots = tables.slots(table, {"a": 1000, "b": number})
        tables.forget_unused()
        assert tables.slots(table, {"a": 1000, "b": number}) is slots
    assert len(tables._slots) <= 2


def test_a_copy_begins_with_the_same_tables_and_keeps_its_own_to_itself(built: list[object]) -> None:
    tables = Tables()
    one = tables.build({"a": 1}, 7, "maglev")
    copy = tables.copy()
    assert copy.build({"a": 1}, 7, "maglev") is one
    copy.build({"b": 1}, 7, "maglev")
    tables.build({"b": 1}, 7, "maglev")
    assert len(built) == 3
    copy.forget_unused()
    assert tables.build({"a": 1}, 7, "maglev") is one
