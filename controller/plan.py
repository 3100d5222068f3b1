"""What a change of the configuration would do, before it is made: per vip, the slots that move.

A slot moves when it had an owner and has another one, or none, afterwards. It counts under one of
  left      its owner owns no slot of the vip any more, so it could not stay;
  joined    its owner still owns slots, and one that owned none before has taken this one;
  besides   both own slots before and after: moved by a weight, another scheduler, or the table itself.
Where a flow's slot is another one afterwards, slots cannot be compared. The share that moves is then that of the
hashes whose owners differ: for two primes as sizes as likely as for independent draws from the two tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from controller.model import Address, Vip
from controller.reconcile import Verdicts, is_healthy
from forwarder.hashing import slot_table

Json = dict[str, Any]
Owner = tuple[str, Address]
Build = Callable[[Mapping[str, int], int, str], slot_table.Table]

OTHER_SLOTS = frozenset({"table_size", "affinity", "hash_key"})
"""Differences by which a flow has another slot than before."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The services of a configuration, what is known of their backends, and whom the operator has drained."""

    vips: tuple[Vip, ...]
    hash_key: str
    verdicts: Verdicts
    drained: Collection[str]


class Moves(NamedTuple):
    """Slots that move, by why."""

    left: int = 0
    joined: int = 0
    besides: int = 0


@dataclass(frozen=True, slots=True)
class Owned:
    """Whose the slots of a vip are: position p in its table stands for `owners[p]`."""

    owners: tuple[Owner, ...]
    digest: str
    table: slot_table.Table = field(compare=False)

    def shares(self) -> dict[Owner, float]:
        """The part of the slots that each owner has."""
        counts = self.table.counts()
        return {owner: counts[owner[0]] / self.table.size for owner in self.owners}


def slots_that_move(before: Situation, after: Situation) -> list[Json]:
    """What becomes of each vip, in order of name, see README.

    A vip is known by its address, protocol and port: under another name it is the same one.
    """
    build, moves = _builder(), cache(compare)
    old, new = _by_service(before), _by_service(after)
    plans = []
    for service in old.keys() | new.keys():
        was, becomes = old.get(service), new.get(service)
        known = becomes or was
        assert known is not None
        differs = [] if was is None or becomes is None else _differences(was, becomes)
        differs += ["hash_key"] if before.hash_key != after.hash_key else []
        tables = _owned(was, known, before, build), _owned(becomes, known, after, build)
        change = "added" if was is None else "removed" if becomes is None else "kept"
        how = {"change": change, "differs": differs, **_owners(*tables)}
        plans.append(_described(known) | how | _moved(*tables, differs, moves))
    return sorted(plans, key=lambda vip: (vip["name"], vip["address"], vip["protocol"], vip["port"]))


def compare(old: Owned, new: Owned) -> Moves:
    """The slots of two tables of one size that have another owner, or none any more."""
    if old == new or not old.owners:
        return Moves()
    if not new.owners:
        return Moves(left=old.table.size)
    moved: Counter[str] = Counter()
    stay, known = frozenset(new.owners), frozenset(old.owners)
    for (was, becomes), slots in Counter(zip(old.table.slots, new.table.slots, strict=True)).items():
        one, other = old.owners[was], new.owners[becomes]
        if one != other:
            moved["left" if one not in stay else "joined" if other not in known else "besides"] += slots
    return Moves(**moved)


def _moved(old: Owned, new: Owned, differs: Collection[str], moves: Callable[[Owned, Owned], Moves]) -> Json:
    if not OTHER_SLOTS.isdisjoint(differs):
        after = new.shares()
        same = sum(share * after.get(owner, 0.0) for owner, share in old.shares().items())
        return {"slots": None, "share": round(1.0 - same, 6) if old.owners else 0.0}
    found = moves(old, new)
    return {"slots": {"moved": sum(found), **found._asdict()}, "share": round(sum(found) / new.table.size, 6)}


def _owners(old: Owned, new: Owned) -> Json:
    """Who has slots no more, and who had none before."""
    had, have = set(old.owners), set(new.owners)
    return {"leaving": sorted(name for name, _ in had - have), "joining": sorted(name for name, _ in have - had)}


def _described(vip: Vip) -> Json:
    service = {"name": vip.name, "address": str(vip.address), "protocol": vip.protocol, "port": vip.port}
    return {**service, "table_size": vip.table_size}


def _differences(old: Vip, new: Vip) -> list[str]:
    return [name for name in ("scheduler", "table_size", "affinity") if getattr(old, name) != getattr(new, name)]


def _by_service(situation: Situation) -> dict[tuple[Address, str, int], Vip]:
    return {(vip.address, vip.protocol, vip.port): vip for vip in situation.vips}


def _owned(vip: Vip | None, known: Vip, situation: Situation, build: Build) -> Owned:
    """A situation that has not the vip has a table of nobody's for it."""
    members = vip.members if vip else ()
    healthy = [m for m in members if is_healthy(m, situation.verdicts, situation.drained)]
    addresses = {m.backend.name: m.backend.address for m in healthy}
    shape = vip or known
    table = build({m.backend.name: m.weight for m in healthy}, shape.table_size, shape.scheduler)
    return Owned(tuple((name, addresses[name]) for name in table.names), table.digest, table)


def _builder() -> Build:
    """Builds each table once, however many vips have it."""
    build = cache(lambda weights, size, scheduler: slot_table.build(dict(weights), size, scheduler))
    return lambda weights, size, scheduler: build(frozenset(weights.items()), size, scheduler)
