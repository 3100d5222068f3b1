"""What a new configuration would change, and what of it a running node cannot follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.config import Config
from controller.model import Member, Vip
from controller.section import Section

_FOLLOWED_AT_ONCE = frozenset({"node.drain_time"})


def restart_needed(old: Config, new: Config) -> list[str]:
    """The keys that differ and that forwarder and speaker are started with."""
    keys: list[str] = []
    for name in ("node", "forwarder", "bgp"):
        keys += _differences(name, getattr(old, name), getattr(new, name))
    return [key for key in keys if key not in _FOLLOWED_AT_ONCE]


def changes(old: Config, new: Config) -> list[str]:
    """One sentence for each thing that would be different, in the order of the file."""
    lines = [f"{key} changes" for key in _differences("node", old.node, new.node)]
    lines += [f"{key} changes" for key in _differences("metrics", old.metrics, new.metrics)]
    lines += _compare("cluster node", old.cluster_nodes(), new.cluster_nodes())
    lines += _compare("health check", old.health_checks, new.health_checks)
    lines += _compare("panic_above of pool", _panic_above(old), _panic_above(new))
    before = {vip.name: vip for vip in old.all_services}
    after = {vip.name: vip for vip in new.all_services}
    lines += _compare("vip", _without_members(before), _without_members(after))
    same: dict[tuple[int, int], bool] = {}  # of members that vips share, compared once
    for name in sorted(before.keys() & after.keys()):
        was, becomes = before[name].members, after[name].members
        key = id(was), id(becomes)
        if key not in same:
            same[key] = was == becomes
        if not same[key]:
            lines += _member_changes(before[name], after[name])
    return lines


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if not (isinstance(old, Section) and type(old) is type(new)):
        return [path]
    return [
        key
        for name in type(old).model_fields
        for key in _differences(f"{path}.{name}", getattr(old, name), getattr(new, name))
    ]


def _compare(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{what} {name} is removed"
        elif name not in old:
            yield f"{what} {name} is added"
        elif old[name] != new[name]:
            yield f"{what} {name} changes"


def _panic_above(config: Config) -> dict[str, float]:
    return {name: pool.panic_above for name, pool in config.backend_pools.items() if pool.panic_above is not None}


def _without_members(vips: Mapping[str, Vip]) -> dict[str, tuple[object, ...]]:
    return {
        name: (v.address, v.protocol, v.port, v.scheduler, v.table_size, v.affinity, v.min_healthy, v.load_bound)
        for name, v in vips.items()
    }


def _member_changes(old: Vip, new: Vip) -> Iterator[str]:
    before = {member.backend.name: member for member in old.members}
    after = {member.backend.name: member for member in new.members}
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"vip {new.name}: backend {name} is removed"
        elif name not in before:
            yield f"vip {new.name}: backend {name} is added"
        elif before[name] != after[name]:
            yield f"vip {new.name}: backend {name}: {_describe(before[name])} -> {_describe(after[name])}"


def _describe(member: Member) -> str:
    drain = ", drain" if member.drain else ""
    checks = ", ".join(member.checks) or "no check"
    return f"{member.backend.address}, weight {member.weight}{drain}, {checks}"
