"""A backend: a small HTTP/1.1 server that answers with its own name, and keeps connections when asked to.

It also takes an upload, `POST /upload`, and gives a download, `GET /download/BYTES`.

Run inside a backend's namespace as `python -m lab.backend NAME [PORT]`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from http import HTTPStatus

BACKLOG = 4096
LONGEST_HEAD = 16384
LONGEST_BODY = 1 << 30
UPLOAD = ("POST", "/upload")
DOWNLOAD = "/download/"


def answer(head: bytes, name: str) -> tuple[bytes, bool]:
    """The response to one request head, and whether the connection stays open after it."""
    request, *fields = head.decode("latin-1").split("\r\n")
    method, _, rest = request.partition(" ")
    path, _, version = rest.partition(" ")
    keep = version == "HTTP/1.1" and not any(field.lower().replace(" ", "") == "connection:close" for field in fields)
    status, body = HTTPStatus.OK, f"{name}\n".encode()
    wanted = path.removeprefix(DOWNLOAD)
    if method == "GET" and wanted != path and wanted.isdecimal():
        body = bytes(min(int(wanted), LONGEST_BODY))
    elif method != "GET" and (method, path) != UPLOAD:
        status, body, keep = HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n", False
    elif method == "GET" and path not in ("/", "/healthz"):
        status, body = HTTPStatus.NOT_FOUND, b"not here\n"
    text = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\nBackend: {name}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return text.encode() + body, keep


def body_length(head: bytes) -> int:
    """How many bytes follow a request head: those of an upload; nothing else has a body."""
    request, *fields = head.decode("latin-1").split("\r\n")
    if tuple(request.split(" ")[:2]) != UPLOAD:
        return 0
    lengths = [field.partition(":")[2].strip() for field in fields if field.lower().startswith("content-length:")]
    return int(lengths[0]) if lengths and lengths[0].isdecimal() else 0


class Connection(asyncio.Protocol):
    """One client's connection; requests may come one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending = b""
        self.head: bytes | None = None  # of the request whose body is coming
        self.body = 0  # bytes of it that are still to come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self.pending += data
        while self._take_request():
            assert self.head is not None
            response, keep = answer(self.head, self.name)
            self.head = None
            self.transport.write(response)
            if not keep:
                self.transport.close()
                return
        if len(self.pending) > LONGEST_HEAD:
            self.transport.abort()

    def _take_request(self) -> bool:
        """Take a request off what has come, and throw its body away; False while it is not complete."""
        if self.head is None:
            head, end, rest = self.pending.partition(b"\r\n\r\n")
            if not end:
                return False
            self.head, self.body, self.pending = head, body_length(head), rest
        taken = min(self.body, len(self.pending))
        self.body -= taken
        self.pending = self.pending[taken:]
        return self.body == 0


async def serve(name: str, port: int) -> None:
    """Answer on every address of this namespace, the vip among them, until killed."""
    listener = socket.create_server(("", port), backlog=BACKLOG)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(name), sock=listener, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 80))
