from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from controller.speakers.lease import LeaseServer

V4 = "192.0.2.1/32"


class Helper:
    """The helper's end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, path: Path, announced: list[str] | None) -> Helper:
        helper = cls(*await asyncio.open_unix_connection(path))
        helper.say(0, announced)
        return helper

    def say(self, sequence: int, announced: list[str] | None, errors: int = 0) -> None:
        report = {"sequence": sequence, "announced": announced, "errors": errors}
        self.writer.write(json.dumps(report).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(2):
            said: dict[str, Any] = json.loads(await self.reader.readline())
        return said

    async def close(self) -> None:
        self.writer.close()
        await asyncio.sleep(0.01)


@pytest.fixture
async def lease(base: Path) -> AsyncIterator[LeaseServer]:
    lease = LeaseServer(base / "lease.sock", 1.0)
    await lease.start()
    yield lease
    await lease.close()
    await asyncio.sleep(0.01)


async def test_the_whole_set_is_sent_at_once_and_renewed(lease: LeaseServer, base: Path) -> None:
    assert (base / "lease.sock").stat().st_mode & 0o777 == 0o660
    helper = await Helper.connect(base / "lease.sock", None)
    await until(lambda: lease.connected)
    clock = asyncio.get_running_loop().time
    began = clock()
    lease.want({V4: "10.0.2.2"}, ["192.0.2.9/32"])
    first = await helper.hear()
    assert clock() - began < 0.05
    assert first == {"sequence": 1, "beat": 0, "announce": {V4: "10.0.2.2"}, "known": [V4, "192.0.2.9/32"]}
    for beat in (1, 2, 3):
        assert await helper.hear() == first | {"beat": beat}
    assert 0.4 < clock() - began < 1.0
    lease.want({}, ["192.0.2.9/32"])
    assert (await helper.hear())["sequence"] == 2
    await helper.close()


async def test_nothing_is_said_before_something_is_wanted(lease: LeaseServer, base: Path) -> None:
    helper = await Helper.connect(base / "lease.sock", [V4])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await helper.reader.readline()
    greeting = await lease.greeted(1.0)
    assert greeting
    assert greeting.announced == frozenset({V4})
    await helper.close()


async def test_settled_is_when_the_newest_wish_is_confirmed(lease: LeaseServer, base: Path) -> None:
    helper = await Helper.connect(base / "lease.sock", [])
    lease.want({V4: "10.0.2.2"}, [])
    assert not await lease.settled(0.1)
    helper.say(1, [V4])
    assert await lease.settled(1.0)
    lease.want({}, [])
    assert not await lease.settled(0.1)
    await helper.close()
    assert not lease.connected
    assert not await lease.settled(0.1)


async def test_the_same_wish_again_is_no_new_one(lease: LeaseServer, base: Path) -> None:
    helper = await Helper.connect(base / "lease.sock", [])
    lease.want({V4: "10.0.2.2"}, [])
    lease.want({V4: "10.0.2.2"}, [])
    assert (await helper.hear())["sequence"] == 1
    await helper.close()


async def test_the_newest_helper_counts(lease: LeaseServer, base: Path) -> None:
    old = await Helper.connect(base / "lease.sock", [V4])
    await until(lambda: lease.report)
    lease.want({V4: "10.0.2.2"}, [])
    new = await Helper.connect(base / "lease.sock", None)
    assert (await new.hear())["announce"] == {V4: "10.0.2.2"}
    await old.reader.read()
    await old.close()
    assert lease.connected
    await new.close()


@pytest.mark.parametrize("line", [b"garbage\n", b"[]\n", b"{}\n", pytest.param(b"x" * (9 << 20), id="endless")])
async def test_a_helper_that_talks_nonsense_is_cut_off(lease: LeaseServer, base: Path, line: bytes) -> None:
    helper = await Helper.connect(base / "lease.sock", [])
    helper.writer.write(line)
    with suppress(ConnectionError):
        await helper.reader.read()
    await until(lambda: not lease.connected)
    await helper.close()


async def test_a_helper_may_greet_with_thousands_of_routes(lease: LeaseServer, base: Path) -> None:
    routes = [f"10.{n >> 8}.{n & 255}.1/32" for n in range(10_000)]
    helper = await Helper.connect(base / "lease.sock", routes)
    await until(lambda: lease.report)
    assert lease.report
    assert lease.report.announced == frozenset(routes)
    await helper.close()


async def test_a_helper_that_does_not_read_is_not_fed_for_ever(lease: LeaseServer, base: Path) -> None:
    helper = await Helper.connect(base / "lease.sock", [])
    await until(lambda: lease.connected)
    routes = {f"10.{n >> 8}.{n & 255}.1/32": "10.0.2.2" for n in range(20_000)}
    for n in range(50):
        lease.want({**routes, V4: f"10.0.2.{n}"}, [])
    assert lease._writer
    assert lease._writer.transport.get_write_buffer_size() < 4 << 20
    await helper.close()
