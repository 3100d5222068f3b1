"""Ten thousand TCP checks and two thousand HTTP checks at 5 s from one process: are they on time, at which cost?

The runner and the probes are the controller's own. The backends are addresses of 127.0.0.0/8, which one other process
serves (perf/health_server.py). Lateness is from the moment a probe was due to the moment it began. A reload takes a
tenth of the targets out, puts others in, and changes the check of another tenth. At last no backend answers: the
other process is stopped, and once the kernel's queues for it are full, probes end at their deadline.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from controller.collector import collect_seldom
from controller.file_limit import probes_at_once, raise_file_limit
from controller.health_runner import HealthRunner
from controller.model import CheckKey, Verdict
from controller.probes import KINDS, make_probe
from controller.probes.check import Check
from controller.probes.probe import Probe, ProbeResult
from perf.health_server import serve
from perf.results import Law, Results, finish, options, steps

INTERVAL = 5.0
SECONDS = 20
RELOADS = 1000
LATENESS_MS = 250  # of 99 of 100
CORES = 0.5
FILES = 2
"""More files than before the reloads; each sample is the least of many, so probes under way are hardly in it."""

Targets = dict[CheckKey, Check]


@dataclass(slots=True)
class Seen:
    """What the probes of a window were like."""

    late: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    failed: int = 0


class Watched(Probe):
    """A probe of the controller that notes when it began and what came of it."""

    def __init__(self, bench: Bench, key: CheckKey, check: Check) -> None:
        super().__init__(check.timeout)
        self._bench, self._key = bench, key
        self._inner = make_probe(key, check)

    async def ask(self) -> str:
        """Never called: the whole probe is the inner one's."""
        return await self._inner.ask()

    async def probe(self) -> ProbeResult:
        """As the inner one."""
        seen = self._bench.seen
        seen.late.append(asyncio.get_running_loop().time() - self._bench.runner.targets[self._key].due)
        result = await self._inner.probe()
        seen.took.append(result.seconds)
        seen.failed += not result.passed
        return result


class Bench:
    """One runner, and what it did since the last window began."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.runner = HealthRunner(
            lambda key, check: Watched(self, key, check), lambda *_: None, probes_at_once(raise_file_limit())
        )

    async def settle(self, targets: Targets) -> None:
        """Probe these until each has its verdict; begin with none."""
        self.runner.set_targets({})
        self.runner.set_targets(targets)
        await asyncio.sleep(INTERVAL)
        while Verdict.UNKNOWN in self.runner.verdicts().values():  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.1)

    async def window(self, case: str, seconds: float, *, answered: bool = True) -> dict[str, Any]:
        """A row: what was seen in so many seconds. Raises AssertionError when probes did not fare as they should."""
        self.seen, began, cpu = Seen(), time.monotonic(), _cpu()
        await asyncio.sleep(seconds)
        row = self.row(case, began, cpu)
        wrong = self.seen.failed if answered else len(self.seen.took) - self.seen.failed
        assert wrong == 0, f"{case}: {wrong} probes {'failed' if answered else 'passed'}"
        return row

    def row(self, case: str, began: float, cpu: float) -> dict[str, Any]:
        """What was seen since then."""
        elapsed, seen = time.monotonic() - began, self.seen
        late = statistics.quantiles((second * 1e3 for second in seen.late), n=1000, method="inclusive")
        return {
            "case": case,
            "targets": len(self.runner.targets),
            "per_second": len(seen.late) / elapsed,
            "made": len(seen.late) / elapsed * INTERVAL / len(self.runner.targets),
            "late_p50_ms": late[499],
            "late_p99_ms": late[989],
            "late_p999_ms": late[998],
            "late_max_ms": max(seen.late) * 1e3,
            "probe_p50_ms": statistics.median(seen.took) * 1e3,
            "cores": (_cpu() - cpu) / elapsed,
            "us_each": (_cpu() - cpu) / len(seen.late) * 1e6,
            "files": None,
        }

    async def reloads(self, targets: Targets, count: int) -> tuple[dict[str, Any], int]:
        """A row for so many reloads, and how many more files are open after them."""
        before = await _files()
        self.seen, began, cpu = Seen(), time.monotonic(), _cpu()
        for number in range(count):
            self.runner.set_targets(_reloaded(targets, number))
            await asyncio.sleep(0.02)
        row = self.row(f"both, {count} reloads meanwhile", began, cpu)
        after = await _files()
        return {**row, "made": None, "files": after}, after - before


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


async def _files() -> int:
    """Open files of this process, without most of those of probes under way."""
    least = sys.maxsize
    for _ in range(200):
        least = min(least, len(os.listdir("/proc/self/fd")))
        await asyncio.sleep(0.01)
    return least


def _targets(kind: str, count: int, network: int, port: int) -> Targets:
    check = KINDS[kind].section.model_validate({"type": kind, "port": port, "interval": "5s", "timeout": "2s"})
    return {CheckKey(IPv4Address(f"127.{network}.{n // 250}.{n % 250 + 1}"), kind): check for n in range(count)}


def _reloaded(targets: Targets, number: int) -> Targets:
    """Nine tenths of them, one of these with another check; which ones depends on the number."""
    part = number % 10
    kept = {key: check for position, (key, check) in enumerate(targets.items()) if position % 10 != part}
    changed = [key for position, key in enumerate(kept) if position % 10 == part]
    return kept | {key: kept[key].model_copy(update={"fall": 3 + number % 7}) for key in changed}


async def measure(asked: argparse.Namespace, server: int, ports: Sequence[int], results: Results) -> None:
    """Fill the results; `server` is the process of the backends."""
    bench = Bench()
    tcp, http = _targets("tcp", asked.tcp, 1, ports[0]), _targets("http", asked.http, 2, ports[1])
    cases = {"TCP": tcp, "HTTP": http, "both": tcp | http}
    for name in steps(list(cases), str):
        await bench.settle(cases[name])
        results.rows.append(await bench.window(name, asked.seconds))
    both = results.rows[-1]
    row, more_files = await bench.reloads(tcp | http, asked.reloads)
    results.rows.append(row)
    await bench.settle(tcp | http)
    os.kill(server, signal.SIGSTOP)
    await asyncio.sleep(2 * INTERVAL)
    results.rows.append(await bench.window("both, none answered", asked.seconds, answered=False))
    os.kill(server, signal.SIGCONT)
    await bench.runner.close()
    latest = max(row["late_p99_ms"] for row in results.rows)
    results.laws += [
        Law("lateness that 99 of 100 probes stay within, in every case, ms", latest, LATENESS_MS),
        Law("CPU of the process with both, cores", both["cores"], CORES),
        Law("share of probes of both that were not made", 1 - both["made"], 0.01),
        Law(f"files open after {asked.reloads} reloads beyond those before", more_files, FILES),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench health", description=__doc__)
    options(parser, "health")
    parser.add_argument("--tcp", type=int, default=10_000, help="TCP checks")
    parser.add_argument("--http", type=int, default=2_000, help="HTTP checks")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each window")
    parser.add_argument("--reloads", type=int, default=RELOADS)
    asked = parser.parse_args(argv)
    columns = {"case": "checks", "per_second": "per second", "late_p50_ms": "late ms: median", "late_p99_ms": "99 %"}
    columns |= {"late_p999_ms": "99.9 %", "late_max_ms": "most", "cores": "cores", "us_each": "us each"}
    settings = {"tcp": asked.tcp, "http": asked.http, "interval": INTERVAL, "seconds": asked.seconds}
    results = Results("health", settings | {"reloads": asked.reloads}, columns | {"files": "files"})
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        assert server.pid
        collect_seldom()
        asyncio.run(measure(asked, server.pid, here.recv(), results))
    finally:
        server.kill()
        server.join()
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
