"""ICMP: an echo request is answered.

Each probe has a socket of its own, connected as those of other kinds: then the kernel keeps the answers of thousands
of targets apart and tells at once when one cannot be reached, and dead targets do not fill the send buffer of others.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct

from controller.model import Address
from controller.probes.check import Check
from controller.probes.dial import Dial
from controller.probes.probe import NotProbedError, Probe

_HEADER = struct.Struct("!BBHHH")
_TOKEN = 16
_LONGEST = 2048


class IcmpCheck(Check):
    """Up when an echo request is answered."""


class IcmpProbe(Probe):
    """Passes on the answer with our sequence number and token; the identifier is the kernel's on a ping socket."""

    def __init__(self, address: Address, check: IcmpCheck, dial: Dial) -> None:
        super().__init__(check.timeout)
        self._address = address
        self._dial = dial
        v6 = address.version == 6
        self._protocol = socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP
        self._request_type, self._reply_type = (128, 129) if v6 else (8, 0)

    async def ask(self) -> str:
        """One request; whatever else comes is passed over."""
        loop = asyncio.get_running_loop()
        identifier, sequence, token = random.getrandbits(16), random.getrandbits(16), os.urandom(_TOKEN)
        with await self._open() as connection:
            raw = connection.type == socket.SOCK_RAW
            connection.send(self._request(identifier, sequence, token))
            while True:
                packet = await loop.sock_recv(connection, _LONGEST)
                if raw and self._address.version == 4:
                    packet = packet[(packet[0] & 15) * 4 :]
                if len(packet) < _HEADER.size:
                    continue
                kind, _, _, answered, number = _HEADER.unpack_from(packet)
                ours = answered == identifier or not raw
                if (kind, number, packet[_HEADER.size :]) == (self._reply_type, sequence, token) and ours:
                    return "answered"

    async def _open(self) -> socket.socket:
        """A ping socket where net.ipv4.ping_group_range allows it, else a raw one, which root may open."""
        try:
            return await self._dial(self._address, 0, socket.SOCK_DGRAM, self._protocol)
        except PermissionError:
            pass
        try:
            return await self._dial(self._address, 0, socket.SOCK_RAW, self._protocol)
        except PermissionError:
            raise NotProbedError("no right to send pings: run as root, or widen net.ipv4.ping_group_range") from None

    def _request(self, identifier: int, sequence: int, token: bytes) -> bytes:
        """The kernel makes the checksum of ICMPv6, and of all on ping sockets."""
        bare = _HEADER.pack(self._request_type, 0, 0, identifier, sequence) + token
        return bare[:2] + struct.pack("!H", _checksum(bare)) + bare[4:]


def _checksum(data: bytes) -> int:
    total = sum(int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
