"""The worker under pytest-benchmark: its clock stands still but while a worker works, so that its figures are those.

A round is a turn of 1000 bursts; times are of one round. Run by `make bench-pytest`, never by `make test`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from perf import lcores
from perf.worker import BURST, CASES, Case

BURSTS = 1000
CHOSEN = ("hit, 131 k flows", "hit, 1 M flows", "hit, IPv6, 131 k flows", "new flows, 131 k", "not a vip")


class WorkerClock:
    """Seconds that workers have worked."""

    seconds = 0.0

    @classmethod
    def now(cls) -> float:
        return cls.seconds


@pytest.fixture(scope="session", autouse=True)
def dpdk() -> None:
    lcores.start_workers(1)


@pytest.fixture(params=[case for case in CASES if case.name in CHOSEN], ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Case, Any]]:
    bench = request.param.bench()
    yield request.param, bench
    bench.close()


@pytest.mark.benchmark(timer=WorkerClock.now, warmup=False)
def test_worker(benchmark: Any, case: tuple[Case, Any]) -> None:
    traffic, bench = case
    shares, floors = [], []

    def turns() -> None:
        measured = bench.run(BURSTS)
        WorkerClock.seconds += measured["worker_ns"] * measured["packets"] / 1e9
        shares.append(measured["met"])
        floors.append(measured["floor_ns"])

    benchmark.pedantic(turns, rounds=20, warmup_rounds=2)
    assert min(shares) > 0.999, f"{traffic.name}: packets did not meet their fate"
    benchmark.extra_info |= {"packets": BURSTS * BURST, "floor_ns": sorted(floors)[len(floors) // 2]}
