"""dpdk-testpmd, DPDK's own forwarder, as a ceiling: on the same kind of port the least that can be done."""

import re
import shutil
import signal
import subprocess
import time
from contextlib import nullcontext

from perf import memory
from perf.lcores import CPUS

PROGRAM = "dpdk-testpmd"
MEGABYTES = 256
RATE = re.compile(r"Tx-pps:\s+(\d+)")
START_SECONDS = 20


def installed() -> bool:
    """Debian has it in the package dpdk-dev."""
    return shutil.which(PROGRAM) is not None


def rate(device: str, forward: str, seconds: int, *, hugepages: bool) -> int:
    """Packets per second on one lcore, the best second's, since it is a ceiling; `forward` is io, macswap or so.

    Raises RuntimeError with what it said when it did not run.
    """
    lcores = ["--lcores", f"0@{CPUS[0]},1@{CPUS[-1]}"]
    memory_arguments = memory.arguments(MEGABYTES, hugepages=hugepages)
    eal = [*memory_arguments, *lcores, "--vdev", device, "--log-level", "lib.eal:error"]
    own = [f"--forward-mode={forward}", "--port-topology=loop", "--nb-cores=1", "--total-num-mbufs=16384"]
    own += ["--stats-period=1", *(["--tx-first"] if "net_ring" in device else ["--auto-start"])]
    command = [PROGRAM, *eal, "--", *own]
    with memory.borrowed(MEGABYTES) if hugepages else nullcontext():
        said = _run(command, seconds + 2)
    samples = [int(found) for found in RATE.findall(said)][1:]  # the first is of no whole second
    if not samples or not any(samples):
        raise RuntimeError(f"{PROGRAM} on {device} forwarded nothing: {' '.join(said.split()[-30:])}")
    return max(samples)


def _run(command: list[str], seconds: int) -> str:
    """What it said until it was interrupted."""
    said_to, nothing = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, text=True, stdin=nothing, stdout=said_to, stderr=subprocess.STDOUT)
    try:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=START_SECONDS)
    finally:
        process.kill()
        process.wait()
    return said
