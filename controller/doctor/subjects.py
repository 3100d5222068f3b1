"""The subjects of `maglev doctor`, in the order in which one would mend them, and its whole answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from controller.config import Config
from controller.doctor import (
    addresses,
    clock,
    cpus,
    dpdk,
    hugepages,
    interfaces,
    iommu,
    kernel,
    limits,
    mtu,
    nics,
    speaker,
    topology,
)
from controller.doctor.finding import Finding, warning
from controller.doctor.machine import Machine

Examine = Callable[[Machine, Config | None], Iterable[Finding]]


def _reading(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """What the others were not allowed to read."""
    if machine.unreadable:
        listed = ", ".join(sorted(machine.unreadable))
        yield warning(f"not allowed to read {listed}", "what depends on it could not be judged", "run it as root")


SUBJECTS: dict[str, Examine] = {
    "kernel": kernel.examine,
    "DPDK": dpdk.examine,
    "hugepages": hugepages.examine,
    "IOMMU": iommu.examine,
    "NICs": nics.examine,
    "CPUs": cpus.examine,
    "topology": topology.examine,
    "interfaces": interfaces.examine,
    "MTU": mtu.examine,
    "addresses": addresses.examine,
    "limits": limits.examine,
    "clock": clock.examine,
    "BGP": speaker.examine,
    "reading": _reading,
}


def diagnose(machine: Machine, config: Config | None) -> dict[str, Any]:
    """Every finding about this machine, and how many are errors and warnings."""
    findings = [
        {"subject": subject, **asdict(finding)}
        for subject, examine in SUBJECTS.items()
        for finding in examine(machine, config)
    ]
    levels = [finding["level"] for finding in findings]
    return {"findings": findings, "errors": levels.count("error"), "warnings": levels.count("warning")}
