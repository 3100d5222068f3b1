"""DPDK's environment for benchmarks: which lcore is on which CPU.

The last CPU is the one that is measured on. The main lcore of a benchmark of workers is the first worker, so it is
pinned there; that of a node only waits, and may be anywhere.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from perf import memory

CPUS = sorted(os.sched_getaffinity(0))
SOURCE = 1  # lcore of the traffic source, on the first CPU
NODE = 2  # lcore of a node that runs on one, on the last CPU
STAGES = 3  # lcore of steering; the workers' and muxing's follow
MEGABYTES = 1400


def require_bench() -> None:
    """End with a sentence when the C part is not built."""
    if find_spec("perf._bench") is None:
        sys.exit("The benchmarks' C part is not built: run `make bench` in the checkout, once.")


def start_workers(most: int, *, hugepages: bool = False) -> None:
    """For up to so many workers at once: the first on the main lcore, number n on lcore n, each on its own CPU."""
    cpus = [CPUS[-1], *CPUS[: most - 1]]
    _start([f"{lcore}@{cpu}" for lcore, cpu in enumerate(cpus)], hugepages)
    os.sched_setaffinity(0, {CPUS[-1]})


def options(parser: argparse.ArgumentParser) -> None:
    """What benchmarks of whole nodes can be asked beyond the rest."""
    memory.option(parser, default=True)
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="measure at real-time priority (root): on a machine that others use, takes the CPUs from them meanwhile",
    )


def start_node(workers: int = 1, *, realtime: bool = False, hugepages: bool = False) -> None:
    """For a source, a node on one lcore, and a node of stages with so many workers."""
    everywhere = ",".join(map(str, CPUS))
    pinned = {SOURCE: CPUS[0], NODE: CPUS[-1]}
    pinned |= {STAGES + i: cpu for i, cpu in enumerate(stage_cpus(workers))}
    _start([f"0@({everywhere})", *(f"{lcore}@{cpu}" for lcore, cpu in pinned.items())], hugepages)
    os.sched_setaffinity(0, CPUS)
    if realtime:
        _take_priority()


def stage_cpus(workers: int) -> list[int]:
    """CPUs of steering, workers, muxing: workers have the last ones; the other two share when there are too few."""
    rest = CPUS[:-workers] or CPUS
    return [rest[0], *CPUS[-workers:], rest[1 % len(rest)]]


def shared(workers: int) -> bool:
    """Whether stages share a CPU."""
    cpus = stage_cpus(workers)
    return len(set(cpus)) < len(cpus)


def let_others_run(seconds: float) -> None:
    """After a window at real-time priority: the kernel would else take 50 ms of each second for them."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        time.sleep(seconds / 2)


def _take_priority() -> None:
    """The lcores before other processes, and before them the main thread, which tells them to stop."""
    for task in Path("/proc/self/task").iterdir():
        if "worker" in (task / "comm").read_text():  # rte-worker-1 and so on
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))


def _start(lcores: Sequence[str], hugepages: bool) -> None:
    require_bench()
    from perf._bench import initialize

    quiet = ["--log-level", "lib.eal:error", "--log-level", "pmd.net.memif:critical"]
    with memory.borrowed(MEGABYTES) if hugepages else nullcontext():
        initialize([*memory.arguments(MEGABYTES, hugepages=hugepages), "--lcores", ",".join(lcores), *quiet])
