from __future__ import annotations

import asyncio

import pytest
from waiting import until

from controller.agenda import Agenda


class Kept:
    """An agenda that notes what it starts, while there is room."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.room = 100
        self.agenda = Agenda[str](self.start, lambda: self.room > 0)
        self.now = asyncio.get_running_loop().time()

    def start(self, item: str) -> None:
        self.room -= 1
        self.started.append(item)


async def test_things_start_in_the_order_of_their_times() -> None:
    kept = Kept()
    for item, due in (("c", 0.03), ("a", 0.01), ("d", 0.03), ("b", 0.02), ("late", -1.0)):
        kept.agenda.add(kept.now + due, item)
    await until(lambda: len(kept.started) == 5)
    assert kept.started == ["late", "a", "b", "c", "d"]
    assert asyncio.get_running_loop().time() >= kept.now + 0.03


async def test_an_earlier_one_does_not_wait_for_those_before_it() -> None:
    kept = Kept()
    kept.agenda.add(kept.now + 60, "later")
    kept.agenda.add(kept.now, "now")
    await until(lambda: kept.started == ["now"])


async def test_without_room_they_wait_and_come_when_there_is_some() -> None:
    kept = Kept()
    kept.room = 2
    for number in range(5):
        kept.agenda.add(kept.now, str(number))
    await asyncio.sleep(0.02)
    assert kept.started == ["0", "1"]
    kept.room = 2
    kept.agenda.wind()
    await until(lambda: len(kept.started) == 4)
    await asyncio.sleep(0.02)
    assert kept.started == ["0", "1", "2", "3"]


@pytest.mark.parametrize("others", [[], ["b"]])
async def test_what_is_replaced_does_not_start(others: list[str]) -> None:
    kept = Kept()
    kept.agenda.add(kept.now + 0.01, "a")
    kept.agenda.replace((kept.now + 0.01, item) for item in others)
    await asyncio.sleep(0.05)
    assert kept.started == others
