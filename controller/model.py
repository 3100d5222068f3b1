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
    """The thing that is probed once, however many pools and vips ask for it.

    `vip`: it is this one's address that is probed, through the tunnel to the backend at `address`.
    """

    address: Address
    check: str
    vip: Address | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A backend as one vip sees it; `checks` are the sorted names of every check it must pass.

    `tunnel`: those that go through the tunnel to `vip`; without any, members of several vips are equal.
    """

    backend: Backend
    weight: int
    drain: bool
    checks: tuple[str, ...]
    tunnel: frozenset[str] = frozenset()
    vip: Address | None = None

    def probes(self) -> tuple[CheckKey, ...]:
        """The probes that decide whether this member is up; none means always up."""
        address = self.backend.address
        return tuple(CheckKey(address, check, self.vip if check in self.tunnel else None) for check in self.checks)


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


def different_members(vips: Iterable[Vip]) -> list[tuple[Member, ...]]:
    """The members of the vips; those that several vips share (as an object), once."""
    return list({id(vip.members): vip.members for vip in vips}.values())


def check_keys(vips: Iterable[Vip]) -> frozenset[CheckKey]:
    """Every probe that these vips need, each once."""
    return frozenset(key for members in different_members(vips) for member in members for key in member.probes())
