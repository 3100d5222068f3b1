"""Flattening: from pools that contain pools to the members of a vip."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from controller.config_errors import KeyPath
from controller.config_sections import BackendEntry, Pool, PoolEntry, VipEntry
from controller.model import Backend, Member, Vip


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


def flatten(
    vip: VipEntry, pools: Mapping[str, Pool], tunnel: Collection[str] = (), unchecked: Collection[str] = ()
) -> Vip:
    """The vip with its members; a backend reached twice counts once and must pass the checks of both ways.

    `tunnel`: names of the checks that go through it. Pools that are `unchecked` count as if they had no checks.
    """
    entries: dict[str, BackendEntry] = {}
    checks: dict[str, set[str]] = {}
    for reached in reach(vip.pools, pools):
        name = reached.entry.name
        entries.setdefault(name, reached.entry)
        checks.setdefault(name, set()).update(() if reached.pool in unchecked else reached.checks)
    members = tuple(_member(vip, entry, checks[name], tunnel) for name, entry in sorted(entries.items()))
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


def _member(vip: VipEntry, entry: BackendEntry, checks: Collection[str], tunnel: Collection[str]) -> Member:
    member = Member(Backend(entry.name, entry.address), entry.weight, entry.drain, tuple(sorted(checks)))
    through = frozenset(checks).intersection(tunnel)
    return replace(member, tunnel=through, vip=vip.address) if through else member
