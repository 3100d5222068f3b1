from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from waiting import until

from controller import fitness, forwarder_watch
from controller.fitness import FIT, NO_CANARY, Fitness
from controller.forwarder_client import ForwarderUnreachableError, Json
from controller.forwarder_watch import ForwarderWatch


def stand_still(seconds: float) -> None:
    """The whole process, so that its own timeouts come late."""
    time.sleep(seconds)


class Fake:
    """A forwarder in this process, as far as a watch asks."""

    def __init__(self) -> None:
        self.generation = 1
        self.turning = True
        self.link = True
        self.silent = False
        self.we_stall = 0
        self.passes = True
        self.to_blame = True
        self.flight = 0.0
        self.canaries = 0
        self.turns = 0

    async def ping(self) -> Json:
        if self.we_stall:
            self.we_stall -= 1
            stand_still(forwarder_watch.PING_TIMEOUT + 0.15)
            raise ForwarderUnreachableError("no answer to ping within 0.05 s")
        if self.silent:
            raise ForwarderUnreachableError("no answer")
        self.turns += self.turning
        lcore = {"stage": "worker", "index": 0, "turns": self.turns}
        return {"generation": self.generation, "lcores": [lcore], "ports": [{"device": "e", "link": self.link}]}

    async def canary(self) -> tuple[bool, str, bool]:
        self.canaries += 1
        await asyncio.sleep(self.flight)
        return self.passes, "so it went", self.to_blame


class Watched:
    """A watch on the fake, and the fitnesses that it told of."""

    def __init__(self, *, adopted: bool = False) -> None:
        self.fake = Fake()
        self.told: list[Fitness] = []
        forwarder: Any = self.fake
        self.watch = ForwarderWatch(forwarder, adopted=adopted, on_change=self.changed)
        self.task = asyncio.create_task(self.watch.run())

    def changed(self) -> None:
        self.told.append(self.watch.fitness)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder_watch, "PING_INTERVAL", 0.01)
    monkeypatch.setattr(forwarder_watch, "PING_TIMEOUT", 0.05)
    monkeypatch.setattr(forwarder_watch, "CANARY_INTERVAL", 0.05)
    monkeypatch.setattr(forwarder_watch, "CANARY_RETRY", 0.01)
    monkeypatch.setattr(fitness, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(fitness, "SILENCE_SECONDS", 0.1)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    await until(lambda: watched.watch.fitness == FIT)
    assert watched.told == [NO_CANARY, FIT]
    watched.told = [FIT]
    yield watched
    watched.task.cancel()


async def test_a_fit_forwarder_is_told_once(watched: Watched) -> None:
    await asyncio.sleep(0.2)
    assert watched.told == [FIT]
    assert watched.fake.canaries >= 3


async def test_a_controller_that_stood_still_itself_blames_nobody(watched: Watched) -> None:
    watched.fake.we_stall = 3
    await until(lambda: watched.fake.we_stall == 0)
    await asyncio.sleep(0.05)
    assert watched.told == [FIT]
    watched.fake.silent = True
    await until(lambda: watched.told[-1].sick)


async def test_a_stalled_lcore_is_sick(watched: Watched) -> None:
    watched.fake.turning = False
    await until(lambda: len(watched.told) == 2)
    assert watched.told[1] == Fitness(False, "no progress on worker 0", sick=True)


async def test_a_link_that_is_down_withdraws_and_comes_back(watched: Watched) -> None:
    watched.fake.link = False
    await until(lambda: len(watched.told) == 2)
    assert watched.told[1] == Fitness(False, "link down: e")
    watched.fake.link = True
    await until(lambda: len(watched.told) == 3)
    assert watched.told[2] == FIT


async def test_silence_withdraws_first_and_is_sick_later(watched: Watched) -> None:
    watched.fake.silent = True
    await until(lambda: len(watched.told) == 3)
    assert [told.sick for told in watched.told] == [False, False, True]
    assert [told.fit for told in watched.told] == [True, False, False]


async def test_a_failed_canary_is_repeated_at_once_and_then_sick(watched: Watched) -> None:
    watched.fake.passes = False
    await until(lambda: watched.told[-1].sick)
    assert watched.told[1:] == [
        Fitness(False, "canary: so it went", sick=False),
        Fitness(False, "canary: so it went", sick=True),
    ]


async def test_a_network_that_keeps_the_canary_withdraws_and_kills_nothing(watched: Watched) -> None:
    watched.fake.passes = watched.fake.to_blame = False
    await until(lambda: watched.fake.canaries > 8)
    assert watched.told[1:] == [Fitness(False, "canary: so it went", sick=False)]


async def test_a_slow_canary_holds_up_no_ping(watched: Watched) -> None:
    watched.fake.flight = 5.0
    watched.watch.ask_canary()
    await asyncio.sleep(0.1)
    watched.fake.link = False
    await until(lambda: len(watched.told) == 2, 0.5)


async def test_an_adopted_forwarder_stays_fit_while_its_first_canary_flies() -> None:
    watched = Watched(adopted=True)
    watched.fake.flight = 0.1
    await until(lambda: watched.told)
    assert watched.told == [FIT]
    watched.task.cancel()


async def test_no_canary_is_sent_before_there_is_a_state() -> None:
    watched = Watched()
    watched.fake.generation = 0
    await until(lambda: watched.told)
    await asyncio.sleep(0.05)
    assert watched.told == [NO_CANARY]
    assert watched.fake.canaries == 0
    watched.fake.generation = 1
    watched.watch.ask_canary()
    await until(lambda: watched.told[-1] == FIT)
    watched.task.cancel()


async def test_a_starting_forwarder_has_time_to_answer() -> None:
    watched = Watched()
    watched.fake.silent = True
    await asyncio.sleep(0.2)
    assert watched.told == []
    watched.fake.silent = False
    await until(lambda: watched.told == [NO_CANARY, FIT])
    watched.task.cancel()


async def test_an_adopted_forwarder_is_fit_until_judged_and_has_no_excuse() -> None:
    watched = Watched(adopted=True)
    watched.fake.silent = True
    assert watched.watch.fitness.fit
    await until(lambda: len(watched.told) == 2)
    assert [told.sick for told in watched.told] == [False, True]
    watched.task.cancel()


async def test_an_answer_without_its_parts_is_none(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ping() -> Json:
        return {"generation": 1}

    monkeypatch.setattr(watched.fake, "ping", ping)
    await until(lambda: len(watched.told) > 1)
    assert watched.told[1].reason == "the forwarder answered a ping without 'lcores'"
