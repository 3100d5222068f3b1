"""The kernel's routes and neighbors over netlink: a fresh view on every change, and questions for what is missing."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

import structlog
from pyroute2 import AsyncIPRoute, NetlinkError

from forwarder.next_hops import NO_INTERFACE, KernelView, Neighbor, NextHops, Route
from forwarder.settings import Address

log = structlog.get_logger()

MAIN_TABLE = 254
UNICAST, REFUSING = 1, (6, 7, 8)  # linux/rtnetlink.h; blackhole, unreachable, prohibit
NTF_USE = 1  # linux/neighbour.h: act as if the entry had been used, so that the kernel resolves or probes it
RTMGRP = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400  # link, neighbor, IPv4 address and route, IPv6 address and route
SETTLE = 0.01  # seconds: events come in bunches
PERIOD = 1.0  # seconds between looks without an event


def _route(message: Any) -> Route | None:
    if message["type"] not in (UNICAST, *REFUSING):
        return None
    path = (message.get_attr("RTA_MULTIPATH") or [message])[0]  # any of equal paths will do, if it stays the same
    interface = path["oif"] if path is not message else message.get_attr("RTA_OIF")
    via = path.get_attr("RTA_VIA")  # a gateway of the other family
    gateway = path.get_attr("RTA_GATEWAY") or (via["addr"] if via else None)
    if message["type"] in REFUSING:
        interface, gateway = NO_INTERFACE, None
    elif interface is None:
        return None
    nowhere = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    return Route(
        ip_network(f"{message.get_attr('RTA_DST') or nowhere}/{message['dst_len']}"),
        ip_address(gateway) if gateway else None,
        interface,
        message.get_attr("RTA_PRIORITY") or 0,
    )


def _mac(text: str | None) -> bytes | None:
    """Six bytes, or None: neighbors on tunnels have an IP address in the MAC's place."""
    return bytes.fromhex(text.replace(":", "")) if text and len(text) == 17 else None


async def read_view(netlink: AsyncIPRoute) -> KernelView:
    """One look at the kernel's main routing table and its neighbors."""
    routes, neighbors = [], {}
    for family in (socket.AF_INET, socket.AF_INET6):
        async for message in await netlink.route("dump", family=family, table=MAIN_TABLE):
            route = _route(message)
            if route is not None:
                routes.append(route)
        async for message in await netlink.neigh("dump", family=family):
            key = (message["ifindex"], ip_address(message.get_attr("NDA_DST")))
            neighbors[key] = Neighbor(_mac(message.get_attr("NDA_LLADDR")), message["state"])
    return KernelView(routes, neighbors)


class Neighbors:
    """Keeps `hops.view` fresh and calls `changed()` after each look; runs until cancelled."""

    def __init__(self, hops: NextHops, changed: Callable[[], None]) -> None:
        self._hops = hops
        self._changed = changed
        self._wake = asyncio.Event()

    def look_soon(self) -> None:
        """Look again now, as after a change of the backends."""
        self._wake.set()

    async def run(self) -> None:
        """Mirror the kernel: on each event, and once a second."""
        events = self._open_events()
        try:
            while True:
                try:
                    await self._follow()
                except (OSError, NetlinkError):  # what was known last goes on being used
                    log.exception("netlink failed")
                    await asyncio.sleep(PERIOD)
        finally:
            asyncio.get_running_loop().remove_reader(events)
            events.close()

    async def _follow(self) -> None:
        async with AsyncIPRoute() as netlink:
            while True:
                self._wake.clear()
                self._hops.view = await read_view(netlink)
                self._changed()
                for interface, address in self._hops.to_ask():
                    await self._ask(netlink, interface, address)
                await self._wait()

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), PERIOD)
            await asyncio.sleep(SETTLE)
        except TimeoutError:
            pass

    async def _ask(self, netlink: AsyncIPRoute, interface: int, address: Address) -> None:
        with suppress(NetlinkError):  # the interface is down or gone: the next look tells
            await netlink.neigh("replace", dst=str(address), ifindex=interface, flags=NTF_USE, state=0)

    def _open_events(self) -> socket.socket:
        # What changed is not read from the events: any of them, or their overflow, means that a new look is due.
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        events.bind((0, RTMGRP))
        asyncio.get_running_loop().add_reader(events, self._drain, events)
        return events

    def _drain(self, events: socket.socket) -> None:
        try:
            while events.recv(65536):
                pass
        except BlockingIOError:
            pass
        except OSError:
            pass  # ENOBUFS: events were lost, which is an event too
        self._wake.set()
