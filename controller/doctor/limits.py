"""Rights and limits of this shell, which a node that is started from it inherits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.interfaces import of_ports
from controller.doctor.machine import Machine
from controller.machine import capabilities, lacking
from controller.model import check_keys
from forwarder.settings import parse

BESIDE_PROBES = 256
"""Files and sockets that a controller has open for other things, with room to spare."""
CAP_IPC_LOCK = 14


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """Rights, open files, and memory that may be locked."""
    status = machine.text("proc/self/status")
    yield from _rights(status, config)
    yield from _files(machine, config)
    locked = _limit(machine, "Max locked memory")
    if machine.for_dpdk and locked is not None and not capabilities(status) >> CAP_IPC_LOCK & 1:
        yield warning(
            f"{locked >> 20} MB of memory may be locked",
            "vfio locks all memory that a NIC can reach",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit of systemd",
        )


def _rights(status: str, config: Config | None) -> Iterator[Finding]:
    reasons = []
    is_root = re.search(r"^Uid:\s+\d+\s+0\b", status, re.MULTILINE) is not None
    if config and config.forwarder.hugepages and not is_root:
        reasons.append("hugepages need root")
    kernels = config and (of_ports(config) or any(port.tap for port in parse(config.forwarder_settings()).ports))
    if kernels and (missing := lacking(capabilities(status))):
        reasons.append(f"packets on interfaces need {' and '.join(missing)}")
    if reasons:
        why = "maglev run from this shell does not start a node"
        yield warning(f"this shell is not root's: {'; '.join(reasons)}", why, "run it as root")
    elif config:
        yield ok("this shell may run the node")


def _files(machine: Machine, config: Config | None) -> Iterator[Finding]:
    limit = _limit(machine, "Max open files")
    if limit is None:
        return
    probes = len(check_keys(config.all_services)) if config else 0
    if limit < probes + BESIDE_PROBES:
        yield error(
            f"{limit} files may be open at a time, and {probes} health checks take one each",
            "probes that find no free one fail, and healthy backends are taken out",
            f"ulimit -n {probes + BESIDE_PROBES}, or LimitNOFILE={probes + BESIDE_PROBES} in the unit of systemd",
        )
    else:
        yield ok(f"{limit} files may be open; {probes} health checks")


def _limit(machine: Machine, name: str) -> int | None:
    """The soft limit; None when there is none, or it is not told."""
    found = re.search(rf"^{name}\s+(\d{{1,19}})\s", machine.text("proc/self/limits"), re.MULTILINE)
    return int(found[1]) if found else None
