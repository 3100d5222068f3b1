"""What a running node tells about itself."""

from __future__ import annotations

import asyncio
import os
from functools import lru_cache
from typing import Any

from controller.app import Node
from controller.forwarder_client import ForwarderError, Json
from controller.model import Verdict, Vip, different_members
from controller.reconcile import Status, member_status
from forwarder.hashing import slot_table


async def status(node: Node) -> Json:
    """The status document of the API."""
    verdicts = node.health.verdicts()
    drained = node.overrides.drained
    forwarder = node.forwarder
    return {
        "node": node.config.node.name,
        "pid": os.getpid(),
        "state": node.state,
        "trouble": node.trouble,
        "generation": forwarder.generation,
        "digest": forwarder.ping["digest"] if forwarder.ping else None,
        "vips": await asyncio.to_thread(_vips, node, verdicts),
        "health": _health(node),
        "probes": {
            "targets": len(node.health.targets),
            "at_once": node.health.at_once,
            "too_many": node.health.too_many,
            "not_probed": node.health.not_probed,
        },
        "panics": {
            pool: {"down": panic.down, "of": panic.of, "vips": [v.name for v in node.config.vips_of(pool)]}
            for pool, panic in node.panics.items()
        },
        "forwarder": {
            "pid": forwarder.supervisor.pid,
            "healthy": forwarder.fitness.fit,
            "reason": forwarder.fitness.reason,
            "restarts": forwarder.supervisor.restarts,
            "canary": forwarder.canary,
            "steering": forwarder.ping.get("steering") if forwarder.ping else None,
        },
        "speaker": {
            "pid": node.speaker.pid,
            "kind": node.speaker.kind,
            "connected": node.speaker.connected,
            "sessions": dict(node.speaker.sessions),
        },
        "announced": sorted(map(str, node.announced)),
        "drained": sorted(drained),
        "drain_self": node.overrides.drain_self,
        "overrides": node.overrides.as_json(),
        "stats": await _stats(node),
    }


def _vips(node: Node, verdicts: dict[Any, Verdict]) -> list[Json]:
    drained = node.overrides.drained
    statuses = {
        id(members): [member_status(member, verdicts, drained) for member in members]
        for members in different_members(node.vips)
    }
    return [_vip(vip, vip.address in node.announced, statuses[id(vip.members)]) for vip in node.vips]


def _vip(vip: Vip, announced: bool, statuses: list[Status]) -> Json:
    members = list(zip(vip.members, statuses, strict=True))
    weights = tuple((m.backend.name, m.weight) for m, status in members if status == "up" and m.weight > 0)
    slots = _slots(weights, vip.table_size, vip.scheduler)
    return {
        "name": vip.name,
        "address": str(vip.address),
        "protocol": vip.protocol,
        "port": vip.port,
        "announced": announced,
        "healthy": len(weights),
        "members": [
            {
                "name": member.backend.name,
                "address": str(member.backend.address),
                "weight": member.weight,
                "status": status,
                "slots": slots.get(member.backend.name, 0),
            }
            for member, status in members
        ],
    }


def _health(node: Node) -> list[Json]:
    return [
        {
            "address": str(key.address),
            "check": key.check,
            "vip": str(key.vip) if key.vip else None,
            "verdict": target.health.verdict.value,
            "since": target.since,
            "reason": target.reason,
        }
        for key, target in sorted(
            node.health.targets.items(), key=lambda item: (str(item[0].address), item[0].check, str(item[0].vip))
        )
    ]


async def _stats(node: Node) -> Json | None:
    try:
        stats = await node.forwarder.client.stats()
    except ForwarderError:
        return None
    return {key: value for key, value in stats.items() if key != "ok"}


@lru_cache(maxsize=256)
def _slots(weights: tuple[tuple[str, int], ...], size: int, scheduler: str) -> dict[str, int]:
    return slot_table.build(dict(weights), size, scheduler).counts()
