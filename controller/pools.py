"""Flattening: from pools that contain pools to the members of a vip."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from controller.config_errors import KeyPath
from controller.config_sections import BackendEntry, Pool, PoolEntry, VipEntry
from controller.model import Address, Backend, Member, Vip

Members = tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """One backend entry, where it stands, and the pool it stands in with its checks."""

    path: KeyPath
    entry: BackendEntry
    pool: str
    checks: tuple[str, ...]


def reach(names: Collection[str], pools: Mapping[str, Pool]) -> Iterator[Reached]:
    """Every backend entry of these pools and of those inside, each pool once; unknown pools are skipped."""
    waiting, entered = list(reversed(list(names))), set[str]()
    while waiting:
        name = waiting.pop()
        if name in entered or name not in pools:
            continue
        entered.add(name)
        for position, entry in enumerate(pools[name].backends):
            if isinstance(entry, PoolEntry):
                waiting.append(entry.pool)
            else:
                path = ("backend_pools", name, "backends", position)
                yield Reached(path, entry, name, pools[name].health_checks)


def members_of(names: Collection[str], pools: Mapping[str, Pool], unchecked: Collection[str] = ()) -> Members:
    """The backends of these pools; one that is reached twice counts once and must pass the checks of both ways.

    Pools that are `unchecked` count as if they had no checks.
    """
    entries: dict[str, BackendEntry] = {}
    checks: dict[str, set[str]] = {}
    for reached in reach(names, pools):
        name = reached.entry.name
        entries.setdefault(name, reached.entry)
        checks.setdefault(name, set()).update(() if reached.pool in unchecked else reached.checks)
    return tuple(
        Member(Backend(name, entry.address), entry.weight, entry.drain, tuple(sorted(checks[name])))
        for name, entry in sorted(entries.items())
    )


def through_tunnel(members: Members, tunnel: Collection[str], vip: Address) -> Members:
    """Members of a vip of which some must pass checks whose names are in `tunnel`; the same object when none must."""
    ways = [tunnel.intersection(member.checks) for member in members] if (tunnel := frozenset(tunnel)) else []
    if not any(ways):
        return members
    return tuple(replace(m, tunnel=way, vip=vip) if way else m for m, way in zip(members, ways, strict=True))


def flatten(vip: VipEntry, members: Members) -> Vip:
    """The vip with its members."""
    return Vip(
        name=vip.name,
        address=vip.address,
        protocol=vip.protocol,
        port=vip.port,
        members=members,
        scheduler=vip.scheduler,
        table_size=vip.table_size,
        affinity=vip.affinity,
        min_healthy=vip.min_healthy,
        load_bound=vip.load_bound,
    )
