"""NICs on PCI: what they are, who drives them, and what DPDK has for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from controller.doctor.drivers import Driver
from controller.doctor.machine import Machine

DEVICES = "sys/bus/pci/devices"
ETHERNET = 0x0200
"""The upper two bytes of the class."""


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC; `bound` is its driver in the kernel, `drivers` those of DPDK that know it."""

    address: str
    vendor: int
    device: int
    bound: str | None
    interfaces: tuple[str, ...]
    drivers: tuple[Driver, ...]

    @property
    def bifurcated(self) -> bool:
        """Whether DPDK leaves it with the kernel's own driver."""
        return any(driver.bifurcated for driver in self.drivers)

    @property
    def title(self) -> str:
        """Address, ids and names, for people."""
        names = "".join(f" {name}" for name in self.interfaces)
        return f"{self.address} [{self.vendor:04x}:{self.device:04x}]{names}"


def full_address(text: str) -> str:
    """The address as the kernel writes it; raises ValueError for what is none."""
    if not re.fullmatch(r"([0-9a-f]{4}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", text, re.ASCII | re.IGNORECASE):
        raise ValueError(f"{text} is no PCI address; write one such as 0000:3b:00.0 (lspci -D shows them)")
    return text.lower() if text.count(":") == 2 else f"0000:{text.lower()}"


def nics(machine: Machine) -> Iterator[Nic]:
    """Every NIC there is."""
    for address in machine.names(DEVICES):
        if nic := nic_at(machine, address):
            yield nic


def nic_at(machine: Machine, address: str) -> Nic | None:
    """The NIC with that address; None when there is none, or the device is something else."""
    directory = f"{DEVICES}/{address}"
    kind = machine.number(f"{directory}/class")
    ids = [machine.number(f"{directory}/{name}") for name in ("vendor", "device")]
    below = [machine.number(f"{directory}/subsystem_{name}") or 0 for name in ("vendor", "device")]
    vendor, device = ids
    if kind is None or kind >> 8 != ETHERNET or vendor is None or device is None:
        return None
    identity = (vendor, device, below[0], below[1])
    return Nic(
        address,
        vendor,
        device,
        machine.target(f"{directory}/driver"),
        tuple(_interfaces(machine, directory)),
        tuple(driver for driver in machine.drivers if driver.supports(identity)),
    )


def _interfaces(machine: Machine, directory: str) -> Iterator[str]:
    """Those of the kernel; a virtio NIC has them one device below."""
    children = [name for name in machine.names(directory) if name.startswith("virtio")]
    for parent in (directory, *(f"{directory}/{child}" for child in children)):
        yield from machine.names(f"{parent}/net")
