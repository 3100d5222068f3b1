from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fake_forwarder import FakeForwarder
from waiting import until

from controller import forwarder_client
from controller.forwarder_client import (
    ForwarderClient,
    ForwarderRefusedError,
    ForwarderUnreachableError,
)
from controller.rundir import RunDir

STATE = {"version": 1, "backends": {}, "vips": []}


@pytest.fixture
async def client(run_dir: RunDir) -> AsyncIterator[ForwarderClient]:
    """A client of a whole fake forwarder."""
    run_dir.forwarder_settings.write_text("{}")
    fake = FakeForwarder(run_dir.path)
    server = await asyncio.start_unix_server(fake.serve, run_dir.forwarder_socket)
    yield ForwarderClient(run_dir.forwarder_socket)
    server.close()
    await until(lambda: fake.connections == 0)


@asynccontextmanager
async def answering(path: Path, answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[None]:
    """A server that reads one request and then does as it is told."""

    handlers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        try:
            await answer(writer)
            await writer.drain()
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_unix_server(connected, path)
    try:
        yield
    finally:
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0)  # the transports end in the next turn of the loop


async def test_each_request_has_its_answer(client: ForwarderClient) -> None:
    ping = await client.ping()
    assert (ping["pid"], ping["generation"], ping["digest"]) == (os.getpid(), 0, None)
    assert (await client.push(STATE))["generation"] == 1
    assert await client.canary() == (True, "came out right", False)
    assert await client.churn(STATE) == []
    assert (await client.stats())["received"] == 4
    answer = await client.lookup("tcp", "198.51.100.7", 1, "192.0.2.1", 80)
    assert answer["backend"] == "web1"
    assert "ok" not in answer
    await client.flush("web1")


async def test_many_at_once_do_not_mix(client: ForwarderClient) -> None:
    answers = await asyncio.gather(*(client.ping() if n % 2 else client.stats() for n in range(40)))
    assert all(("pid" in answer) == bool(n % 2) for n, answer in enumerate(answers))


async def test_a_refusal_carries_the_sentence(client: ForwarderClient, run_dir: RunDir) -> None:
    (run_dir.path / "fake.json").write_text(json.dumps({"refuse": True}))
    with pytest.raises(ForwarderRefusedError, match="this state is not to my taste"):
        await client.push(STATE)
    assert (await client.ping())["generation"] == 0


async def test_a_big_state_passes_whole(client: ForwarderClient, run_dir: RunDir) -> None:
    backends = {f"backend-{n:06}": "10.0.0.1" for n in range(50_000)}
    await client.push({**STATE, "backends": backends})
    stored = json.loads((run_dir.path / "fake.states").read_text())
    assert stored["backends"] == backends


async def test_no_socket_and_nobody_behind_it_are_unreachable(run_dir: RunDir) -> None:
    client = ForwarderClient(run_dir.forwarder_socket)
    with pytest.raises(ForwarderUnreachableError, match="No such file"):
        await client.ping()
    server = await asyncio.start_unix_server(lambda r, w: None, run_dir.forwarder_socket)
    server.close()
    await server.wait_closed()
    with pytest.raises(ForwarderUnreachableError, match="cannot be reached"):
        await client.ping()


async def test_a_hung_forwarder_times_out(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder_client, "PING_TIMEOUT", 0.1)

    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with answering(run_dir.forwarder_socket, hang):
        with pytest.raises(ForwarderUnreachableError, match=r"no answer to ping within 0\.1 s"):
            await ForwarderClient(run_dir.forwarder_socket).ping()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "cut the connection"),
        (b"\0\0", "cut the connection"),
        (b"\0\0\0\x05ab", "cut the connection"),
        (b"\0\0\0\x03abc", "garbage"),
        (b"\0\0\0\x02[]", "garbage"),
        (b"\xff\xff\xff\xff", "garbage: a frame of 4294967295 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "garbage"),
        (b"\0\0\0\x02{}", "the forwarder refused ping"),
    ],
)
async def test_half_and_wrong_answers_are_errors(run_dir: RunDir, sent: bytes, reason: str) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(sent)

    async with answering(run_dir.forwarder_socket, answer):
        with pytest.raises(forwarder_client.ForwarderError, match=reason):
            await ForwarderClient(run_dir.forwarder_socket).ping()


async def test_a_frame_beyond_the_limit_is_not_sent(client: ForwarderClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder_client, "FRAME_LIMIT", 10)
    with pytest.raises(ForwarderRefusedError, match="a frame may have 10"):
        await client.push(STATE)
