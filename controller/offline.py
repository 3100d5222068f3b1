"""Answers from a configuration alone: what it would serve, its tables, where one flow would go.

Every backend counts as healthy; one that drains or has weight 0 owns no slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any

from controller.announce import desired_announcements
from controller.changes import changes, restart_needed
from controller.config import Config
from controller.config_errors import instead_of
from controller.durations import spell
from controller.model import ANY_PORT, Address, CheckKey, Verdict, Vip, check_keys
from controller.plan import Situation, slots_that_move
from controller.reconcile import desired_state, is_healthy, member_status
from forwarder.hashing import flow, slot_table


def check(config: Config) -> dict[str, Any]:
    """What the configuration would serve."""
    vips = config.all_services
    verdicts = _all_up(vips)
    announced = desired_announcements(vips, verdicts, (), forwarder_serves=True, draining_self=False)
    return {
        "node": config.node.name,
        "steering": config.forwarder.steering,
        "workers": len(config.forwarder.lcores.workers),
        "cluster": {name: str(address) for name, address in sorted(config.cluster_nodes().items())},
        "announced": [] if config.bgp.speaker == "none" else [str(a) for a in _sorted(announced)],
        "probes": len(verdicts),
        "health_checks": _health_checks(config, verdicts),
        "panic_above": {n: p.panic_above for n, p in sorted(config.backend_pools.items()) if p.panic_above},
        "vips": [
            {
                "name": vip.name,
                "address": str(vip.address),
                "protocol": vip.protocol,
                "port": vip.port,
                "scheduler": vip.scheduler,
                "table_size": vip.table_size,
                "affinity": vip.affinity,
                "min_healthy": vip.min_healthy,
                "load_bound": vip.load_bound,
                "members": [
                    {
                        "name": member.backend.name,
                        "address": str(member.backend.address),
                        "weight": member.weight,
                        "status": member_status(member, verdicts, ()),
                        "checks": list(member.checks),
                    }
                    for member in vip.members
                ],
            }
            for vip in vips
        ],
    }


def _health_checks(config: Config, verdicts: Collection[CheckKey]) -> list[dict[str, Any]]:
    """Every check with its times, and how many addresses it probes."""
    targets = Counter(key.check for key in verdicts)
    return [
        {
            "name": name,
            "type": check.type,
            "targets": targets[name],
            "interval": spell(check.interval),
            "fast_interval": spell(check.pace(in_doubt=True)),
            "timeout": spell(check.timeout),
            "rise": check.rise,
            "fall": check.fall,
        }
        for name, check in sorted(config.health_checks.items())
    ]


def replay_request(config: Config) -> dict[str, Any]:
    """What `python -m forwarder.replay` reads on stdin: the forwarder's settings and the state it would get."""
    vips = config.all_services
    state = desired_state(vips, _all_up(vips), (), config.cluster_nodes())
    return {"settings": config.forwarder_settings(), "state": state}


def plan(old: Config, new: Config) -> dict[str, Any]:
    """What a change from the one to the other would do."""
    return {
        "changes": changes(old, new),
        "restart": restart_needed(old, new),
        "vips": slots_that_move(_situation(old), _situation(new)),
    }


def table(config: Config, name: str) -> dict[str, Any]:
    """The table of the vip of that name; raises ValueError when there is none."""
    vips = {vip.name: vip for vip in config.all_services}
    if name not in vips:
        raise ValueError(f"there is no vip {name}; write {instead_of(name, vips, 'one of vips')}")
    built = _build(vips[name])
    slots = dict.fromkeys((member.backend.name for member in vips[name].members), 0) | built.counts()
    return {
        "vip": name,
        "size": built.size,
        "digest": built.digest,
        "backends": slots,
        "slots": [built.names[position] for position in built.slots],
    }


def lookup(
    config: Config, protocol: str, source: str, source_port: int, destination: str, destination_port: int
) -> dict[str, Any]:
    """Where the first packet of a flow would go; raises ValueError for what is no flow."""
    sender, receiver = _flow_addresses(source, destination)
    if protocol not in flow.PROTOCOLS:
        raise ValueError(f"protocol {protocol} is not known; write tcp or udp")
    for port in (source_port, destination_port):
        if not 0 <= port <= 65535:
            raise ValueError(f"port {port} is out of range; write a number from 0 to 65535")
    key = bytes.fromhex(config.node.hash_key)
    number = flow.PROTOCOLS[protocol]
    flow_key = (key, sender.packed, receiver.packed, source_port, destination_port, number)
    answer: dict[str, Any] = {
        "vip": None,
        "hash": f"{flow.flow_hash(*flow_key):#018x}",
        "slot": None,
        "backend": None,
        "source": "table",
        "fate": "not_vip",
    }
    vip = _match(config.all_services, receiver, protocol, destination_port)
    if vip is None:
        return answer
    built = _build(vip)
    if not built.names:
        return answer | {"vip": vip.name, "fate": "no_backend"}
    slot = (flow.slot_hash(*flow_key, vip.affinity) >> 32) % built.size
    backend = built.names[built.slots[slot]]
    return answer | {"vip": vip.name, "slot": slot, "backend": backend, "fate": "hash_new"}


def _situation(config: Config) -> Situation:
    vips = config.all_services
    return Situation(vips, config.node.hash_key, _all_up(vips), ())


def _all_up(vips: tuple[Vip, ...]) -> dict[CheckKey, Verdict]:
    return dict.fromkeys(check_keys(vips), Verdict.UP)


def _sorted(addresses: frozenset[Address]) -> list[Address]:
    return sorted(addresses, key=lambda address: (address.version, address.packed))


def _build(vip: Vip) -> slot_table.Table:
    verdicts = _all_up((vip,))
    weights = {m.backend.name: m.weight for m in vip.members if is_healthy(m, verdicts, ())}
    return slot_table.build(weights, vip.table_size, vip.scheduler)


def _match(vips: tuple[Vip, ...], address: Address, protocol: str, port: int) -> Vip | None:
    """The vip of an address and protocol; one with the port itself before one with any."""
    ports = {vip.port: vip for vip in vips if vip.address == address and vip.protocol == protocol}
    return ports.get(port, ports.get(ANY_PORT))


def _flow_addresses(source: str, destination: str) -> tuple[Address, Address]:
    addresses = []
    for text in (source, destination):
        try:
            addresses.append(ip_address(text))
        except ValueError:
            raise ValueError(f"{text} is not an address; write one such as 192.0.2.1") from None
    if addresses[0].version != addresses[1].version:
        raise ValueError(f"{source} and {destination} are of two families; write both alike")
    return addresses[0], addresses[1]
