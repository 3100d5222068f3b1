"""How CPUs and NICs lie to each other: hyper-threads of one core, and NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.doctor.cpu_list import written
from controller.doctor.cpus import CPUS
from controller.doctor.finding import Finding, ok, warning
from controller.doctor.machine import Machine
from controller.doctor.stages import nodes_of, numa_nodes, pinned
from forwarder.offloads import interfaces
from forwarder.settings import parse


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """The nodes that there are; of a configuration whether its stages are near each other and near their NICs."""
    nodes = {node: cpus for node, cpus in numa_nodes(machine).items() if cpus}
    yield ok(
        "NUMA nodes: " + ("; ".join(f"{node} has CPU {written(cpus)}" for node, cpus in nodes.items()) or "none")
    )
    if config is None:
        return
    stages = pinned(config)
    yield from _siblings(machine, stages, config.forwarder.idle)
    if len(nodes) > 1:
        yield from _distances(machine, config, stages)


def _siblings(machine: Machine, stages: frozenset[int], idle: str) -> Iterator[Finding]:
    cores = {frozenset({cpu}) | machine.cpus(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list") for cpu in stages}
    shared = sorted(written(core & stages) for core in cores if len(core & stages) > 1)
    if shared and idle != "sleep":
        yield warning(
            f"stages run on hyper-threads of one core: CPU {' and '.join(shared)}",
            "each has half of the core: two such workers do little more than one",
            "write one CPU per core in forwarder.lcores, as `lscpu --extended=CPU,CORE,NODE` shows them",
        )
    else:
        yield ok("no two stages spin on hyper-threads of one core")


def _distances(machine: Machine, config: Config, stages: frozenset[int]) -> Iterator[Finding]:
    here = nodes_of(machine, stages)
    why = "each access across the link between the sockets takes about twice as long"
    fine = True
    if len(here) > 1:
        fine = False
        yield warning(f"the stages are on several NUMA nodes: {written(here)}", why, "write CPUs of one in lcores")
    for name, node in _nics(machine, config):
        if node is not None and node >= 0 and here - {node}:
            fine = False
            yield warning(
                f"{name} is on NUMA node {node}, and CPU {written(_not_on(machine, stages, node))} is not",
                why,
                f"write CPUs of node {node} in forwarder.lcores: {written(numa_nodes(machine).get(node, ()))}",
            )
    if fine:
        yield ok("the stages are on one NUMA node, and their NICs on no other")


def _not_on(machine: Machine, stages: frozenset[int], node: int) -> frozenset[int]:
    return stages - numa_nodes(machine).get(node, frozenset())


def _nics(machine: Machine, config: Config) -> Iterator[tuple[str, int | None]]:
    """Each NIC with its node. A virtio NIC's device is a child of the one on PCI, which knows the node."""
    for port in parse(config.forwarder_settings()).ports:
        for name in interfaces(port):
            device = f"sys/class/net/{name}/device"
            near = machine.number(f"{device}/numa_node")
            yield name, machine.number(f"{device}/../numa_node") if near is None else near
    for address in machine.for_dpdk:
        yield address, machine.number(f"sys/bus/pci/devices/{address}/numa_node")
