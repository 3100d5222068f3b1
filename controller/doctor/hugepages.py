"""Hugepages: enough of them, on the NUMA node that works with them, and a hugetlbfs for the connection tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from controller.config import Config
from controller.config_sections import Forwarder
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.machine import Machine
from controller.doctor.needs import CannotRunError, needs
from controller.doctor.stages import nodes_of, numa_nodes, pinned
from forwarder.hugepages import Hugepages
from forwarder.table_memory import Place, mount_points, of_huge_pages

TWO_MEGABYTES = 2048
"""Kilobytes; the only size that connection tables are made of."""


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """What is there, then what the configuration needs of it; without one, what the defaults need."""
    yield from _there(machine)
    forwarder = config.forwarder if config else Forwarder()
    if not forwarder.hugepages:
        yield ok("none are asked for (hugepages: false)")
        return
    if config and machine.facts.runs(config.node.name):
        yield ok(f"the forwarder of {config.node.name} runs, and has those that it needs")
        return
    mounts = _mounts(machine)
    try:
        wanted = needs(forwarder)
    except CannotRunError:  # said by another subject
        return
    tables = len(forwarder.lcores.workers) * Place(Path(), Path(), hugepages=True).file_bytes(wanted.table_bytes)
    yield from _enough(machine, config, wanted.dpdk_megabytes, tables >> 20, mounted=bool(mounts))
    if mounts:
        yield ok(f"connection tables go to hugepages by {mounts[0]}")
    else:
        yield warning(
            "no hugetlbfs with pages of 2 MB is mounted",
            "connection tables go to ordinary memory in /dev/shm, where a lookup takes longer",
            "mount -t hugetlbfs -o pagesize=2M none /dev/hugepages",
        )


def _there(machine: Machine) -> Iterator[Finding]:
    for directory in _directories(machine):
        free, total = (machine.number(f"{directory}/{name}_hugepages") for name in ("free", "nr"))
        if total:
            yield ok(f"{_node_of(directory)}{free or 0} of {total} pages of {_kilobytes(directory)} kB are free")


def _enough(machine: Machine, config: Config | None, dpdk: int, tables: int, mounted: bool) -> Iterator[Finding]:
    """Megabytes for DPDK and, where they can be in hugepages, for connection tables. The forwarder counts pages of
    the default size, so we do. The advice is for both, since a mount is advised too.
    """
    problem = error if config else warning
    whose = "" if config else " by a node with the default settings"
    why = (
        "the forwarder does not start with less; `hugepages: false` uses ordinary memory, which is slower, and not "
        "for NICs on PCI"
    )
    pages = _pages(machine)
    if pages is None or not pages.kilobytes:
        says = "the kernel has no hugepages" if pages else "/proc/meminfo does not tell how many hugepages are free"
        yield problem(says, why, "boot a kernel with CONFIG_HUGETLBFS, or write `hugepages: false`")
        return
    needed = dpdk + (tables if mounted else 0)
    says = f"{needed} MB of hugepages are needed{whose}, and {pages.free_megabytes} MB are free"
    if pages.free_megabytes < needed:
        setting = f"vm.nr_hugepages={pages.wanted(dpdk + tables)}"
        for_good = f"echo {setting} > /etc/sysctl.d/80-maglev.conf"
        yield problem(says, why, f"sysctl -w {setting}   # for good: {for_good}")
        return
    yield ok(says)
    if config:
        yield from _on_the_node(machine, config, needed, pages.kilobytes)


def _on_the_node(machine: Machine, config: Config, megabytes: int, kilobytes: int) -> Iterator[Finding]:
    """DPDK takes memory of the node that its lcores are on, and of another one when that has none left."""
    nodes = nodes_of(machine, pinned(config))
    if len(numa_nodes(machine)) < 2 or len(nodes) != 1:
        return
    pages = -(-megabytes * 1024 // kilobytes)
    directory = f"sys/devices/system/node/node{min(nodes)}/hugepages/hugepages-{kilobytes}kB"
    free, total = machine.number(f"{directory}/free_hugepages"), machine.number(f"{directory}/nr_hugepages")
    if free is not None and total is not None and free < pages:
        yield warning(
            f"only {free * kilobytes // 1024} MB of them are on NUMA node {min(nodes)}, where the stages run",
            "the rest comes from another node, and each access to it crosses the link between the sockets",
            f"echo {total - free + pages} > /{directory}/nr_hugepages",
        )


def _pages(machine: Machine) -> Hugepages | None:
    text = machine.text("proc/meminfo")
    try:
        return Hugepages.read(text) if text else None
    except (ValueError, IndexError):
        return None


def _mounts(machine: Machine) -> list[Path]:
    try:
        return of_huge_pages(mount_points(machine.text("proc/mounts")))
    except ValueError:
        return []


def _directories(machine: Machine) -> Iterator[str]:
    """Of every NUMA node and size; of every size where the kernel knows no nodes."""
    nodes = [f"sys/devices/system/node/node{node}/hugepages" for node in sorted(numa_nodes(machine))]
    for parent in nodes or ["sys/kernel/mm/hugepages"]:
        for name in machine.names(parent):
            if re.fullmatch(r"hugepages-\d+kB", name):
                yield f"{parent}/{name}"


def _node_of(directory: str) -> str:
    found = re.search(r"/node(\d+)/", directory)
    return f"node {found[1]}: " if found else ""


def _kilobytes(directory: str) -> str:
    return "".join(re.findall(r"hugepages-(\d+)kB", directory))
