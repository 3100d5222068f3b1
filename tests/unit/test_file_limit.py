"""Open files: taking what the hard limit allows, and what becomes of checks when there are none left."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
from probe_servers import probed, server, silence
from waiting import until

from controller.file_limit import most_at_once, probes_at_once, raise_file_limit
from controller.health_runner import HealthRunner
from controller.model import CheckKey, Verdict
from controller.probes import KINDS, make_probe
from controller.probes.check import Check
from controller.probes.probe import Outcome


def check(**settings: object) -> Check:
    return KINDS["tcp"].section.model_validate({"type": "tcp", "port": 80, **settings})


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them


@contextmanager
def no_more_files() -> Iterator[None]:
    """Not one more may be opened by this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
    try:
        raised = raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, before[1])
        assert raised == min(before[1], 1 << 20)
        assert raise_file_limit() == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("limit", "probes"), [(20_000, 19_744), (1024, 768), (300, 75), (1, 1)])
def test_some_files_are_left_for_all_else(limit: int, probes: int) -> None:
    assert probes_at_once(limit) == probes


def test_as_many_probes_are_under_way_as_time_out_within_an_interval() -> None:
    assert most_at_once([]) == 0
    assert most_at_once([check(interval="5s", timeout="500ms")] * 12_000) == 1200
    assert most_at_once([check(interval="5s", timeout="5s")] * 100) == 100
    assert most_at_once([check(interval="5s", timeout="500ms", fast_interval="250ms")] * 100) == 100


SETTINGS = {
    "http": {"port": 80},
    "https": {"port": 80},
    "tcp": {"port": 80},
    "udp": {"port": 80, "send": "x"},
    "icmp": {},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_without_a_file_no_kind_of_check_says_that_the_backend_failed(kind: str, address: str) -> None:
    with no_more_files():
        result = await probed(kind, address, **SETTINGS[kind])
    assert (result.outcome, result.reason) == (Outcome.NOT_PROBED, "not probed: Too many open files")


async def test_verdicts_stand_while_files_are_out_and_checks_go_on_after() -> None:
    runner = HealthRunner(make_probe, lambda *_: None, at_once=100)
    async with server(silence, "0.0.0.0") as port:
        keys = [CheckKey(ip_address(f"127.0.0.{n}"), "c") for n in range(1, 21)]
        runner.set_targets({key: check(port=port, interval="20ms", timeout="20ms", fall=2) for key in keys})
        await until(lambda: set(runner.verdicts().values()) == {Verdict.UP})
        with no_more_files():
            await until(lambda: runner.not_probed == 20)
            await asyncio.sleep(0.2)
            assert set(runner.verdicts().values()) == {Verdict.UP}
        await until(lambda: runner.not_probed == 0)
        await runner.close()
    assert set(runner.verdicts().values()) == {Verdict.UP}


async def test_after_many_reloads_no_file_is_left_open() -> None:
    runner = HealthRunner(make_probe, lambda *_: None, at_once=100)
    async with server(silence, "0.0.0.0") as port:
        await asyncio.sleep(0)
        before = open_files()
        for number in range(300):
            fall = 3 + number % 5
            kinds = {"tcp": {}, "http": {}, "udp": {"send": "x"}, "icmp": {}}
            wanted = {
                CheckKey(ip_address(f"127.0.0.{n}"), kind): KINDS[kind].section.model_validate(
                    {"type": kind, "interval": "10ms", "timeout": "10ms", "fall": fall}
                    | ({} if kind == "icmp" else {"port": port})
                    | more
                )
                for n in range(1 + number % 3, 10)
                for kind, more in kinds.items()
            }
            runner.set_targets(wanted)
            await asyncio.sleep(0.003)
        await runner.close()
        await until(lambda: open_files() <= before)
