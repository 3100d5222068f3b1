"""A backend: a small HTTP/1.1 server that answers with its own name, and keeps connections when asked to.

Run inside a backend's namespace as `python -m lab.backend NAME [PORT]`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from http import HTTPStatus

BACKLOG = 4096
LONGEST_HEAD = 16384


def answer(head: bytes, name: str) -> tuple[bytes, bool]:
    """The response to one request head, and whether the connection stays open after it."""
    request, *fields = head.decode("latin-1").split("\r\n")
    method, _, rest = request.partition(" ")
    path, _, version = rest.partition(" ")
    keep = version == "HTTP/1.1" and not any(field.lower().replace(" ", "") == "connection:close" for field in fields)
    status, body = HTTPStatus.OK, name + "\n"
    if method != "GET":
        status, body, keep = HTTPStatus.METHOD_NOT_ALLOWED, "GET only\n", False
    elif path not in ("/", "/healthz"):
        status, body = HTTPStatus.NOT_FOUND, "not here\n"
    text = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n{body}"
    )
    return text.encode(), keep


class Connection(asyncio.Protocol):
    """One client's connection; requests may come one after the other, none has a body."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        *heads, self.pending = (self.pending + data).split(b"\r\n\r\n")
        for head in heads:
            response, keep = answer(head, self.name)
            self.transport.write(response)
            if not keep:
                self.transport.close()
                return
        if len(self.pending) > LONGEST_HEAD:
            self.transport.abort()


async def serve(name: str, port: int) -> None:
    """Answer on every address of this namespace, the vip among them, until killed."""
    listener = socket.create_server(("", port), backlog=BACKLOG)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(name), sock=listener, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 80))
