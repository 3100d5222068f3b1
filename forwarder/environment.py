"""DPDK's environment for one forwarder: memory, lcores, CPUs. What is missing is said in one sentence."""

import os
from collections.abc import Sequence
from pathlib import Path

from forwarder import _dataplane, pci
from forwarder.hugepages import Hugepages
from forwarder.settings import Refused, Settings

MEGABYTE = 1 << 20
PACKET_BYTES = 2432  # one 2 KB buffer with headroom and its header, as DPDK lays it out
PIECE_BYTES = 768  # a fragment's headers and two references to the packet that was cut
PACKETS_PER_PIECE = 4  # as csrc/packet_pool.h has it
PAGE_BYTES = 4096  # in ordinary memory a packet never crosses a page, so it takes one
MEMINFO = Path("/proc/meminfo")
PCI_ON_DEMAND = ["-a", "0000:00:00.0"]
"""Allow a device that is no NIC: else DPDK takes every NIC it can have. Ports are opened by their addresses later."""


def needed_megabytes(packet_pool: int, hugepages: bool, table_bytes: int = 0) -> int:
    """Memory that DPDK must have: packets, pieces, connection tables that live nowhere else, room for the rest."""
    packets = packet_pool * (PACKET_BYTES if hugepages else PAGE_BYTES)
    pieces = packet_pool // PACKETS_PER_PIECE * PIECE_BYTES
    return (packets + pieces + table_bytes) * 5 // 4 // MEGABYTE + 16


def _lcores(cpus: Sequence[int], own: set[int], usable: set[int]) -> str:
    # Lcore 0 is the control thread: it floats over the CPUs that the process started with, which isolated ones are
    # not among. The stages are lcores 1, 2, ... in their order. Those that only a fallback needs float too, where
    # they have no CPU; they sleep until then.
    floating = f"({','.join(str(cpu) for cpu in sorted(own))})"
    stages = (f"{i}@{cpu if cpu in usable else floating}" for i, cpu in enumerate(cpus, start=1))
    return ",".join([f"0@{floating}", *stages])


def usable_cpus(cpus: Sequence[int]) -> set[int]:
    """The CPUs that this process runs on, and those of `cpus` that the kernel gives it when it is asked.

    Every process starts off the isolated CPUs (isolcpus), and may run there all the same: it only has to say so. What
    a shell or a unit of systemd has set binds nobody either; the cpuset of a container does, and a CPU must be there.
    """
    own = os.sched_getaffinity(0)
    missing = {cpu for cpu in cpus if cpu >= 0} - own
    if not missing:
        return own
    try:
        os.sched_setaffinity(0, own | missing)
    except OSError:  # a sandbox that does not let us
        return own
    given = os.sched_getaffinity(0)
    os.sched_setaffinity(0, own)
    return own | given


def check_cpus(cpus: Sequence[int], usable: set[int]) -> None:
    """Raises Refused when a stage cannot have its CPU."""
    missing = sorted(set(cpus) - usable)
    if missing:
        raise Refused(
            f"CPU {missing[0]} in forwarder.lcores cannot be used here; "
            f"the CPUs are {', '.join(str(cpu) for cpu in sorted(usable))}."
        )


def _check(settings: Settings, usable: set[int], megabytes: int) -> None:
    check_cpus(settings.worker_cpus if settings.steering == "rss" else settings.cpus, usable)
    if any(port.driver != "vdev" for port in settings.ports) and os.geteuid() != 0:
        raise Refused("a port on a NIC needs root (raw sockets, PCI): start the node as root.")
    if not settings.hugepages:
        return
    if os.geteuid() != 0:
        raise Refused("hugepages need root: start the node as root, or write `hugepages: false`.")
    if shortage := Hugepages.read(MEMINFO.read_text()).shortage(megabytes):
        raise Refused(f"{shortage}, or write `hugepages: false` in the forwarder section to use ordinary memory.")


def _memory(megabytes: int, node: int | None) -> list[str]:
    """All of it from one NUMA node, where one is given."""
    if node is None:
        return ["-m", str(megabytes)]
    return ["--socket-mem", ",".join(["0"] * node + [str(megabytes)])]


def control_cpus(own: set[int], stages: Sequence[int]) -> set[int]:
    """CPUs for control threads: those no stage is pinned to, when more than one is left; else all."""
    left = own - set(stages)
    return left if len(left) > 1 else own


def start(settings: Settings, new_hugepage_bytes: int = 0) -> list[int]:
    """Initialise DPDK; returns the lcores of steering, workers and muxing. Raises Refused.

    `new_hugepage_bytes`: hugepages that connection tables will take beside DPDK's.
    """
    own, usable = os.sched_getaffinity(0), usable_cpus(settings.cpus)
    megabytes = needed_megabytes(settings.packet_pool, settings.hugepages)
    spinning = settings.worker_cpus if settings.steering == "rss" else settings.cpus
    _check(settings, usable, megabytes + new_hugepage_bytes // MEGABYTE)
    arguments = ["--no-telemetry", "--log-level", "lib.eal:warning"]
    arguments += PCI_ON_DEMAND if any(port.driver == "pci" for port in settings.ports) else ["--no-pci"]
    arguments += _memory(megabytes, pci.numa_node(settings.ports))
    arguments += ["--lcores", _lcores(settings.cpus, own, usable)]
    arguments += ["--in-memory"] if settings.hugepages else ["--no-huge", "--no-shconf"]
    try:
        _dataplane.initialize(arguments)
    except _dataplane.DataplaneError as error:
        raise Refused(f"DPDK could not start ({error}); its own messages stand above this line.") from error
    finally:
        # EAL pinned this thread, and every later thread and child would inherit that.
        os.sched_setaffinity(0, control_cpus(own, spinning))
    return list(range(1, len(settings.cpus) + 1))
