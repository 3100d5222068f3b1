"""Where the stages of a node run: their CPUs, and the NUMA nodes of these."""

from __future__ import annotations

import re
from collections.abc import Collection

from controller.config import Config
from controller.doctor.machine import Machine
from forwarder.settings import parse

NODES = "sys/devices/system/node"


def pinned(config: Config) -> frozenset[int]:
    """The CPUs that a stage is bound to: with `steering: rss` those of workers."""
    settings = parse(config.forwarder_settings())
    return frozenset(settings.worker_cpus if settings.steering == "rss" else settings.cpus)


def numa_nodes(machine: Machine) -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node."""
    numbers = [int(name[4:]) for name in machine.names(NODES) if re.fullmatch(r"node\d{1,5}", name, re.ASCII)]
    return {number: machine.cpus(f"{NODES}/node{number}/cpulist") for number in sorted(numbers)}


def nodes_of(machine: Machine, cpus: Collection[int]) -> frozenset[int]:
    """The NUMA nodes that these CPUs are on."""
    return frozenset(node for node, members in numa_nodes(machine).items() if not members.isdisjoint(cpus))
