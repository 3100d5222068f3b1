"""What no file of a machine tells: asked of the kernel on this machine, written down in a made-up one."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import json
import socket
from contextlib import suppress
from typing import Any, Literal, Protocol, get_args

from controller.pid_file import holder
from controller.rundir import RunDir
from forwarder.channels import Channels, channels
from forwarder.offloads import switched_on

Reached = Literal["connected", "refused", "silent", "no route", "not asked"]
BGP_PORT = 179
PATIENCE = 0.5
"""Seconds that a router has to answer; it is one or two hops away."""
STA_UNSYNC, STATUS_AT, TIMEX_BYTES = 0x40, 40, 256  # linux/timex.h; on machines of 64 bits


class Facts(Protocol):
    """None: that could not be found out."""

    def offload(self, interface: str, name: str) -> bool | None:
        """Whether gro, lro, tso or gso of an interface is on."""

    def channels(self, interface: str) -> Channels | None:
        """Receive queues of an interface."""

    def clock_synchronised(self) -> bool | None:
        """Whether something keeps the clock right."""

    def reach(self, address: str, ask: bool) -> Reached | None:
        """How far one gets to the BGP port of an address; unless `ask`, only whether there is a route to it."""

    def has_module(self, name: str) -> bool | None:
        """Whether Python finds a module."""

    def runs(self, node: str) -> bool:
        """Whether the forwarder of a node runs."""


class Kernel:
    """This machine."""

    def offload(self, interface: str, name: str) -> bool | None:
        """As the forwarder asks for it."""
        return switched_on(interface, name)

    def channels(self, interface: str) -> Channels | None:
        """As the forwarder asks for them."""
        return channels(interface)

    def clock_synchronised(self) -> bool | None:
        """As whatever disciplines the clock told the kernel."""
        timex = ctypes.create_string_buffer(TIMEX_BYTES)  # all zero: only asks
        try:
            if ctypes.CDLL(None).adjtimex(timex) < 0:
                return None
        except AttributeError:
            return None
        return not ctypes.c_int.from_buffer(timex, STATUS_AT).value & STA_UNSYNC

    def reach(self, address: str, ask: bool) -> Reached | None:
        """By a connection that is closed at once, or by one of UDP, which sends nothing."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM if ask else socket.SOCK_DGRAM) as router:
            router.settimeout(PATIENCE)
            try:
                router.connect((address, BGP_PORT))
            except (ConnectionRefusedError, ConnectionResetError):
                return "refused"
            except OSError as failure:
                no_route = failure.errno in (errno.ENETUNREACH, errno.EADDRNOTAVAIL)
                return "no route" if no_route else "silent"
        return "connected" if ask else "not asked"

    def has_module(self, name: str) -> bool | None:
        """In this Python, which is also that of the speaker."""
        return importlib.util.find_spec(name) is not None

    def runs(self, node: str) -> bool:
        """By its locked pid file."""
        with suppress(OSError):
            return holder(RunDir(node).forwarder_pid) is not None
        return False


class Written:
    """A made-up machine, by a JSON object in its root; what is not in it is not known.

    {"offloads": {"eth1": {"gro": false, "lro": false, "tso": true, "gso": true}}, "clock_synchronised": true,
     "receive_queues": {"eth1": 1},
     "reach": {"10.0.2.1": "connected"}, "modules": {"exabgp": true}, "runs": ["lb1"]}
    """

    def __init__(self, text: str) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        self._facts: dict[str, Any] = value if isinstance(value, dict) else {}

    def offload(self, interface: str, name: str) -> bool | None:
        """`offloads`."""
        return _yes_or_no(self._under("offloads", interface), name)

    def channels(self, interface: str) -> Channels | None:
        """`receive_queues`."""
        said = self._under("receive_queues").get(interface)
        return Channels(said, "combined 1") if isinstance(said, int) else None

    def clock_synchronised(self) -> bool | None:
        """`clock_synchronised`."""
        return _yes_or_no(self._facts, "clock_synchronised")

    def reach(self, address: str, ask: bool) -> Reached | None:
        """`reach`."""
        said = self._under("reach").get(address)
        if said == "connected" and not ask:
            return "not asked"
        return next((word for word in get_args(Reached) if word == said), None)

    def has_module(self, name: str) -> bool | None:
        """`modules`."""
        return _yes_or_no(self._under("modules"), name)

    def runs(self, node: str) -> bool:
        """`runs`."""
        nodes = self._facts.get("runs")
        return isinstance(nodes, list) and node in nodes

    def _under(self, *keys: str) -> dict[str, Any]:
        found: Any = self._facts
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}


def _yes_or_no(facts: dict[str, Any], name: str) -> bool | None:
    value = facts.get(name)
    return value if isinstance(value, bool) else None
