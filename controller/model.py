"""What the controller reasons about: vips, their backends, the verdicts on them. No I/O, nothing mutable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

ANY_PORT = 0
"""The port number that stands for `port: any`."""


class Verdict(Enum):
    """What the probes of one (address, check) have established so far."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Backend:
    """One server address behind a vip. A name has one address and an address one name, everywhere."""

    name: str
    address: Address


@dataclass(frozen=True, slots=True)
class CheckKey:
    """The thing that is probed once, however many pools and vips ask for it."""

    address: Address
    check: str


@dataclass(frozen=True, slots=True)
class Member:
    """A backend as one vip sees it; `checks` are the sorted names of every check it must pass."""

    backend: Backend
    weight: int
    drain: bool
    checks: tuple[str, ...]

    def probes(self) -> tuple[CheckKey, ...]:
        """The probes that decide whether this member is up; none means always up."""
        return tuple(CheckKey(self.backend.address, check) for check in self.checks)


@dataclass(frozen=True, slots=True)
class Vip:
    """(address, protocol, port or any) that is announced and forwarded; `members` are sorted by name."""

    name: str
    address: Address
    protocol: str
    port: int
    members: tuple[Member, ...]
    scheduler: str
    table_size: int
    affinity: str
    min_healthy: int
    load_bound: float | None = None


def check_keys(vips: Iterable[Vip]) -> frozenset[CheckKey]:
    """Every probe that these vips need, each once."""
    return frozenset(key for vip in vips for member in vip.members for key in member.probes())
