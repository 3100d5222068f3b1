"""The digest of a forwarding state: equal on all nodes that would treat every packet alike."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from forwarder.hashing import slot_table

State = Mapping[str, Any]
Builder = Callable[[Mapping[str, int], int, str], slot_table.Table]


def fingerprint(settings: Mapping[str, Any]) -> str:
    """SHA-256 hex of a forwarder's settings: tells a controller whether one that runs was started with its own."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def table_weights(vip: Mapping[str, Any]) -> dict[str, int]:
    """{name: weight} of the members of a vip (as in the state message) that own slots."""
    return {name: weight for name, weight, status in vip["members"] if status == "up" and weight > 0}


def state_digest(state: State, build: Builder = slot_table.build) -> str:
    """SHA-256 hex over the sorted vips, members, weights and tables of a state message, and over its cluster if
    any.

    `build` makes the tables; a caller that keeps a cache of them passes it here.
    """
    cluster = sorted(state.get("cluster", {}).items())
    hashed = hashlib.sha256(b"[[" if cluster else b"[")
    for position, vip in enumerate(sorted(state["vips"], key=lambda v: v["name"])):
        hashed.update(b"," if position else b"")
        hashed.update(_json(_vip(vip, state["backends"], build)))  # each by itself: other threads run in between
    hashed.update(b"]," + _json(cluster) + b"]" if cluster else b"]")
    return hashed.hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _vip(vip: Mapping[str, Any], addresses: Mapping[str, str], build: Builder) -> list[Any]:
    return [
        *(vip[key] for key in ("name", "address", "protocol", "port", "scheduler", "affinity")),
        [[name, addresses[name], weight, status] for name, weight, status in sorted(vip["members"])],
        build(table_weights(vip), vip["table_size"], vip["scheduler"]).digest,
        *([float(vip["load_bound"])] if vip.get("load_bound") is not None else []),
    ]
