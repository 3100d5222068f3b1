"""Servers that answer health checks as they are told, and probes that ask them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

from controller.model import CheckKey
from controller.probes import KINDS, make_probe
from controller.probes.probe import ProbeResult

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TIMEOUT = 0.3


@asynccontextmanager
async def server(answer: Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that reads a request and answers as it is told; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    listener = await asyncio.start_server(serve, host, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


def says(text: str) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text.encode("latin-1"))
        await writer.drain()
        writer.write_eof()
        await reader.read()

    return answer


async def probed(kind: str, address: str, **settings: object) -> ProbeResult:
    check = KINDS[kind].section.model_validate({"type": kind, "timeout": "300ms", **settings})
    return await make_probe(CheckKey(ip_address(address), "c"), check).probe()


async def http(port: int, address: str = "127.0.0.1", **settings: object) -> ProbeResult:
    return await probed("http", address, port=port, **settings)


async def tcp(port: int, address: str = "127.0.0.1") -> ProbeResult:
    return await probed("tcp", address, port=port)


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def silence_after_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await reader.read()


async def drip_of_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
        writer.write(bytes((byte,)))
        await asyncio.sleep(0.05)


async def drip_of_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.05)


async def endless_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await says("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")(reader, writer)
