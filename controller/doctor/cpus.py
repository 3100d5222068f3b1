"""CPUs: whether the stages can have theirs, have them for themselves, and at full speed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from controller.config import Config
from controller.doctor.cpu_list import parse, written
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.machine import Machine
from controller.doctor.stages import pinned

CPUS = "sys/devices/system/cpu"


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """What is there, then the CPUs of the configuration's stages."""
    online = machine.cpus(f"{CPUS}/online")
    isolated = machine.cpus(f"{CPUS}/isolated")
    yield ok(f"online: {written(online) or '-'}; isolated: {written(isolated) or 'none'}")
    if config is None:
        return
    stages = pinned(config)
    own = _own(machine, online)
    yield from _to_be_had(stages, own, _cpuset(machine, online))
    if config.forwarder.idle == "sleep":
        yield from _asleep(stages, isolated)
    else:
        yield from _for_themselves(machine, stages & online, isolated)
        yield from _left_over(stages, own)
    yield from _governor(machine, stages)


def _own(machine: Machine, online: frozenset[int]) -> frozenset[int]:
    """Those that this process may run on as it is, as the node that is started from the same shell."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)$", machine.text("proc/self/status"), re.MULTILINE)
    return online & parse(found[1]) if found else online


def _cpuset(machine: Machine, online: frozenset[int]) -> frozenset[int]:
    """Those that the cpuset of this process, such as a container's, lets it have; all where none is told."""
    found = re.search(r"^0::(/\S*)$", machine.text("proc/self/cgroup"), re.MULTILINE)
    # In a container the path may be that of the host, and the file stands at the top.
    for group in (found[1] if found else "/", "/"):
        if cpus := machine.cpus(f"sys/fs/cgroup/{group.strip('/')}/cpuset.cpus.effective".replace("//", "/")):
            return online & cpus
    return online


def _to_be_had(stages: frozenset[int], own: frozenset[int], cpuset: frozenset[int]) -> Iterator[Finding]:
    """The kernel starts every process off the isolated CPUs, also the shell; the forwarder asks for its own."""
    if lost := stages - own - cpuset:
        yield error(
            f"CPU {written(lost)} of forwarder.lcores is offline, not there, or not in the cpuset of this shell",
            "the forwarder does not start without the CPUs of its stages",
            f"write CPUs among {written(own | cpuset)} in forwarder.lcores, or give the container those",
        )
        return
    asked = f"; {written(stages - own)} are not in the set of this shell, and the forwarder asks for them"
    yield ok(f"the stages can have theirs: {written(stages)}{asked if stages - own else ''}")


def _asleep(stages: frozenset[int], isolated: frozenset[int]) -> Iterator[Finding]:
    if stages <= isolated:
        yield warning(
            f"the CPUs {written(stages)} are isolated, and with `idle: sleep` their stages sleep",
            "nobody else uses these CPUs, and a packet that comes to a sleeping stage waits",
            "write `idle: spin` in the forwarder section",
        )
    else:
        yield ok("with `idle: sleep` stages share their CPUs with others: nothing is to be isolated")


def _for_themselves(machine: Machine, stages: frozenset[int], isolated: frozenset[int]) -> Iterator[Finding]:
    quiet = machine.cpus(f"{CPUS}/nohz_full")
    listed = written(stages)
    mend = f"add isolcpus={listed} nohz_full={listed} rcu_nocbs={listed} to the kernel command line, and reboot"
    if shared := stages - isolated:
        why = "the stages there spin, and when the scheduler puts another task beside one, packets wait for it"
        yield warning(f"CPU {written(shared)} is not isolated", why, mend)
    if ticking := (stages & isolated) - quiet:
        why = "the timer interrupts the stage there up to a thousand times a second, though nothing else runs"
        yield warning(f"CPU {written(ticking)} has the timer tick (nohz_full)", why, mend)
    if stages <= isolated & quiet:
        yield ok("those of the stages are isolated, and without timer tick")


def _left_over(stages: frozenset[int], own: frozenset[int]) -> Iterator[Finding]:
    if not own - stages:
        yield warning(
            "stages spin on every CPU",
            "controller, health checks and BGP have to take turns with them: both are late",
            "leave a CPU out of forwarder.lcores, or write `idle: sleep`",
        )


def _governor(machine: Machine, stages: frozenset[int]) -> Iterator[Finding]:
    governors = {cpu: machine.word(f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor") for cpu in sorted(stages)}
    slow = {cpu: governor for cpu, governor in governors.items() if governor not in ("", "performance")}
    if slow:
        listed = written(slow)
        yield warning(
            f"the frequency governor of CPU {listed} is {', '.join(sorted(set(slow.values())))}",
            "the clock goes down when traffic is light, and the first packets of a burst pay for it",
            f"cpupower -c {listed} frequency-set -g performance   # apt-get install linux-cpupower",
        )
    elif any(governors.values()):
        yield ok("the frequency governor of the stages' CPUs is performance")
    else:
        yield ok("no frequency scaling by this kernel")
