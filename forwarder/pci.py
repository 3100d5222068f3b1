"""NICs on PCI as the kernel tells of them in sysfs: whether DPDK can have one, and where it is. No DPDK in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forwarder.settings import PortSettings, Refused

DEVICES = Path("/sys/bus/pci/devices")
NODES = Path("/sys/devices/system/node")
FOR_PROGRAMS = ("vfio-pci", "uio_pci_generic", "igb_uio")
"""Drivers of the kernel that hand a device to a program."""
SHARED = ("mlx4_core", "mlx5_core")
"""Drivers of the kernel that share a device with DPDK."""


def check(address: str) -> None:
    """Raises Refused when there is no such device, or the kernel has not let go of it."""
    if not (DEVICES / address).exists():
        there = ", ".join(sorted(_nics())) or "none"
        raise Refused(f"there is no PCI device {address} here (forwarder.ports); NICs on PCI: {there}.")
    driver = _driver(address)
    if driver not in FOR_PROGRAMS + SHARED:
        raise Refused(
            f"{address} is bound to {driver or 'no driver'}, and DPDK can only have a NIC that is bound to vfio-pci: "
            "`maglev doctor CONFIG` gives the commands."
        )


def numa_node(ports: tuple[PortSettings, ...]) -> int | None:
    """Where memory should be: the node of the first NIC on PCI; None where that does not matter or is not told."""
    if len(list(NODES.glob("node[0-9]*"))) < 2:
        return None
    for port in ports:
        if port.driver == "pci":
            node = int((DEVICES / port.device / "numa_node").read_text())
            return node if node >= 0 else None
    return None


@contextmanager
def near(node: int | None) -> Iterator[None]:
    """On the CPUs of a NUMA node: memory that is first written here lies there."""
    before = os.sched_getaffinity(0)
    if node is not None:
        with suppress(OSError):  # none of them is ours, or the node has none: then it lies where it may
            os.sched_setaffinity(0, {int(cpu.name[3:]) for cpu in (NODES / f"node{node}").glob("cpu[0-9]*")})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _driver(address: str) -> str | None:
    try:
        return os.path.basename(os.readlink(DEVICES / address / "driver"))
    except OSError:
        return None


def _nics() -> Iterator[str]:
    for device in DEVICES.glob("*"):
        if (device / "class").read_text().startswith("0x0200"):
            yield device.name
