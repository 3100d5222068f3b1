from __future__ import annotations

import asyncio
import random
from collections import Counter
from ipaddress import ip_address

import pytest
from waiting import until

from controller.config_sections import HealthCheck, TcpCheck
from controller.health_runner import HealthRunner
from controller.model import CheckKey, Verdict
from controller.probes.result import Probe, ProbeResult

UP, DOWN, UNKNOWN = Verdict.UP, Verdict.DOWN, Verdict.UNKNOWN


def check(**settings: object) -> TcpCheck:
    fast = {"type": "tcp", "port": 80, "interval": "20ms", "timeout": "10ms", "rise": 2, "fall": 3}
    return TcpCheck.model_validate(fast | settings)


def key(last: int, name: str = "c") -> CheckKey:
    return CheckKey(ip_address(f"10.0.0.{last}"), name)


class Backends:
    """Probes that give the result that is set, and note when they were asked."""

    def __init__(self) -> None:
        self.passing = True
        self.seconds = 0.0
        self.fault: Exception | None = None
        self.asked: list[float] = []
        self.running: Counter[CheckKey] = Counter()
        self.most_at_once = 0
        self.changes: list[tuple[CheckKey, Verdict]] = []
        self.runner = HealthRunner(self.make, self.changed)

    def changed(self, key: CheckKey, verdict: Verdict, reason: str) -> None:
        self.changes.append((key, verdict))

    def make(self, key: CheckKey, check: HealthCheck) -> Probe:
        backends = self

        class Fake:
            async def probe(self) -> ProbeResult:
                backends.asked.append(asyncio.get_running_loop().time())
                backends.running[key] += 1
                backends.most_at_once = max(backends.most_at_once, backends.running[key])
                try:
                    await asyncio.sleep(backends.seconds)
                finally:
                    backends.running[key] -= 1
                if backends.fault:
                    raise backends.fault
                return ProbeResult(backends.passing, "said so", backends.seconds)

        return Fake()


async def test_only_transitions_are_told() -> None:
    backends = Backends()
    backends.runner.set_targets({key(1): check()})
    assert backends.runner.verdicts() == {key(1): UNKNOWN}
    await until(lambda: len(backends.asked) > 6)
    assert backends.changes == [(key(1), UP)]
    backends.passing = False
    await until(lambda: len(backends.changes) == 2)
    await asyncio.sleep(0.1)
    assert backends.changes == [(key(1), UP), (key(1), DOWN)]
    target = backends.runner.targets[key(1)]
    assert target.reason == "said so"
    await backends.runner.close()


async def test_the_interval_is_steady_and_nothing_overlaps() -> None:
    backends = Backends()
    backends.seconds = 0.05  # two and a half intervals
    backends.runner.set_targets({key(1): check()})
    await until(lambda: len(backends.asked) > 6)
    await backends.runner.close()
    assert backends.most_at_once == 1
    gaps = [b - a for a, b in zip(backends.asked, backends.asked[1:], strict=False)]
    assert all(gap == pytest.approx(0.06, abs=0.015) for gap in gaps)  # the beat after the missed ones


async def test_a_reload_without_change_keeps_verdicts_and_the_beat() -> None:
    backends = Backends()
    targets = {key(1): check(), key(2): check()}
    backends.runner.set_targets(targets)
    await until(lambda: len(backends.changes) == 2)
    tasks = [target.task for target in backends.runner.targets.values()]
    backends.runner.set_targets({key(1): check(), key(2): check()})
    assert [target.task for target in backends.runner.targets.values()] == tasks
    assert set(backends.runner.verdicts().values()) == {UP}
    await backends.runner.close()


async def test_a_changed_check_keeps_the_verdict_and_counts_anew() -> None:
    backends = Backends()
    backends.passing = False
    backends.runner.set_targets({key(1): check()})
    await until(lambda: backends.changes == [(key(1), DOWN)])
    backends.passing = True
    backends.runner.set_targets({key(1): check(rise=5)})
    assert backends.runner.verdicts() == {key(1): DOWN}
    asked = len(backends.asked)
    await until(lambda: len(backends.changes) == 2)
    assert backends.changes[1] == (key(1), UP)
    assert len(backends.asked) - asked >= 5
    await backends.runner.close()


async def test_a_check_added_to_a_backend_that_serves_takes_nothing_away_until_it_fails() -> None:
    backends = Backends()
    backends.passing = False
    backends.runner.set_targets({key(1): check(), key(2): check()}, trusted={key(1).address})
    assert backends.runner.verdicts() == {key(1): UP, key(2): UNKNOWN}
    await until(lambda: backends.runner.verdicts()[key(1)] is DOWN)
    assert (key(1), DOWN) in backends.changes
    await backends.runner.close()


async def test_a_removed_target_is_probed_no_more_and_comes_back_unknown() -> None:
    backends = Backends()
    backends.runner.set_targets({key(1): check()})
    await until(lambda: backends.changes)
    backends.runner.set_targets({})
    assert backends.runner.verdicts() == {}
    asked = len(backends.asked)
    await asyncio.sleep(0.1)
    assert len(backends.asked) == asked
    backends.runner.set_targets({key(1): check()})
    assert backends.runner.verdicts() == {key(1): UNKNOWN}
    await backends.runner.close()


async def test_a_fault_in_a_probe_is_a_failure() -> None:
    backends = Backends()
    backends.fault = RuntimeError("oops")
    backends.runner.set_targets({key(1): check()})
    await until(lambda: backends.changes == [(key(1), DOWN)])
    assert "oops" in backends.runner.targets[key(1)].reason
    await backends.runner.close()


async def test_starts_are_spread_over_the_interval() -> None:
    """1000 checks every 5 s: no 50 ms window holds more than three times the mean."""
    random.seed(7)
    backends = Backends()
    window, interval, checks = 0.05, 5.0, 1000
    backends.runner.set_targets({key(n % 250, f"c{n}"): check(interval="5s") for n in range(checks)})
    await asyncio.sleep(0.01)
    due = sorted(handle for handle in (timer.when() for timer in timers()))
    await backends.runner.close()
    assert len(due) > 0.95 * checks
    mean = checks * window / interval
    most = max(sum(start <= other < start + window for other in due) for start in due)
    assert most <= 3 * mean


def timers() -> list[asyncio.TimerHandle]:
    """The timers of the running loop: when probes will start."""
    loop = asyncio.get_running_loop()
    return [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
