"""UDP: a datagram is sent, and the answer has in it what is expected."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Annotated

from pydantic import BeforeValidator, Field

from controller import config_values as values
from controller.config_errors import show
from controller.model import Address
from controller.probes.check import PortCheck
from controller.probes.dial import Dial
from controller.probes.probe import Probe, ProbeFailedError

LONGEST = 1200
_ANSWER = 65535
_HEX = re.compile(r"hex:((?:[0-9a-fA-F]{2} ?)+)")


def _payload(value: object) -> bytes:
    """Text as it is, or the bytes behind `hex:`."""
    if not isinstance(value, str) or not value:
        raise ValueError(f'{show(value)} is no payload; write text in quotes, or bytes such as "hex:0d0a"')
    found = _HEX.fullmatch(value)
    if value.startswith("hex:") and not found:
        raise ValueError(f'{show(value)} is not hex; write two digits for each byte, such as "hex:0d0a"')
    payload = bytes.fromhex(found[1]) if found else value.encode()
    if len(payload) > LONGEST:
        raise ValueError(f"has {len(payload)} bytes; write at most {LONGEST}")
    return payload


Payload = Annotated[bytes, BeforeValidator(_payload)]


class UdpCheck(PortCheck):
    """Up when `send` is answered, and `expect`, if there is one, stands anywhere in the answer."""

    port: values.Port = Field(examples=["53"])
    send: Payload = Field(examples=["ping"])
    expect: Payload | None = None


class UdpProbe(Probe):
    """Passes on the expected answer. The socket is connected: a port that the backend has closed tells at once."""

    def __init__(self, address: Address, check: UdpCheck, dial: Dial) -> None:
        super().__init__(check.timeout)
        self._target = (address, check.port)
        self._dial = dial
        self._send, self._expect = check.send, check.expect

    async def ask(self) -> str:
        """One datagram each way; the first answer decides."""
        loop = asyncio.get_running_loop()
        with await self._dial(*self._target, socket.SOCK_DGRAM, 0) as connection:
            connection.send(self._send)
            answer = await loop.sock_recv(connection, _ANSWER)
        if self._expect is not None and self._expect not in answer:
            raise ProbeFailedError(f"an answer of {len(answer)} bytes without what is expected")
        return f"an answer of {len(answer)} bytes"
