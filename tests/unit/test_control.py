from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from forwarder import control
from forwarder.control import ControlServer, RequestRefused, flow_of
from forwarder.state_message import StateRefused

Json = dict[str, Any]


class Node:
    """A state that is set whole, and handlers that go wrong in every way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.states: list[Any] = []
        self.gate = asyncio.Event()
        self.waiting = 0
        handlers = {
            "ping": self.ping,
            "state": self.state,
            "wait": self.wait,
            "refuse": self.refuse,
            "state_refuse": self.state_refuse,
            "fail": self.fail,
            "large": self.large,
        }
        self.server = ControlServer(path, handlers)

    async def ping(self, request: Json) -> Json:
        return {"echo": request.get("number")}

    async def state(self, request: Json) -> Json:
        self.states.append(request["state"])
        return {"generation": len(self.states)}

    async def wait(self, _: Json) -> Json:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return {}

    async def refuse(self, _: Json) -> Json:
        raise RequestRefused("there is no backend x")

    async def state_refuse(self, _: Json) -> Json:
        raise StateRefused("vip www: port 0x50 is out of range")

    async def fail(self, _: Json) -> Json:
        raise ZeroDivisionError("by accident")

    async def large(self, request: Json) -> Json:
        return {"text": "x" * int(request["length"])}


@pytest.fixture
async def node(base: Path) -> AsyncIterator[Node]:
    node = Node(base / "f.sock")
    await node.server.start()
    yield node
    await node.server.stop()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> Json:
        async with asyncio.timeout(5):
            (length,) = struct.unpack("!I", await self.reader.readexactly(4))
            answer: Json = json.loads(await self.reader.readexactly(length))
        return answer

    async def ask(self, **request: Any) -> Json:
        self.writer.write(frame(request))
        return await self.read()

    async def at_end(self) -> bool:
        """Whether the server closed the connection, with nothing more to say."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


def framed(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


def frame(request: Any) -> bytes:
    return framed(json.dumps(request).encode())


@asynccontextmanager
async def client(node: Node) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_unix_connection(node.path)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):  # the server closed it with bytes of ours unread
            await writer.wait_closed()


async def test_requests_are_answered_in_order_on_one_connection(node: Node) -> None:
    async with client(node) as c:
        for number in range(3):
            assert await c.ask(op="ping", number=number) == {"ok": True, "echo": number}
        c.writer.write(b"".join(frame({"op": "ping", "number": number}) for number in range(50)))
        assert [(await c.read())["echo"] for _ in range(50)] == list(range(50))


async def test_a_frame_cut_at_any_byte_changes_nothing(node: Node) -> None:
    whole = frame({"op": "state", "state": {"vips": ["a", "b"], "text": "é"}})
    for end in range(len(whole)):
        async with client(node) as c:
            c.writer.write(whole[:end])
            c.writer.write_eof()
            assert await c.at_end()
        assert node.states == []
    async with client(node) as c:
        c.writer.write(whole)
        assert (await c.read())["generation"] == 1
    assert node.states == [{"vips": ["a", "b"], "text": "é"}]


async def test_of_a_thousand_pushes_cut_anywhere_each_is_whole_or_nothing(node: Node) -> None:
    chance = random.Random(1)
    complete = 0
    for number in range(1000):
        whole = frame({"op": "state", "state": [number] * 20})
        end = chance.randrange(len(whole) + 1)
        complete += end == len(whole)
        _, writer = await asyncio.open_unix_connection(node.path)
        writer.write(whole[:end])
        writer.close()
        await writer.wait_closed()
    async with client(node) as c:
        await c.ask(op="state", state=[-1] * 20)
    await until(lambda: len(node.states) == complete + 1)
    assert complete > 0
    assert all(len(state) == 20 and len(set(state)) == 1 for state in node.states)


async def test_a_cut_after_whole_frames_leaves_those_done(node: Node) -> None:
    async with client(node) as c:
        c.writer.write(frame({"op": "state", "state": 1}) + frame({"op": "state", "state": 2})[:-1])
        c.writer.write_eof()
        assert (await c.read())["generation"] == 1
        assert await c.at_end()
    assert node.states == [1]


async def test_a_frame_that_comes_byte_by_byte_is_one_request(node: Node) -> None:
    async with client(node) as c:
        for byte in frame({"op": "state", "state": 5}):
            c.writer.write(bytes([byte]))
            await c.writer.drain()
            await asyncio.sleep(0)
        assert await c.read() == {"ok": True, "generation": 1}
    assert node.states == [5]


GARBAGE = [
    b"",
    b"null",
    b"[]",
    b"7",
    b'"op"',
    b"{}",
    b'{"op": null}',
    b'{"op": []}',
    b'{"op": {}}',
    b'{"op": "unknown"}',
    b'{"op": "__init__"}',
    b'{"op": "ping"',
    b'{"op": "ping"} x',
    b"\xff\xfe\x00",
    b"\x00" * 100,
    b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
]


@pytest.mark.parametrize("body", GARBAGE, ids=[repr(body[:20]) for body in GARBAGE])
async def test_what_is_no_request_is_told_so_and_the_connection_lives(node: Node, body: bytes) -> None:
    async with client(node) as c:
        c.writer.write(framed(body))
        answer = await c.read()
        assert answer["ok"] is False
        assert answer["error"].startswith("not a request: a JSON object with an op of fail, large, ping, ")
        assert await c.ask(op="ping", number=1) == {"ok": True, "echo": 1}
    assert node.states == []


async def test_bytes_without_any_frame_do_no_harm(node: Node) -> None:
    chance = random.Random(2)
    for _ in range(200):
        async with client(node) as c:
            c.writer.write(chance.randbytes(chance.randrange(200)))
            c.writer.write_eof()
            async with asyncio.timeout(5):
                with suppress(ConnectionError):
                    await c.reader.read()
    async with client(node) as c:
        assert (await c.ask(op="ping"))["ok"]
    assert node.states == []


async def test_an_overlong_message_is_refused_before_it_is_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(node) as c:
        c.writer.write(struct.pack("!I", 0xFFFFFFFF) + b"x" * 1000)
        answer = await c.read()
        assert answer["ok"] is False
        assert "4294967295 bytes is larger than" in answer["error"]
        assert await c.at_end()
    longest = frame({"op": "state", "state": "x" * 100})
    monkeypatch.setattr(control, "MAX_MESSAGE", len(longest) - 4)
    async with client(node) as c:
        c.writer.write(longest)
        assert (await c.read())["ok"]
        c.writer.write(frame({"op": "state", "state": "x" * 101}))
        assert not (await c.read())["ok"]
        assert await c.at_end()
    assert len(node.states) == 1


async def test_a_message_larger_than_every_buffer_goes_through_both_ways(node: Node) -> None:
    text = "x" * 3_000_000
    async with client(node) as c:
        assert (await c.ask(op="state", state=text))["ok"]
        assert len((await c.ask(op="large", length=3_000_000))["text"]) == 3_000_000
    assert node.states == [text]


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("refuse", "there is no backend x"),
        ("state_refuse", "vip www: port 0x50 is out of range"),
        ("fail", "fail failed: ZeroDivisionError('by accident')"),
        ("state", "state failed: KeyError('state')"),
    ],
)
async def test_a_handler_s_trouble_is_the_answer_and_the_connection_lives(
    node: Node, operation: str, error: str
) -> None:
    async with client(node) as c:
        assert await c.ask(op=operation) == {"ok": False, "error": error}
        assert (await c.ask(op="ping", number=2))["echo"] == 2


async def test_two_clients_do_not_wait_for_each_other(node: Node) -> None:
    async with client(node) as slow, client(node) as half, client(node) as quick:
        slow.writer.write(frame({"op": "wait"}))
        half.writer.write(frame({"op": "state", "state": 1})[:-3])
        await until(lambda: node.waiting == 1)
        for number in range(10):
            assert (await quick.ask(op="ping", number=number))["echo"] == number
        node.gate.set()
        assert await slow.read() == {"ok": True}
        half.writer.write(frame({"op": "state", "state": 1})[-3:])
        assert (await half.read())["ok"]


async def test_a_client_that_leaves_before_its_answer_harms_nobody(node: Node) -> None:
    for _ in range(5):
        async with client(node) as gone:
            gone.writer.write(frame({"op": "wait"}) + frame({"op": "large", "length": 1_000_000}) * 3)
            await until(lambda: node.waiting >= 1)
    node.gate.set()
    await until(lambda: node.waiting == 0)
    async with client(node) as c:
        assert (await c.ask(op="ping", number=3))["echo"] == 3


async def test_the_socket_is_closed_to_others_and_goes_at_the_stop(node: Node) -> None:
    assert node.path.stat().st_mode & 0o777 == 0o660
    await node.server.stop()
    assert not node.path.exists()
    await node.server.stop()


async def test_the_socket_of_a_dead_forwarder_is_replaced(base: Path) -> None:
    path = base / "f.sock"
    path.write_text("")
    node = Node(path)
    await node.server.start()
    async with client(node) as c:
        assert (await c.ask(op="ping"))["ok"]
    await node.server.stop()


FLOW = {
    "protocol": "tcp",
    "source": "198.51.100.7",
    "source_port": 40000,
    "destination": "192.0.2.1",
    "destination_port": 80,
}


def test_a_flow_is_read_from_a_request() -> None:
    protocol, source, source_port, destination, destination_port = flow_of(FLOW)
    assert (protocol, str(source), source_port) == (6, "198.51.100.7", 40000)
    assert (str(destination), destination_port) == ("192.0.2.1", 80)
    assert flow_of({**FLOW, "protocol": "udp", "source": "2001:db8::7", "destination": "2001:db8::1"})[0] == 17


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": "icmp"},
        {"protocol": None},
        {"protocol": []},
        {"source": "198.51.100"},
        {"source": None},
        {"destination": ""},
        {"source": "2001:db8::7"},
        {"source_port": -1},
        {"source_port": 65536},
        {"destination_port": "http"},
        {"destination_port": None},
        {"destination_port": float("inf")},
    ],
)
def test_what_is_no_flow_is_refused(changes: Json) -> None:
    with pytest.raises(RequestRefused, match="not a flow"):
        flow_of({**FLOW, **changes})


@pytest.mark.parametrize("key", sorted(FLOW))
def test_every_part_of_a_flow_is_required(key: str) -> None:
    with pytest.raises(RequestRefused, match=key):
        flow_of({name: value for name, value in FLOW.items() if name != key})
