"""NICs against DPDK: whether it has a driver for them, what they are bound to, and how that is changed."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.iommu import VFIO, driver_for
from controller.doctor.machine import Machine
from controller.doctor.pci import DEVICES, Nic, nic_at, nics
from forwarder.pci import FOR_PROGRAMS

BRIDGE = 0x06


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """Those that DPDK shall have are judged; of the others is said what they would need."""
    found = list(nics(machine))
    for address in machine.for_dpdk:
        if nic := nic_at(machine, address):
            yield from _judged(machine, nic)
        else:
            there = ", ".join(other.address for other in found) or "none"
            yield error(f"there is no NIC {address}", "DPDK shall have it", f"give one of these: {there}")
    for nic in found:
        if nic.address not in machine.for_dpdk:
            yield ok(_told(nic))
    if not found:
        yield ok("there is no NIC on PCI")


def _told(nic: Nic) -> str:
    says = f"{nic.title}: bound to {nic.bound or 'nothing'}"
    if not nic.drivers:
        return f"{says}; DPDK has no driver for it here, so it can only be a port by its interface"
    if nic.bifurcated or nic.bound in FOR_PROGRAMS:
        return f"{says}; {_names(nic)} of DPDK can have it as it is"
    return f"{says}; {_names(nic)} of DPDK could have it, bound to {VFIO}"


def _judged(machine: Machine, nic: Nic) -> Iterator[Finding]:
    if not nic.drivers:
        yield error(
            f"{nic.title} is not supported: no driver of DPDK here has its id",
            "DPDK cannot open it",
            "apt-get install librte-meta-net brings all drivers; else use its kernel interface as the port",
        )
        return
    yield ok(f"{nic.title} is supported by {_names(nic)}")
    if nic.bifurcated:
        yield from _left_to_the_kernel(nic)
        return
    if nic.bound in FOR_PROGRAMS:
        yield ok(f"{nic.address} is bound to {nic.bound}")
    else:
        yield from _to_bind(machine, nic)
    yield from _group(machine, nic)


def _left_to_the_kernel(nic: Nic) -> Iterator[Finding]:
    if nic.bound and nic.bound not in FOR_PROGRAMS:
        yield ok(f"{nic.address} stays bound to {nic.bound}: this driver of DPDK works through it")
        return
    module = nic.drivers[0].modules.replace("*", "").split("&")[1].strip()
    yield error(
        f"{nic.address} is bound to {nic.bound or 'nothing'}",
        f"{_names(nic)} works through the kernel's own driver",
        f"modprobe {module} && driverctl unset-override {nic.address}",
    )


def _to_bind(machine: Machine, nic: Nic) -> Iterator[Finding]:
    driver = driver_for(machine)
    yield error(
        f"{nic.address} is bound to {nic.bound or 'nothing'}, not to {driver}",
        "DPDK can have a NIC only when the kernel has let go of it",
        f"modprobe {driver} && dpdk-devbind.py -b {driver} {nic.address}   # for good: driverctl set-override "
        f"{nic.address} {driver}",
    )
    for name in set(nic.interfaces) & _with_default_route(machine):
        yield warning(
            f"the default route goes by {name}, which is {nic.address}",
            "once it is bound the interface is gone, and with it the way to this machine",
            "take another NIC, or see that you reach the machine by another one first",
        )


def _group(machine: Machine, nic: Nic) -> Iterator[Finding]:
    """A group is what an IOMMU can tell apart: a program has all of it or nothing."""
    for address in machine.names(f"{DEVICES}/{nic.address}/iommu_group/devices"):
        bound = machine.target(f"{DEVICES}/{address}/driver")
        is_bridge = (machine.number(f"{DEVICES}/{address}/class") or 0) >> 16 == BRIDGE
        if address != nic.address and bound and bound not in FOR_PROGRAMS and not is_bridge:
            yield error(
                f"{address}, in one IOMMU group with {nic.address}, is bound to {bound}",
                f"{VFIO} hands out whole groups only",
                f"dpdk-devbind.py -b {VFIO} {address}, or put the NIC into another slot",
            )


def _with_default_route(machine: Machine) -> set[str]:
    rows = [line.split() for line in machine.text("proc/net/route").splitlines()[1:]]
    return {row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"}


def _names(nic: Nic) -> str:
    return " or ".join(driver.name for driver in nic.drivers)
