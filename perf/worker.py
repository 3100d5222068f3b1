"""Nanoseconds per packet of one worker, beside the memory floor of the same bursts, measured in turns.

The worker is the real one, with every check, fate and counter on; what feeds it is generated and not timed. The floor
is what no implementation can avoid: one header line read, one line of a table of the same size read and stamped,
38 bytes of headers written. Their ratio means something on a shared machine, single times do not.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from perf.machine import describe

ROUNDS = 5
BURSTS = 8000
MEGABYTES = 1400
FATES_MET = 0.999  # of the packets of a round; a flood meets what a full table allows


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic that a worker sees; `size` is the frame's length."""

    name: str
    traffic: str
    flows: int
    version: int = 4
    size: int = 74
    vips: int = 100
    backends: int = 100
    cold: bool = False


CASES = (
    Case("hit, 1 k flows", "hit", 1 << 10),
    Case("hit, 131 k flows", "hit", 1 << 17),
    Case("hit, 1 M flows", "hit", 1 << 20),
    Case("hit, 4 M flows", "hit", 1 << 22),
    Case("hit, IPv6, 131 k flows", "hit", 1 << 17, version=6, size=94),
    Case("new flows, 131 k", "new", 1 << 17),
    Case("new flows, 1 M", "new", 1 << 20),
    Case("SYN flood, 131 k entries", "flood", 1 << 17),
    Case("not a vip", "not_vip", 1 << 17),
    Case("hit, 1500 bytes", "hit", 1 << 17, size=1514),
    Case("hit, 131 k flows, cold buffers", "hit", 1 << 17, cold=True),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over the rounds; `ratio` is the median of the rounds' own ratios."""

    case: str
    flows: int
    ns: float
    floor_ns: float
    ratio: float


def measure(case: Case, bursts: int) -> Result:
    """One case. Raises AssertionError when its packets did not meet the fate that they are to meet."""
    from perf._bench import Bench

    bench = Bench(
        case.traffic,
        case.flows,
        vips=case.vips,
        backends=case.backends,
        version=case.version,
        size=case.size,
        cold=case.cold,
    )
    try:
        bench.run(bursts // 10)
        rounds = [bench.run(bursts) for _ in range(ROUNDS)]
    finally:
        bench.close()
    met = min(share for _, _, share in rounds)
    assert case.traffic == "flood" or met >= FATES_MET, f"{case.name}: {met:.1%} of the packets met their fate"
    return Result(
        case.name,
        case.flows,
        statistics.median(worker for worker, _, _ in rounds),
        statistics.median(floor for _, floor, _ in rounds),
        statistics.median(worker / floor for worker, floor, _ in rounds),
    )


def start(cpu: int) -> None:
    """DPDK on one CPU, in ordinary memory."""
    from perf._bench import initialize

    initialize(
        ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", str(MEGABYTES)]
        + ["--lcores", f"0@{cpu}", "--log-level", "lib.eal:error"]
    )
    os.sched_setaffinity(0, {cpu})


def show(results: Sequence[Result]) -> Table:
    """For a person."""
    table = Table("case", box=None)
    for column in ("ns", "floor ns", "ratio"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(result.case, f"{result.ns:.1f}", f"{result.floor_ns:.1f}", f"{result.ratio:.2f}")
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench worker", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write the JSON to a file too")
    parser.add_argument("--bursts", type=int, default=BURSTS, help="of 32 packets, in each of five rounds")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    asked = parser.parse_args(argv)
    machine = describe()
    start(max(os.sched_getaffinity(0)))
    cases = [case for case in CASES if asked.only in case.name]
    progress = Console(stderr=True)
    results = [measure(case, asked.bursts) for case in track(cases, "measuring", console=progress, transient=True)]
    written: dict[str, Any] = {
        "benchmark": "worker",
        "machine": machine,
        "settings": {"rounds": ROUNDS, "bursts": asked.bursts, "cases": [asdict(case) for case in cases]},
        "results": [asdict(result) for result in results],
    }
    if asked.out is not None:
        asked.out.write_text(json.dumps(written, indent=1) + "\n")
    if asked.json:
        print(json.dumps(written))
    else:
        Console().print(show(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
