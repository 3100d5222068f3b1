"""Drivers of DPDK, as their files describe themselves: which NICs they have, and what these must be bound to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

DESCRIPTION = re.compile(rb"PMD_INFO_STRING= (\{[^\0]*\})\0")
ANY = 0xFFFF
"""In place of an id: every one."""

Identity = tuple[int, int, int, int]
"""Vendor, device, vendor and device of the subsystem."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One driver; `modules` are those of the kernel that its NICs need, as it says it."""

    name: str
    modules: str
    ids: tuple[Identity, ...]

    @property
    def bifurcated(self) -> bool:
        """Whether the kernel's own driver keeps the NIC and DPDK works through it: nothing is to be bound."""
        return "&" in self.modules

    def supports(self, nic: Identity) -> bool:
        """Whether it is a driver for such a NIC."""
        return any(all(mine in (ANY, its) for mine, its in zip(row, nic, strict=True)) for row in self.ids)


def is_for_nics(name: str) -> bool:
    """Whether a file of this name is a driver for NICs, or what several of a vendor's share."""
    return re.match(r"librte_(net|common)_\w+\.so", name) is not None


def read_all(files: Iterable[Path]) -> tuple[Driver, ...]:
    """Every driver of these files, sorted by name."""
    found = {driver for path in files for driver in _read(path)}
    return tuple(sorted(found, key=lambda driver: (driver.name, driver.ids)))


def _read(path: Path) -> list[Driver]:
    """The drivers of one file; none when it is damaged."""
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".rodata")
            data: bytes = section.data() if section else b""
    except Exception:  # a damaged file leads pyelftools into errors of any kind
        return []
    return [driver for text in DESCRIPTION.findall(data) if (driver := _driver(text)) is not None]


def _driver(text: bytes) -> Driver | None:
    try:
        said: dict[str, Any] = json.loads(text)
        ids = tuple(_identity(row) for row in said.get("pci_ids", ()))
        return Driver(str(said["name"]), str(said.get("kmod", "")), ids)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _identity(row: Iterable[Any]) -> Identity:
    vendor, device, subsystem_vendor, subsystem_device = (int(number) for number in row)
    return vendor, device, subsystem_vendor, subsystem_device
