"""The IOMMU and vfio, by which a program may drive a NIC."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.machine import Machine
from controller.doctor.pci import nic_at

VFIO = "vfio-pci"
UNSAFE = "enable_unsafe_noiommu_mode"
WITHOUT_IOMMU = ("uio_pci_generic", "igb_uio")
"""Drivers of the kernel that hand out a NIC without one."""


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """What is on; what is missing is wrong only when a NIC shall be driven by it."""
    groups = len(machine.names("sys/kernel/iommu_groups"))
    unsafe = _unsafe(machine)
    loaded = machine.is_there("sys/bus/pci/drivers/vfio-pci") or machine.is_there("sys/module/vfio_pci")
    given = [nic for address in machine.for_dpdk if (nic := nic_at(machine, address)) and not nic.bifurcated]
    bare = [nic for nic in given if nic.bound in WITHOUT_IOMMU]
    for nic in bare:
        yield warning(
            f"{nic.bound} hands out {nic.address} without an IOMMU",
            "the NIC can write to any memory of the machine, and so can whoever controls the forwarder",
            f"with an IOMMU: modprobe {VFIO} && dpdk-devbind.py -b {VFIO} {nic.address}",
        )
    if len(given) == len(bare):
        state = f"on, with {groups} groups" if groups else "off"
        yield ok(f"the IOMMU is {state}; {VFIO} is {'loaded' if loaded else 'not loaded'}; no port needs them")
        return
    if groups:
        yield ok(f"the IOMMU is on, with {groups} groups")
    elif unsafe:
        yield warning(
            "the IOMMU is off, and vfio works without it (enable_unsafe_noiommu_mode)",
            "the NIC can write to any memory of the machine, and so can whoever controls the forwarder",
            _turn_on(machine),
        )
    else:
        yield error("the IOMMU is off", f"{VFIO} gives a NIC to a program only behind an IOMMU", _turn_on(machine))
    if driver_for(machine) != VFIO:
        return
    if loaded:
        yield ok(f"{VFIO} is loaded")
    elif f"/{VFIO}.ko" in machine.text(f"lib/modules/{machine.word('proc/sys/kernel/osrelease')}/modules.dep"):
        for_good = f"echo {VFIO} > /etc/modules-load.d/{VFIO}.conf"
        yield error(f"{VFIO} is not loaded", "NICs are bound to it", f"modprobe {VFIO}   # for good: {for_good}")
    else:
        mend = "boot a kernel with CONFIG_VFIO_PCI, such as Debian's linux-image-amd64"
        yield error(f"this kernel has no {VFIO}", "NICs are bound to it", mend)


def driver_for(machine: Machine) -> str:
    """The kernel's driver that NICs are to be bound to: vfio-pci, but where a virtual machine cannot have that."""
    behind_one = machine.names("sys/kernel/iommu_groups") or _unsafe(machine)
    virtual = " hypervisor" in machine.text("proc/cpuinfo")
    return VFIO if behind_one or not virtual or _can_do_without(machine) else WITHOUT_IOMMU[0]


def _unsafe(machine: Machine) -> bool:
    return machine.text(f"sys/module/vfio/parameters/{UNSAFE}") in ("Y", "1")


def _can_do_without(machine: Machine) -> bool:
    """Whether vfio was built so that it can do without an IOMMU. Debian's was not, and says nothing when asked."""
    built_with = machine.text(f"boot/config-{machine.word('proc/sys/kernel/osrelease')}")
    return "CONFIG_VFIO_NOIOMMU=y" in built_with or machine.is_there(f"sys/module/vfio/parameters/{UNSAFE}")


def _turn_on(machine: Machine) -> str:
    """On Intel many kernels have to be told to use it; elsewhere they do unless told otherwise."""
    words, cpu = machine.text("proc/cmdline").split(), machine.text("proc/cpuinfo")
    if " hypervisor" in cpu:
        unsafe = f"modprobe vfio; echo 1 > /sys/module/vfio/parameters/{UNSAFE}"
        bare = f"bind the NIC to {WITHOUT_IOMMU[0]}"
        without = unsafe if _can_do_without(machine) else bare
        return f"give this virtual machine a virtual IOMMU; or do without, when it is trusted: {without}"
    if "GenuineIntel" not in cpu:
        off = [word for word in ("amd_iommu=off", "iommu=off") if word in words]
        return (
            f"take {off[0]} off the kernel command line, and reboot"
            if off
            else "switch the IOMMU (AMD-Vi) on in the firmware"
        )
    if "intel_iommu=on" in words:
        return "switch VT-d on in the firmware"
    return "add intel_iommu=on iommu=pt to the kernel command line, and reboot (VT-d must be on in the firmware)"
