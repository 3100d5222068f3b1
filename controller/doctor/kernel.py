"""The kernel's command line: what was asked for at boot, and whether it was had."""

from __future__ import annotations

import re
from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, ok, warning
from controller.doctor.machine import Machine

OF_INTEREST = (
    "isolcpus",
    "nohz_full",
    "rcu_nocbs",
    "default_hugepagesz",
    "hugepagesz",
    "hugepages",
    "intel_iommu",
    "amd_iommu",
    "iommu",
)
UNITS = {"K": 1, "M": 1 << 10, "G": 1 << 20}
"""In kilobytes."""


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """The words that matter to a node, and hugepages that were asked for and are not there."""
    line = machine.text("proc/cmdline").split()
    words = [word for word in line if word.split("=")[0] in OF_INTEREST]
    yield ok(f"command line: {' '.join(words) or 'nothing of isolcpus, nohz_full, hugepages, iommu'}")
    for kilobytes, asked in _hugepages(words).items():
        there = machine.number(f"sys/kernel/mm/hugepages/hugepages-{kilobytes}kB/nr_hugepages") or 0
        if there < asked:
            yield warning(
                f"{asked} hugepages of {kilobytes} kB were asked for at boot, and there are {there}",
                "there was no room for all of them, or somebody has given some back since",
                f"echo {asked} > /sys/kernel/mm/hugepages/hugepages-{kilobytes}kB/nr_hugepages",
            )


def _hugepages(words: list[str]) -> dict[int, int]:
    """How many of each size were asked for: each count is of the size before it, else of the default one."""
    values = [word.partition("=")[::2] for word in words]
    size = next((_kilobytes(value) for key, value in values if key == "default_hugepagesz"), 2048)
    asked: dict[int, int] = {}
    for key, value in values:
        if key == "hugepagesz":
            size = _kilobytes(value)
        elif key == "hugepages":
            asked[size] = asked.get(size, 0) + _count(value)
    asked.pop(0, None)
    return asked


def _kilobytes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9})([KMG])", text.upper(), re.ASCII)
    return int(found[1]) * UNITS[found[2]] if found else 0


def _count(text: str) -> int:
    """A number, or one for each NUMA node: `0:512,1:512`."""
    numbers = [part.rpartition(":")[2] for part in text.split(",")]
    return sum(int(number) for number in numbers if re.fullmatch(r"\d{1,9}", number, re.ASCII))
