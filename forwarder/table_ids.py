"""What the numbers in connection tables stand for: what a process must know that goes on with another's tables."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, TypeVar

from forwarder.settings import Address
from forwarder.stable_ids import MAX_GENERATION, Held

MAX_VIPS = 1 << 14
MAX_BACKENDS = (1 << 16) - 1  # 0xffff means none

VipKey = tuple[Address, int, int]
BackendKey = tuple[str, Address]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class TableIds:
    """(number, generation) of vips and backends; and the backends that old flows of each vip in force may use."""

    vips: Mapping[VipKey, Held] = field(default_factory=dict)
    backends: Mapping[BackendKey, Held] = field(default_factory=dict)
    usable: Mapping[VipKey, Set[BackendKey]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For `from_json`; equal ids give equal JSON."""
        numbers = {id(keys): sorted(self.backends[b][0] for b in keys) for keys in self._different()}
        usable = {self.vips[vip][0]: numbers[id(keys)] for vip, keys in self.usable.items()}
        return {
            "vips": [[str(key[0]), *key[1:], *held] for key, held in self.vips.items()],
            "backends": [[key[0], str(key[1]), *held] for key, held in self.backends.items()],
            "usable": sorted(usable.items()),
        }

    def _different(self) -> list[Set[BackendKey]]:
        """What is in `usable`, each set once: vips of one pool share theirs."""
        return list({id(keys): keys for keys in self.usable.values()}.values())

    @classmethod
    def from_json(cls, raw: Any) -> "TableIds":
        """Raises ValueError, TypeError or KeyError for what `as_json` did not write."""
        vips = {
            (ip_address(address), int(protocol), int(port)): (int(number), int(generation))
            for address, protocol, port, number, generation in raw["vips"]
        }
        backends = {
            (str(name), ip_address(address)): (int(number), int(generation))
            for name, address, number, generation in raw["backends"]
        }
        vip_of, backend_of = _by_number(vips, MAX_VIPS), _by_number(backends, MAX_BACKENDS)
        usable = {vip_of[vip]: frozenset(backend_of[number] for number in numbers) for vip, numbers in raw["usable"]}
        return cls(vips, backends, usable)


def _by_number(held: Mapping[Key, Held], limit: int) -> dict[int, Key]:
    by_number = {number: key for key, (number, _) in held.items()}
    if len(by_number) != len(held):
        raise ValueError("a number is held twice")
    if not all(0 <= n < limit and 1 <= generation <= MAX_GENERATION for n, generation in held.values()):
        raise ValueError("a number or a generation is out of range")
    return by_number
