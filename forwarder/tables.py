"""Slot tables, built once per (members, weights, size, scheduler) however many vips use them."""

from array import array
from collections.abc import Mapping

from forwarder import _hashing
from forwarder.hashing import slot_table

Key = tuple[str, int, tuple[tuple[str, int], ...]]
SlotsKey = tuple[str, tuple[int, ...]]


class Tables:
    """Keeps the tables of the current state; those of an older one go when a state without them comes."""

    def __init__(self) -> None:
        self._kept: dict[Key, slot_table.Table] = {}
        self._used: set[Key] = set()
        self._slots: dict[SlotsKey, array[int]] = {}
        self._used_slots: set[SlotsKey] = set()

    def copy(self) -> "Tables":
        """Others that begin with the same tables; what is added to one is not in the other."""
        tables = Tables()
        tables._kept = dict(self._kept)
        return tables

    def build(self, weights: Mapping[str, int], size: int, scheduler: str) -> slot_table.Table:
        """The table for {name: weight}, from the cache when it is there."""
        key = (scheduler, size, tuple(sorted(weights.items())))
        self._used.add(key)
        table = self._kept.get(key)
        if table is None:
            table = self._kept[key] = slot_table.build(weights, size, scheduler)
        return table

    def slots(self, table: slot_table.Table, numbers: Mapping[str, int]) -> "array[int]":
        """The table's slots as backend numbers, which is what the data plane reads."""
        owners = tuple(numbers[name] for name in table.names)
        key = (table.digest, owners)
        self._used_slots.add(key)
        slots = self._slots.get(key)
        if slots is None:
            slots = self._slots[key] = _hashing.renumber(table.slots, array("H", owners))
        return slots

    def forget_unused(self) -> None:
        """Drop what was not built or asked for since the last call."""
        self._kept = {key: table for key, table in self._kept.items() if key in self._used}
        self._slots = {key: slots for key, slots in self._slots.items() if key in self._used_slots}
        self._used, self._used_slots = set(), set()
