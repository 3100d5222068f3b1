"""Sockets for probes, connected: a way that goes elsewhere than straight there takes the place of `dial`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from controller.model import Address

Dial = Callable[[Address, int, int, int], Awaitable[socket.socket]]
"""(address, port, kind of socket, protocol) -> a connected socket that does not block; the caller closes it."""


async def dial(address: Address, port: int, kind: int, protocol: int = 0) -> socket.socket:
    """A socket straight to the address. Raises OSError."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await connect(connection, address, port, kind)
    except BaseException:
        connection.close()
        raise
    return connection


async def connect(connection: socket.socket, address: Address, port: int, kind: int) -> None:
    """Connect a socket of this kind that does not block. Raises OSError."""
    if kind == socket.SOCK_STREAM:
        await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    else:  # does not wait: it only notes the address
        connection.connect((str(address), port))
