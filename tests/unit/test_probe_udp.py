from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from probe_servers import TIMEOUT, closed_port, probed

from controller.probes.probe import ProbeResult

Answer = Callable[[bytes], bytes | None]


class Server:
    """Answers each datagram with what `answer` makes of it, if anything, from `sender` if that is another socket."""

    def __init__(self, answer: Answer, host: str, sender: socket.socket | None = None) -> None:
        self.answer = answer
        self.seen: list[bytes] = []
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.sender = sender or self.socket
        asyncio.get_running_loop().add_reader(self.socket, self.receive)

    def receive(self) -> None:
        data, address = self.socket.recvfrom(2048)
        self.seen.append(data)
        answer = self.answer(data)
        if answer is not None:
            self.sender.sendto(answer, address)


@contextmanager
def answering(answer: Answer, host: str = "127.0.0.1", sender: socket.socket | None = None) -> Iterator[Server]:
    server = Server(answer, host, sender)
    try:
        yield server
    finally:
        asyncio.get_running_loop().remove_reader(server.socket)
        server.socket.close()


async def asked(server: Server, address: str = "127.0.0.1", **settings: object) -> ProbeResult:
    return await probed("udp", address, port=server.socket.getsockname()[1], **settings)


@pytest.mark.parametrize(
    ("send", "expect", "sent", "answer", "reason"),
    [
        ("ping", None, b"ping", b"anything", "an answer of 8 bytes"),
        ("ping", None, b"ping", b"", "an answer of 0 bytes"),
        ("ping", "pong", b"ping", b"pong", "an answer of 4 bytes"),
        ("ping", "pong", b"ping", b"+pong!", "an answer of 6 bytes"),
        ("ping", "pong", b"ping", b"ping", None),
        ("ping", "pong", b"ping", b"", None),
        ("hex:0d0A ff", "hex:00", b"\r\n\xff", b"a\x00b", "an answer of 3 bytes"),
        ("hex:00", "hex:0001", b"\x00", b"\x01\x00", None),
        ("é", "é", "é".encode(), "né".encode(), "an answer of 3 bytes"),
        ("0x00", None, b"0x00", b"ok", "an answer of 2 bytes"),
    ],
)
async def test_the_answer_must_have_what_is_expected_in_it(
    send: str, expect: str | None, sent: bytes, answer: bytes, reason: str | None
) -> None:
    with answering(lambda _: answer) as server:
        result = await asked(server, send=send, expect=expect)
    assert server.seen == [sent]
    assert result.passed == (reason is not None)
    assert result.reason == (reason or f"an answer of {len(answer)} bytes without what is expected")
    assert result.seconds < TIMEOUT


async def test_silence_fails_at_the_deadline() -> None:
    with answering(lambda _: None) as server:
        result = await asked(server, send="ping")
    assert (result.passed, result.reason) == (False, "no answer within 0.3 s")
    assert TIMEOUT <= result.seconds < TIMEOUT + 0.2


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_closed_port_fails_at_once(address: str) -> None:
    result = await probed("udp", address, port=closed_port(), send="ping")
    assert (result.passed, result.reason) == (False, "no answer: Connection refused")
    assert result.seconds < TIMEOUT / 2


async def test_an_answer_from_elsewhere_is_none() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, answering(bytes, sender=other) as server:
        other.bind(("127.0.0.1", 0))
        result = await asked(server, send="ping")
    assert server.seen
    assert result.reason == "no answer within 0.3 s"


async def test_ipv6_is_probed_alike() -> None:
    with answering(bytes, "::1") as server:
        assert (await asked(server, "::1", send="ping", expect="ping")).passed
