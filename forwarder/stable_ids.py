"""Numbers for vips and backends that stay the same from state to state, so that connection tables can hold them."""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

MAX_GENERATION = 4095
Held = tuple[int, int]  # number and generation


class IdsExhausted(Exception):
    """More things at once than there are numbers."""


class StableIds(Generic[Key]):
    """Gives each key a number below `limit` and the number's generation.

    A number is used again only after its key was released, and then with the next generation, so that what was
    remembered under the old one cannot be taken for the new one. `held` is what keys have from another process.
    """

    def __init__(self, limit: int, held: Mapping[Key, Held] | None = None) -> None:
        held = held or {}
        self._limit = limit
        self._numbers: dict[Key, int] = {key: number for key, (number, _) in held.items()}
        by_number = dict(held.values())
        count = max(by_number, default=-1) + 1
        # Nothing is remembered under a number that nobody holds, so its generations may begin anew.
        self._generations: list[int] = [by_number.get(number, 0) for number in range(count)]
        self._free: list[int] = [number for number in range(count) if number not in by_number]

    def assign(self, key: Key) -> Held:
        """(number, generation) of the key; the same until it is released. Raises IdsExhausted."""
        number = self._numbers.get(key)
        if number is None:
            number = self._take()
            self._numbers[key] = number
        return number, self._generations[number]

    def _take(self) -> int:
        if self._free:
            number = self._free.pop(0)
            self._generations[number] = self._generations[number] % MAX_GENERATION + 1
            return number
        if len(self._generations) == self._limit:
            raise IdsExhausted(f"more than {self._limit} at once")
        self._generations.append(1)
        return len(self._generations) - 1

    def release(self, key: Key) -> None:
        """Make the key's number free for another."""
        self._free.append(self._numbers.pop(key))

    def items(self) -> list[tuple[Key, int]]:
        """All (key, number), in order of number."""
        return sorted(self._numbers.items(), key=lambda item: item[1])

    def held(self) -> dict[Key, Held]:
        """(number, generation) of all keys, in order of number."""
        return {key: (number, self._generations[number]) for key, number in self.items()}


class Counted(Generic[Key]):
    """Stable numbers whose traffic and flows the data plane counts.

    A key's traffic starts at zero even when its number was another's before; a key with flows keeps its number.
    """

    def __init__(
        self,
        limit: int,
        traffic: Callable[[int], tuple[int, int]],
        flows: Callable[[int], int],
        held: Mapping[Key, Held] | None = None,
    ) -> None:
        self._ids: StableIds[Key] = StableIds(limit, held)
        self._traffic = traffic
        self._flows = flows
        self._base: dict[Key, tuple[int, int]] = {key: traffic(number) for key, number in self._ids.items()}

    def assign(self, key: Key) -> Held:
        """(number, generation) of the key. Raises IdsExhausted."""
        number, generation = self._ids.assign(key)
        if key not in self._base:
            self._base[key] = self._traffic(number)
        return number, generation

    def flows(self, key: Key) -> int:
        """Live entries of the key in the connection tables."""
        return self._flows(self.assign(key)[0])

    def release_unless(self, needed: Collection[Key]) -> None:
        """Release every key that is not needed and has no flows."""
        for key, number in self._ids.items():
            if key not in needed and self._flows(number) == 0:
                self._ids.release(key)
                del self._base[key]

    def items(self) -> list[tuple[Key, int]]:
        """All (key, number), in order of number."""
        return self._ids.items()

    def held(self) -> dict[Key, Held]:
        """(number, generation) of all keys, in order of number."""
        return self._ids.held()

    def traffic(self) -> list[tuple[Key, dict[str, int]]]:
        """(key, {"packets", "bytes", "flows"}) of all keys."""
        return [(key, self._counts(key, number)) for key, number in self._ids.items()]

    def _counts(self, key: Key, number: int) -> dict[str, int]:
        packets, octets = self._traffic(number)
        packets_before, octets_before = self._base[key]
        return {
            "packets": packets - packets_before,
            "bytes": octets - octets_before,
            "flows": self._flows(number),
        }
