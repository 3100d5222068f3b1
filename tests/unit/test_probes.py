from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address

import pytest
from probe_servers import (
    TIMEOUT,
    Answer,
    closed_port,
    drip_of_body,
    drip_of_headers,
    http,
    says,
    server,
    silence,
    silence_after_headers,
    tcp,
)

from controller.model import CheckKey
from controller.probes import make_probe
from controller.probes.http import BODY_LIMIT, HttpCheck


@pytest.mark.parametrize(
    ("text", "passed", "reason"),
    [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True, "status 200"),
        ("HTTP/1.0 200 OK\r\n\r\nuntil the end", True, "status 200"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", True, "status 200"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nno", True, "status 200"),
        ("HTTP/1.1 204 No Content\r\n\r\n", True, "status 204"),
        ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", False, "status 503, not 200, 204"),
        ("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", False, "status 302, not 200, 204"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", False, "the connection ended within the answer"),
        ("SSH-2.0-OpenSSH_9.2\r\n", False, "not an HTTP answer"),
        ("\x00\xff" * 50_000, False, "not an HTTP answer"),
        ("HTTP/1.1 200 OK\r\n" + "A: b\r\n" * 100_000, False, "not an HTTP answer"),
        ("HTTP/1.1 200 OK\r\nA: " + "b" * 1_000_000, False, "not an HTTP answer"),
        ("", False, "the connection ended within the answer"),
        ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", True, "status 204"),
        ("HTTP/1.1 100 Continue\r\n\r\n" * 10_000, False, "not an HTTP answer"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            False,
            "status 101, not 200, 204",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
            False,
            "the connection ended within the answer",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", False, "not an HTTP answer"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", False, "not an HTTP answer"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
async def test_an_answer_passes_or_fails(text: str, passed: bool, reason: str) -> None:
    async with server(says(text)) as port:
        result = await http(port, expect_status=[200, 204])
    assert (result.passed, result.reason) == (passed, reason)
    assert result.seconds < TIMEOUT


async def test_the_request_is_what_the_check_says() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert await reader.read() == b""  # the probe closes, though we would keep it open

    async with server(answer) as port:
        assert (await http(port, path="/a%20b?c=d", host="www.example.com")).passed
        assert (await http(port)).passed
    first, second = seen
    assert first.startswith(b"GET /a%20b?c=d HTTP/1.1\r\n")
    assert b"\r\nHost: www.example.com\r\n" in first
    assert b"\r\nConnection: close\r\n" in first
    assert f"\r\nHost: 127.0.0.1:{port}\r\n".encode() in second


@pytest.mark.parametrize("answer", [silence, silence_after_headers, drip_of_headers, drip_of_body])
async def test_one_deadline_holds_for_the_whole_answer(answer: Answer) -> None:
    async with server(answer) as port:
        result = await http(port)
    assert not result.passed
    assert result.reason == "no complete answer within 0.3 s"
    assert TIMEOUT <= result.seconds < TIMEOUT + 0.2


async def test_an_endless_body_is_not_read_for_long() -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with server(answer) as port:
        result = await http(port)
    assert not result.passed
    assert result.reason == f"an answer of more than {BODY_LIMIT} bytes"
    assert result.seconds <= TIMEOUT
    assert sent < 16 << 20  # what the kernel's buffers hold


async def test_a_redirect_is_not_followed() -> None:
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await says("HTTP/1.1 301 Moved\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n")(reader, writer)

    async with server(answer) as port:
        assert not (await http(port)).passed
        assert (await http(port, expect_status=[301])).passed
    assert requests == 2


async def test_no_cookie_and_no_connection_is_kept_between_probes() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    check = HttpCheck.model_validate({"type": "http", "timeout": "300ms"})
    async with server(answer) as port:
        check = check.model_copy(update={"port": port})
        probe = make_probe(CheckKey(ip_address("127.0.0.1"), "c"), check)
        for _ in range(3):
            assert (await probe.probe()).passed
    assert len(seen) == 3
    assert not any(b"cookie" in request.lower() for request in seen)


async def test_refused_connections_say_so() -> None:
    port = closed_port()
    for result in (await http(port), await tcp(port)):
        assert not result.passed
        assert result.reason == "no connection: Connection refused"


async def test_an_address_without_a_route_fails() -> None:
    for result in (await http(80, "255.255.255.255"), await tcp(80, "255.255.255.255")):
        assert not result.passed
        assert result.reason.startswith("no connection: ")


async def test_tcp_passes_on_a_handshake() -> None:
    async with server(silence) as port:
        result = await tcp(port)
    assert (result.passed, result.reason) == (True, "connected")


async def test_ipv6_is_probed_alike() -> None:
    async with server(says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "::1") as port:
        assert (await http(port, "::1")).passed
        assert (await tcp(port, "::1")).passed


async def test_a_full_backlog_is_no_connection_in_time() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        held = []
        try:
            for _ in range(3):
                held.append(socket.socket())
                held[-1].setblocking(False)
                held[-1].connect_ex(("127.0.0.1", port))
            result = await tcp(port)
        finally:
            for connection in held:
                connection.close()
    assert (result.passed, result.reason) == (False, "no connection within 0.3 s")


async def test_a_cancelled_probe_leaves_no_socket() -> None:
    async with server(silence) as port:
        task = asyncio.create_task(http(port))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
