"""The forwarding state that the forwarder should have: a function of vips, verdicts and drained backends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from controller.model import Address, CheckKey, Member, Verdict, Vip, different_members

STATE_VERSION = 1

Status = Literal["up", "drain", "down"]
Verdicts = Mapping[CheckKey, Verdict]


def member_status(member: Member, verdicts: Verdicts, drained: Collection[str]) -> Status:
    """Whether a member takes new flows, keeps only its old ones, or loses them.

    A check without a verdict counts as failed. A dead backend is down even while it drains: its flows are
    better off elsewhere.
    """
    if any(verdicts.get(key) is not Verdict.UP for key in member.probes()):
        return "down"
    return "drain" if member.drain or member.backend.name in drained else "up"


def is_healthy(member: Member, verdicts: Verdicts, drained: Collection[str]) -> bool:
    """Whether a member would get new flows."""
    return member.weight > 0 and member_status(member, verdicts, drained) == "up"


def serving_addresses(vips: Iterable[Vip], verdicts: Verdicts) -> frozenset[Address]:
    """Backend addresses that no vip holds for down."""
    members = [member for shared in different_members(vips) for member in shared]
    down = {m.backend.address for m in members if member_status(m, verdicts, ()) == "down"}
    return frozenset(m.backend.address for m in members) - down


def desired_state(
    vips: Iterable[Vip], verdicts: Verdicts, drained: Collection[str], cluster: Mapping[str, Address] | None = None
) -> dict[str, Any]:
    """The state message for the forwarder: sorted by name throughout, and nothing of this node in it.

    `cluster`: the tunnel address of every node by name, this one's too; none for a node that is alone.
    """
    ordered = sorted(vips, key=lambda vip: vip.name)
    different = different_members(ordered)
    backends = {m.backend.name: str(m.backend.address) for members in different for m in members}
    told = {id(members): _members_state(members, verdicts, drained) for members in different}
    return {
        "version": STATE_VERSION,
        "backends": dict(sorted(backends.items())),
        "vips": [_vip_state(vip, told[id(vip.members)]) for vip in ordered],
        **({"cluster": {name: str(address) for name, address in sorted(cluster.items())}} if cluster else {}),
    }


def _members_state(members: Iterable[Member], verdicts: Verdicts, drained: Collection[str]) -> list[list[Any]]:
    ordered = sorted(members, key=lambda member: member.backend.name)
    return [[m.backend.name, m.weight, member_status(m, verdicts, drained)] for m in ordered]


def _vip_state(vip: Vip, members: list[list[Any]]) -> dict[str, Any]:
    return {
        "name": vip.name,
        "address": str(vip.address),
        "protocol": vip.protocol,
        "port": vip.port,
        "scheduler": vip.scheduler,
        "table_size": vip.table_size,
        "affinity": vip.affinity,
        **({} if vip.load_bound is None else {"load_bound": vip.load_bound}),
        "members": members,
    }
