"""Which addresses this node should announce, as a function of what it could serve."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from controller.model import Address, Member, Vip, different_members
from controller.reconcile import Verdicts, is_healthy


def healthy_count(members: Iterable[Member], verdicts: Verdicts, drained: Collection[str]) -> int:
    """How many of a vip's members would get new flows."""
    return sum(is_healthy(member, verdicts, drained) for member in members)


def desired_announcements(
    vips: Iterable[Vip],
    verdicts: Verdicts,
    drained: Collection[str],
    forwarder_serves: bool,
    draining_self: bool,
) -> frozenset[Address]:
    """The addresses of which at least one vip has `min_healthy` healthy backends.

    `forwarder_serves`: the forwarder has acknowledged a state with these vips and has passed the canary.
    """
    if draining_self or not forwarder_serves:
        return frozenset()
    vips = list(vips)
    healthy = {id(members): healthy_count(members, verdicts, drained) for members in different_members(vips)}
    return frozenset(vip.address for vip in vips if healthy[id(vip.members)] >= vip.min_healthy)
