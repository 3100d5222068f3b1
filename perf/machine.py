"""What a figure was measured on, and who else was there."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Processor, kernel, DPDK and our commit, for result files."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "dpdk": _said("pkg-config", "--modversion", "libdpdk"),
        "commit": _said("git", "rev-parse", "--short", "HEAD"),
        "changed": bool(_said("git", "status", "--porcelain", "--untracked-files=no")),
    }


def title(written: dict[str, Any]) -> str:
    """One line under a picture, from a result file."""
    machine = written["machine"]
    kernel = ".".join(str(machine["kernel"]).split(".")[:2])
    plural = "s" if machine["cpus"] != 1 else ""
    commit = f"{machine['commit']}{' and changes' if machine['changed'] else ''}"
    memory = ", hugepages" if written["settings"].get("hugepages") else ""
    return (
        f"{machine['cpus']} CPU{plural} {machine['cpu']}{memory}, Linux {kernel}, DPDK {machine['dpdk']}, "
        f"commit {commit}"
    )


class Others:
    """How much of the CPUs other processes used since this was made."""

    def __init__(self) -> None:
        self._at = _busy(), _own()

    def cpus(self, seconds: float) -> float:
        """CPUs that others kept busy on average, over the `seconds` since then."""
        busy, own = _busy() - self._at[0], _own() - self._at[1]
        return max(0.0, busy - own) / seconds


def _busy() -> float:
    """Seconds that all CPUs together were busy, time that a hypervisor took included."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Seconds of this process and the children it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _said(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
