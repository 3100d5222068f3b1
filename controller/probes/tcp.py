"""TCP probe: a connection can be opened."""

from __future__ import annotations

import asyncio
import socket
import time

from controller.model import Address
from controller.probes.result import ProbeResult, refusal


class TcpProbe:
    """Passes when the handshake completes. Nothing is sent, and a reset ends it."""

    def __init__(self, address: Address, port: int, *, timeout: float) -> None:
        self._family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        self._target = (str(address), port)
        self._timeout = timeout

    async def probe(self) -> ProbeResult:
        """Connect once. Never raises."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                await self._connect()
            passed, reason = True, "connected"
        except TimeoutError:
            passed, reason = False, f"no connection within {self._timeout:g} s"
        except OSError as error:
            passed, reason = False, refusal(error)
        return ProbeResult(passed, reason, time.monotonic() - began)

    async def _connect(self) -> None:
        with socket.socket(self._family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, self._target)
            # Closing with linger 0 sends a reset: neither side keeps a TIME_WAIT per probe.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
