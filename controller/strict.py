"""`maglev check --strict`: what is allowed in a configuration and yet seldom wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from controller.config import Config
from controller.config_errors import Problem
from controller.node_rules import Finding
from controller.yaml_lines import read
from forwarder.hashing.primes import next_prime
from forwarder.hashing.slot_table import MAX_SIZE

SLOTS_PER_BACKEND = 100
"""With fewer, shares of equal backends differ by more than 1 % (the Maglev paper, section 5.3)."""


def warnings(path: Path, config: Config, other: tuple[Path, Config] | None = None) -> list[Problem]:
    """Warnings for the configuration in `path`, in the order of the file; `other`: that of a node beside this one."""
    document = read(path)
    findings = [*_vips(config), *_checks(config), *_announced(config)]
    if other is not None:
        findings += _beside(config, *other)
    problems = [document.problem(where, message) for where, message in findings]
    return sorted(problems, key=lambda problem: (problem.line, problem.key))


def _vips(config: Config) -> Iterator[Finding]:
    members = {vip.name: vip.members for vip in config.all_services}
    for position, vip in enumerate(config.vips):
        count = sum(1 for member in members[vip.name] if member.weight > 0)
        wanted = SLOTS_PER_BACKEND * count
        if vip.table_size < wanted and vip.table_size < MAX_SIZE:
            differ = f"makes shares of {count} backends differ by {100 * count // vip.table_size} %"
            message = f"{differ}; write {next_prime(min(wanted, MAX_SIZE - 100))} or more"
            yield ("vips", position, "table_size"), message
        if count <= 1:
            few = "one backend" if count else "no backend"
            yield ("vips", position, "pools"), f"lead to {few} with a weight; add another, so that one may fail"
        elif vip.min_healthy >= count:
            message = f"is all {count} backends there are: when one fails, the address is withdrawn; write fewer"
            yield ("vips", position, "min_healthy"), message


def _checks(config: Config) -> Iterator[Finding]:
    used = {name for pool in config.backend_pools.values() for name in pool.health_checks}
    for name, check in config.health_checks.items():
        if name not in used:
            yield ("health_checks", name), "no pool has this check; name it in one, or leave it out"
        if check.fall == 1:
            yield ("health_checks", name, "fall"), "one lost packet takes a backend out; write 2 or more"
    for name, pool in config.backend_pools.items():
        if not pool.health_checks and pool.backends:
            yield ("backend_pools", name), "has no health check, so that a dead backend stays in; name one"


def _announced(config: Config) -> Iterator[Finding]:
    if config.bgp.speaker == "none" and config.vips:
        yield ("bgp",), "without a speaker nobody announces the vips; write one, unless routes are static"


def _beside(config: Config, path: Path, other: Config) -> Iterator[Finding]:
    """What must be the same on both nodes, and what must differ."""
    if config.node.hash_key != other.node.hash_key:
        message = f"is not that of {path}: the nodes would send a flow to different backends; write the same"
        yield ("node", "hash_key"), message
    if config.node.name == other.node.name:
        yield ("node", "name"), f"is that of {path} too; write a name of its own for each node"
    for version in (4, 6):
        source = config.node.tunnel_source.of(version)
        if source is not None and source == other.node.tunnel_source.of(version):
            yield ("node", "tunnel_source", f"ipv{version}"), f"is that of {path} too; write this node's own address"
    theirs = {vip.name: vip for vip in other.all_services}
    ours = {vip.name: vip for vip in config.all_services}
    for position, vip in enumerate(config.vips):
        if vip.name in theirs and ours[vip.name] != theirs[vip.name]:
            yield ("vips", position), f"{vip.name} is not as in {path}: flows would go elsewhere there; write one"
        if vip.name not in theirs:
            yield ("vips", position), f"{vip.name} is not in {path}, whose node drops its packets; add it there"
    for name in sorted(theirs.keys() - ours.keys()):
        yield ("vips",), f"{name} of {path} is not here, so that this node drops its packets; add it"
