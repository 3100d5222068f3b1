"""Probes through the tunnel to a vip, as its packets go: what a backend cannot decapsulate, it does not answer.

A probe is a real connection to the vip from a port of this node that stands for one backend. Its socket has a mark,
by which the kernel routes it into a TUN device of ours; here each packet gets a GRE header and goes to the backend
of its source port. The backend answers the node's tunnel source directly, as it answers every client.

This lives in the controller, beside the probes, and not in the forwarder: the canary proves the forwarder's own
encapsulation, and what the backend sees is the same either way.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import struct
from contextlib import suppress
from functools import partial

from pyroute2 import AsyncIPRoute, NetlinkError

from controller.config_sections import PerFamily
from controller.model import Address
from controller.probes.dial import Dial, connect
from controller.probes.probe import NotProbedError

DEVICE = "maglev-probe"
MARK = 0x4D4C
"""Of a probe's socket, and the number of the routing table that the mark leads to."""
PRIORITY = 100
"""Of the rule, before the kernel's table main (32766)."""
MTU = 1400
PACKETS_AT_ONCE = 64

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_GRE = {4: b"\0\0\x08\0", 6: b"\0\0\x86\xdd"}
_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
_PROTOCOL: dict[int, int] = {socket.SOCK_STREAM: socket.IPPROTO_TCP, socket.SOCK_DGRAM: socket.IPPROTO_UDP}

_Key = tuple[int, int, int]


class ProbeTunnelError(Exception):
    """There is no tunnel for probes, and why: one sentence."""


class ProbeTunnel:
    """The device, the way into it, and which source port stands for which backend."""

    def __init__(self, sources: PerFamily) -> None:
        self._sources = sources
        self._tun: int | None = None
        self._raw: dict[int, socket.socket] = {}
        self._backends: dict[_Key, Address] = {}

    @property
    def open(self) -> bool:
        """Whether probes can be sent."""
        return self._tun is not None

    async def start(self) -> None:
        """Make device, route and rule; they replace those of a killed controller. Raises ProbeTunnelError."""
        if self.open:
            return
        try:
            self._tun = _open_tun()
            for version in self._versions():
                self._raw[version] = _open_raw(version, str(self._sources.of(version)))
            await _route_into_device(self._versions())
        except (OSError, NetlinkError) as error:
            await self.stop()
            reason = error.strerror if isinstance(error, OSError) else error.args[-1]
            raise ProbeTunnelError(f"no probes through the tunnel (via: tunnel): {reason}") from error
        asyncio.get_running_loop().add_reader(self._tun, self._drain)

    async def stop(self) -> None:
        """Take everything away."""
        for raw in self._raw.values():
            raw.close()
        self._raw.clear()
        if self._tun is None:
            return
        tun, self._tun = self._tun, None  # first: without the device a probe would go by the routers, and pass
        asyncio.get_running_loop().remove_reader(tun)
        os.close(tun)
        with suppress(NetlinkError, OSError):
            await _forget_rules()

    def to(self, backend: Address) -> Dial:
        """The way to a vip by this backend, for a probe."""
        return partial(self._dial, backend)

    async def _dial(self, backend: Address, vip: Address, port: int, kind: int, protocol: int = 0) -> socket.socket:
        """As dial.dial(). The source port stands for the backend until another socket gets it: what the kernel sends
        after the socket was closed goes there too, so that no connection is left half open."""
        if not self.open:
            raise NotProbedError("the tunnel for probes is closed")
        probe = socket.socket(_FAMILY[vip.version], kind, protocol)
        try:
            probe.setblocking(False)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
            probe.bind((str(self._sources.of(vip.version)), 0))
            self._backends[vip.version, _PROTOCOL[kind], int(probe.getsockname()[1])] = backend
            await connect(probe, vip, port, kind)
        except BaseException:
            probe.close()
            raise
        return probe

    def _versions(self) -> list[int]:
        return [version for version in (4, 6) if self._sources.of(version) is not None]

    def _drain(self) -> None:
        assert self._tun is not None
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(self._tun, 65536)
            except BlockingIOError:
                return
            self._wrap(packet)

    def _wrap(self, packet: bytes) -> None:
        """Send one on to its backend; what is no probe's, such as the kernel's own multicast, is dropped."""
        key = _source_port(packet)
        backend = self._backends.get(key) if key else None
        raw = self._raw.get(backend.version) if backend else None
        if key is None or backend is None or raw is None:
            return
        with suppress(OSError):  # no route, no buffer: the probe finds out by itself
            raw.sendto(_GRE[key[0]] + packet, (str(backend), 0))


def _source_port(packet: bytes) -> _Key | None:
    """(IP version, protocol, source port) of a packet that the kernel made, without options or extension headers."""
    version = packet[0] >> 4 if packet else 0
    protocol_at, header = (9, 20) if version == 4 else (6, 40)
    if version not in _FAMILY or len(packet) < header + 2 or packet[protocol_at] not in _PROTOCOL.values():
        return None
    return version, packet[protocol_at], int.from_bytes(packet[header : header + 2], "big")


def _open_tun() -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError as error:
        os.close(tun)
        if error.errno == errno.EBUSY:
            raise OSError(error.errno, f"the device {DEVICE} is another node's on this machine") from error
        raise
    return tun


def _open_raw(version: int, source: str) -> socket.socket:
    raw = socket.socket(_FAMILY[version], socket.SOCK_RAW, socket.IPPROTO_GRE)
    raw.setblocking(False)
    raw.bind((source, 0))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)  # a copy of what comes by GRE would wait here, unread
    return raw


async def _route_into_device(versions: list[int]) -> None:
    async with AsyncIPRoute() as ip:
        (index,) = await ip.link_lookup(ifname=DEVICE)
        await ip.link("set", index=index, mtu=MTU, state="up")
        for version in versions:
            await ip.route("replace", family=_FAMILY[version], dst="default", oif=index, table=MARK)
            with suppress(NetlinkError):  # it is there already
                await ip.rule("add", family=_FAMILY[version], fwmark=MARK, table=MARK, priority=PRIORITY)


async def _forget_rules() -> None:
    async with AsyncIPRoute() as ip:
        for family in _FAMILY.values():
            with suppress(NetlinkError):
                await ip.rule("del", family=family, fwmark=MARK, table=MARK, priority=PRIORITY)
