from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from statistics import median
from typing import Any

import pytest
from config_text import GOOD
from probe_servers import Answer, drip_of_body, endless_body, endless_redirect, server, silence_after_headers
from structlog.testing import capture_logs
from waiting import until

from controller.config import loads
from controller.health_runner import JITTER, HealthRunner
from controller.model import CheckKey, Verdict, check_keys
from controller.probes import make_probe
from controller.probes.check import Check
from controller.probes.dial import dial
from controller.probes.http import HttpCheck
from controller.probes.probe import NotProbedError, Probe
from controller.probes.probe import ProbeFailedError as Failed
from controller.probes.tcp import TcpCheck, TcpProbe
from controller.reconcile import desired_state

UP, DOWN, UNKNOWN = Verdict.UP, Verdict.DOWN, Verdict.UNKNOWN


def check(**settings: object) -> TcpCheck:
    fast = {"type": "tcp", "port": 80, "interval": "20ms", "timeout": "10ms", "rise": 2, "fall": 3}
    return TcpCheck.model_validate(fast | settings)


def key(last: int, name: str = "c") -> CheckKey:
    return CheckKey(ip_address(f"10.0.0.{last}"), name)


@pytest.fixture
def captured() -> Iterator[list[dict[str, Any]]]:
    """What is logged."""
    with capture_logs() as logged:
        yield logged  # type: ignore[misc]


class Backends:
    """Probes that give the result that is set, and note when they were asked."""

    def __init__(self, at_once: int = 1000) -> None:
        self.passing = True
        self.trouble: str | None = None
        self.own_trouble: str | None = None
        self.seconds = 0.0
        self.fault: Exception | None = None
        self.asked: list[float] = []
        self.running: Counter[CheckKey] = Counter()
        self.most_at_once = self.most_of_one = 0
        self.changes: list[tuple[CheckKey, Verdict]] = []
        self.lateness: list[float] = []
        self.runner = HealthRunner(self.make, self.changed, at_once=at_once, own_trouble=lambda: self.own_trouble)

    def changed(self, key: CheckKey, verdict: Verdict, reason: str) -> None:
        self.changes.append((key, verdict))

    def make(self, key: CheckKey, check: Check) -> Probe:
        backends = self

        class Fake(Probe):
            async def ask(self) -> str:
                now = asyncio.get_running_loop().time()
                backends.asked.append(now)
                backends.lateness.append(now - backends.runner.targets[key].due)
                backends.running[key] += 1
                backends.most_of_one = max(backends.most_of_one, backends.running[key])
                backends.most_at_once = max(backends.most_at_once, backends.running.total())
                try:
                    await asyncio.sleep(backends.seconds)
                finally:
                    backends.running[key] -= 1
                if backends.fault:
                    raise backends.fault
                if backends.trouble:
                    raise NotProbedError(backends.trouble)
                if not backends.passing:
                    raise Failed("said so")
                return "said so"

        return Fake(timeout=1.0)


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


async def test_what_fails_while_the_node_has_no_way_out_is_held_against_no_backend() -> None:
    """Also when the way was closed only as the probe began, or only as it ended."""
    backends = Backends()
    backends.runner.set_targets({key(1): check()})
    await until(lambda: backends.changes == [(key(1), UP)])
    backends.own_trouble, backends.passing = "maglev0 has no carrier", False
    await until(lambda: backends.runner.not_probed == 1)
    asked = len(backends.asked)
    await until(lambda: len(backends.asked) > asked + 5)
    assert backends.changes == [(key(1), UP)]
    assert backends.runner.targets[key(1)].reason == "not probed: maglev0 has no carrier"
    backends.own_trouble = None
    await until(lambda: len(backends.changes) == 2)
    assert backends.changes[1] == (key(1), DOWN)
    await backends.runner.close()


async def test_what_passes_all_the_same_counts() -> None:
    backends = Backends()
    backends.own_trouble = "maglev0 has no carrier"
    backends.runner.set_targets({key(1): check()})
    await until(lambda: backends.changes == [(key(1), UP)])
    await backends.runner.close()


async def test_the_interval_is_steady_and_nothing_overlaps() -> None:
    backends = Backends()
    backends.seconds = 0.05  # two and a half intervals
    backends.runner.set_targets({key(1): check()})
    await until(lambda: len(backends.asked) > 6)
    await backends.runner.close()
    assert backends.most_of_one == 1
    gaps = [b - a for a, b in zip(backends.asked, backends.asked[1:], strict=False)]
    assert median(gaps) == pytest.approx(0.06, abs=0.015)  # the beat after the missed ones


async def test_a_reload_without_change_keeps_verdicts_and_the_beat() -> None:
    backends = Backends()
    targets = {key(1): check(), key(2): check()}
    backends.runner.set_targets(targets)
    await until(lambda: len(backends.changes) == 2)
    before = [(target, target.due) for target in backends.runner.targets.values()]
    backends.runner.set_targets({key(1): check(), key(2): check()})
    assert [(target, target.due) for target in backends.runner.targets.values()] == before
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
    due = [target.due for target in backends.runner.targets.values()]
    await backends.runner.close()
    mean = checks * window / interval
    most = max(sum(start <= other < start + window for other in due) for start in due)
    assert most <= 3 * mean


async def test_beats_are_steady_and_starts_jittered_without_drift() -> None:
    backends = Backends()
    backends.runner.set_targets({key(1): check(interval="50ms")})
    target = backends.runner.targets[key(1)]
    first, gaps = target.beat, []
    for number in range(1, 21):
        await until(lambda number=number: len(backends.asked) == number and not target.task)  # type: ignore[misc]
        assert target.beat == pytest.approx(first + number * 0.05)
        assert 0 <= target.due - target.beat <= JITTER * 0.05
        gaps.append(target.due - backends.asked[-1])
    await backends.runner.close()
    assert len({round(gap, 4) for gap in gaps}) > 5


async def test_a_target_in_doubt_is_probed_at_the_fast_interval() -> None:
    backends = Backends()
    backends.runner.set_targets({key(1): check(interval="2s", fast_interval="20ms", rise=3)})
    await until(lambda: backends.changes == [(key(1), UP)], 1.0)
    assert len(backends.asked) == 3
    target = backends.runner.targets[key(1)]
    await until(lambda: not target.task)
    assert target.beat - backends.asked[-1] > 1.5  # nothing is in doubt any more
    backends.passing = False
    await until(lambda: backends.changes == [(key(1), UP), (key(1), DOWN)], 4.0)
    assert backends.asked[-1] - backends.asked[-3] < 0.3
    await backends.runner.close()


async def test_without_a_fast_interval_the_pace_is_the_same_in_doubt() -> None:
    assert check(interval="5s").pace(in_doubt=True) == 5.0
    assert check(interval="5s", fast_interval="1s").pace(in_doubt=True) == 1.0
    assert check(interval="5s", fast_interval="1s").pace(in_doubt=False) == 5.0


async def test_what_this_node_cannot_ask_is_not_held_against_a_backend(captured: list[dict[str, Any]]) -> None:
    backends = Backends()
    backends.runner.set_targets({key(1): check(), key(2): check()})
    await until(lambda: len(backends.changes) == 2)
    backends.trouble = "Too many open files"
    await until(lambda: backends.runner.not_probed == 2)
    asked = len(backends.asked)
    await until(lambda: len(backends.asked) > asked + 10)  # fall is 3
    assert set(backends.runner.verdicts().values()) == {UP}
    assert backends.runner.targets[key(1)].reason == "not probed: Too many open files"
    backends.trouble = None
    await until(lambda: backends.runner.not_probed == 0)
    await backends.runner.close()
    assert [(e["log_level"], e["event"]) for e in captured] == [
        ("warning", "this node cannot probe; verdicts stay as they are"),
        ("info", "this node can probe again"),
    ]


async def test_failures_before_and_after_a_trouble_of_ours_are_one_run() -> None:
    backends = Backends()
    backends.runner.set_targets({key(1): check(fall=1000)})
    backends.passing = False
    target = backends.runner.targets[key(1)]
    await until(lambda: target.health.failures == 2)
    backends.trouble = "Too many open files"
    await until(lambda: target.not_probed)
    failures = target.health.failures
    backends.trouble = None
    await until(lambda: target.health.failures > failures)
    await backends.runner.close()


async def test_a_removed_target_that_could_not_be_probed_is_no_trouble_any_more() -> None:
    backends = Backends()
    backends.trouble = "Too many open files"
    backends.runner.set_targets({key(1): check()})
    await until(lambda: backends.runner.not_probed == 1)
    backends.runner.set_targets({})
    assert backends.runner.not_probed == 0
    await backends.runner.close()


async def test_no_more_are_probed_at_once_than_files_may_be_open(captured: list[dict[str, Any]]) -> None:
    backends = Backends(at_once=5)
    backends.seconds = 0.01
    backends.runner.set_targets({key(n): check(timeout="20ms") for n in range(1, 41)})
    await until(lambda: len(backends.changes) == 40)
    assert backends.most_at_once == 5
    assert backends.runner.too_many
    backends.runner.set_targets({key(n): check(timeout="20ms") for n in range(1, 51)})
    backends.runner.set_targets({key(1): check()})
    assert not backends.runner.too_many
    await backends.runner.close()
    assert [(e["log_level"], e["targets"], e["at_once"]) for e in captured] == [("warning", 40, 5)]


async def test_a_target_that_is_removed_before_its_task_has_begun_gives_its_place_free() -> None:
    backends = Backends(at_once=1)
    targets = {key(n): check() for n in range(1, 4)}
    for _ in range(50):
        backends.runner.set_targets(targets)
        await asyncio.sleep(0.001)
        backends.runner.set_targets({})
    backends.runner.set_targets(targets)
    await until(lambda: len(backends.changes) >= 3)
    await backends.runner.close()


async def test_after_the_close_nothing_is_asked() -> None:
    backends = Backends()
    backends.runner.set_targets({key(n): check() for n in range(1, 20)})
    await until(lambda: len(backends.asked) > 20)
    await backends.runner.close()
    asked = len(backends.asked)
    await asyncio.sleep(0.1)
    assert len(backends.asked) == asked


@pytest.mark.parametrize("answer", [silence_after_headers, drip_of_body, endless_body, endless_redirect])
async def test_a_backend_that_never_ends_is_down_and_holds_up_nobody(answer: Answer) -> None:
    """Headers then silence; a byte at a time; an endless body; a redirect in a circle."""
    changes: dict[str, Verdict] = {}
    late: list[float] = []
    runner = HealthRunner(make_probe, lambda key, verdict, _: changes.update({key.check: verdict}), at_once=100)

    class Watched(TcpProbe):
        async def ask(self) -> str:
            late.append(asyncio.get_running_loop().time() - runner.targets[good].due)
            return await super().ask()

    async with server(answer) as port:
        bad, good = CheckKey(ip_address("127.0.0.1"), "bad"), CheckKey(ip_address("127.0.0.1"), "good")
        slow = {"type": "http", "port": port, "interval": "100ms", "timeout": "100ms", "fall": 2}
        quick = check(port=port, interval="10ms")
        began = asyncio.get_running_loop().time()
        runner.set_targets({bad: HttpCheck.model_validate(slow), good: quick})
        runner.targets[good].probe = Watched(good.address, quick, dial)
        await until(lambda: changes.keys() == {"bad", "good"}, 2.0)
        assert asyncio.get_running_loop().time() - began < 0.8  # a start, two beats, a timeout
        await runner.close()
    assert changes == {"bad": DOWN, "good": UP}
    assert len(late) > 10
    assert sorted(late)[len(late) * 9 // 10] < 0.05


async def test_fifty_pools_with_one_backend_and_check_make_one_probe_and_share_the_verdict() -> None:
    pools = "".join(
        f"  p{n}: {{health_checks: [tcp-open], backends: [{{name: web1, address: 10.0.3.2}}]}}\n" for n in range(50)
    )
    vips = "".join(
        f"  - {{name: v{n}, address: 192.0.2.9, port: {n + 1}, pools: [p{n}], table_size: 251}}\n" for n in range(50)
    )
    config = loads(GOOD.replace("  spare:\n", pools + "  spare:\n") + vips)
    fifty = [vip for vip in config.all_services if vip.name != "www"]
    backends = Backends()
    backends.runner.set_targets({key: check() for key in check_keys(fifty)})
    await until(lambda: backends.changes)
    began, asked = asyncio.get_running_loop().time(), len(backends.asked)
    await asyncio.sleep(0.2)
    assert len(backends.asked) - asked <= (asyncio.get_running_loop().time() - began) / 0.02 + 1
    assert len(backends.runner.targets) == 1
    state = desired_state(fifty, backends.runner.verdicts(), ())
    await backends.runner.close()
    assert [vip["members"] for vip in state["vips"]] == [[["web1", 100, "up"]]] * 50
