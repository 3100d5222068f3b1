"""The clock: right, so that logs of several nodes can be laid side by side, and cheap to read."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, ok, warning
from controller.doctor.machine import Machine

SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
SLOW = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
"""What the kernel takes when it does not trust the CPU's own counter (TSC)."""


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """Both are of the machine; the configuration has no say in it."""
    mend = "apt-get install chrony, or timedatectl set-ntp true"
    why = "logs, captures and counters of several nodes are compared by time"
    match machine.facts.clock_synchronised():
        case True:
            yield ok("it is kept right")
        case False:
            yield warning("nothing keeps it right", why, mend)
        case None:
            yield warning("whether it is kept right is not known", why, mend)
    source = machine.word(SOURCE)
    if source in SLOW:
        yield warning(
            f"the kernel reads it from {source}",
            "it does not trust the CPU's counter (TSC), by which DPDK measures time; and each reading is slow",
            "look for tsc in dmesg; tsc=reliable on the kernel command line where the counter is known to be good",
        )
    elif source:
        yield ok(f"the kernel reads it from {source}")
