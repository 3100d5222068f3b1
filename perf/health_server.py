"""Ten thousand backends in one process: every address of 127.0.0.0/8 comes to the same two listeners."""

from __future__ import annotations

import asyncio
import socket
from multiprocessing.connection import Connection

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"
BACKLOG = 4096


class _Web(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)
        self._transport.close()


def serve(ports: Connection) -> None:
    """Sends the ports of TCP and HTTP, and serves until it is killed."""
    asyncio.run(_serve(ports))


async def _serve(ports: Connection) -> None:
    loop = asyncio.get_running_loop()
    listeners = [socket.create_server(("0.0.0.0", 0), backlog=BACKLOG) for _ in range(2)]
    listeners[0].setblocking(False)
    loop.add_reader(listeners[0], _accept_all, listeners[0])
    await loop.create_server(_Web, sock=listeners[1], backlog=BACKLOG)
    ports.send([listener.getsockname()[1] for listener in listeners])
    await asyncio.Event().wait()


def _accept_all(listener: socket.socket) -> None:
    """Connections of TCP checks are over before they are seen."""
    try:
        while True:
            listener.accept()[0].close()
    except BlockingIOError:
        pass
