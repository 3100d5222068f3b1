"""HTTP: one GET on a connection of its own, no redirect followed, the whole answer within one deadline."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Annotated

import httptools
from pydantic import Field

from controller import config_values as values
from controller.config_values import distinct, whole
from controller.model import Address
from controller.probes.check import PortCheck
from controller.probes.dial import Dial
from controller.probes.probe import Probe, ProbeFailedError

HEAD_LIMIT = 64 << 10
BODY_LIMIT = 64 << 10
"""A health page longer than this is a failure; it is thrown away as it comes."""

_SWITCHING_PROTOCOLS = 101


class HttpCheck(PortCheck):
    """Up when a GET is answered with one of `expect_status`; the Host header is `host`, else the address."""

    port: values.Port = 80
    path: values.HttpPath = "/"
    host: values.HttpHost | None = None
    expect_status: Annotated[tuple[Annotated[int, whole(100, 599)], ...], Field(min_length=1), distinct("status")] = (
        200,
    )


class HttpProbe(Probe):
    """Passes when the status is one of those expected and the answer is complete."""

    default_port = 80
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    def __init__(self, address: Address, check: HttpCheck, dial: Dial) -> None:
        super().__init__(check.timeout)
        self._target = (address, check.port)
        self._dial = dial
        self._expected = frozenset(check.expect_status)
        self._request = _request(check.path, check.host or _authority(address, check.port, self.default_port))

    async def ask(self) -> str:
        """One request and its answer."""
        self.awaited = "connection"
        connection = await self._dial(*self._target, socket.SOCK_STREAM, 0)
        self.awaited = "complete answer"
        answer = _Answer(self._request)
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: answer, sock=connection, ssl=self.tls, server_hostname=self.server_name
            )
            try:
                status = await answer.status
            finally:
                transport.abort()
        finally:
            answer.status.cancel()  # nobody waits for it any more
        if status not in self._expected:
            raise ProbeFailedError(f"status {status}, not {', '.join(map(str, sorted(self._expected)))}")
        return f"status {status}"


class _Answer(asyncio.Protocol):
    """Sends the request and reads one answer; what comes after it is not looked at."""

    def __init__(self, request: bytes) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._head = self._body = 0
        self._in_body = self._has_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is waited for before the request goes out."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """The limits hold for what came before the end of the answer, so that memory is bounded."""
        if not self._in_body:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end(_SWITCHING_PROTOCOLS)
        except httptools.HttpParserError:
            self._fail("not an HTTP answer")
        if not self._in_body and self._head > HEAD_LIMIT:
            self._fail("not an HTTP answer")
        if self._body > BODY_LIMIT:
            self._fail(f"an answer of more than {BODY_LIMIT} bytes")

    def connection_lost(self, error: Exception | None) -> None:
        """An answer without a length ends with its connection."""
        if error is None and self._in_body and not self._has_end:
            self._end(self._parser.get_status_code())
        self._fail("the connection ended within the answer")
        del self._parser  # it and this object hold each other

    # What the parser calls; it must not be raised in.

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line."""
        self._has_end = self._has_end or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """The body begins."""
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body += len(body)

    def on_message_complete(self) -> None:
        """The whole answer is there, unless it is one that goes before another."""
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != _SWITCHING_PROTOCOLS:
            self._in_body = self._has_end = False
        elif self._body <= BODY_LIMIT:
            self._end(status)

    def _end(self, status: int) -> None:
        if not self.status.done():
            self.status.set_result(status)

    def _fail(self, reason: str) -> None:
        if not self.status.done():
            self.status.set_exception(ProbeFailedError(reason))


def _request(path: str, host: str) -> bytes:
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", "User-Agent: maglev-health", "Accept: */*", "Connection: close")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


def _authority(address: Address, port: int, default: int) -> str:
    host = f"[{address}]" if address.version == 6 else str(address)
    return host if port == default else f"{host}:{port}"
