"""TCP: a connection can be opened."""

from __future__ import annotations

import socket

from pydantic import Field

from controller import config_values as values
from controller.model import Address
from controller.probes.check import PortCheck
from controller.probes.dial import Dial
from controller.probes.probe import Probe

_RESET_AT_CLOSE = b"\1\0\0\0\0\0\0\0"


class TcpCheck(PortCheck):
    """Up when a connection opens."""

    port: values.Port = Field(examples=["80"])


class TcpProbe(Probe):
    """Passes when the handshake completes. Nothing is sent, and a reset ends it."""

    awaited = "connection"

    def __init__(self, address: Address, check: TcpCheck, dial: Dial) -> None:
        super().__init__(check.timeout)
        self._target = (address, check.port)
        self._dial = dial

    async def ask(self) -> str:
        """Connect once."""
        with await self._dial(*self._target, socket.SOCK_STREAM, 0) as connection:
            # Neither side keeps a TIME_WAIT per probe.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        return "connected"
