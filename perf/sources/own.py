"""Our own source over a node in the same process: on a memory port, memif, a veth pair, or any two DPDK devices.

It has the first CPU, the node the last. What the port refuses because it is full counts as sent, and so as lost: a
NIC would have dropped it.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from contextlib import ExitStack
from typing import Any

from perf import lcores
from perf.node import FLOWS, LAYOUTS, open_flows

ENDS = ("maglevbench0", "maglevbench1")
AF_PACKET = "blocksz=65536,framesz=2048,framecnt=1024"


def layout_option(parser: argparse.ArgumentParser) -> None:
    """Which layout the node has that runs on one CPU."""
    parser.add_argument("--layout", choices=LAYOUTS, default="rss", help="of the node (default: %(default)s)")


class OwnSource:
    """Both ends: source and node. `port` is memory, memif, veth, or NODE-DEVICE/SOURCE-DEVICE.

    `mode` is what the node does: "turns" (all of it on one CPU), "plain" (a forwarder that exchanges MAC addresses)
    or "pass" (what comes goes).
    """

    def __init__(self, port: str, mode: str = "turns", layout: str = "rss", flows: int = FLOWS) -> None:
        self.name = f"own, {port}"
        self._layout = layout
        self.mode = mode
        self.round: Any = None
        self.delays: Any = None
        self._flows = flows
        self._stack = ExitStack()
        self._devices = self._make_devices(port)
        self._made: dict[int, tuple[Any, Any]] = {}
        self._forwarded = 0
        self._size = 0

    def start(self, rate: float, size: int) -> None:
        """Start node and source; they are made anew when the size changes."""
        node, source = self._pair(size)
        node.start(self.mode, [lcores.NODE])
        source.start(rate)

    def stop(self) -> int:
        """Stop both; what the node did is in `round`, what the packets' delays were in `delays`."""
        node, source = self._made[self._size]
        self.delays = source.stop()
        self.round = node.stop()
        self._forwarded += int(self.round["forwarded"])
        lcores.let_others_run(self.round["seconds"])
        return int(self.delays["sent"])

    def forwarded(self) -> int:
        """Over all rounds."""
        return self._forwarded

    def close(self) -> None:
        """Give everything back."""
        self._drop()
        self._stack.close()

    def _pair(self, size: int) -> tuple[Any, Any]:
        from perf._bench import Node, Source

        if size in self._made:
            return self._made[size]
        self._drop()
        node_device, source_device = self._devices
        node = Node(port=node_device, traffic="hit", flows=self._flows, size=size - 4, layout=self._layout)
        source = Source(node, lcores.SOURCE, source_device)
        open_flows(node, source)
        self._made[size], self._size = (node, source), size
        return node, source

    def _drop(self) -> None:
        for node, source in self._made.values():
            source.close()
            node.close()
        self._made.clear()

    def _make_devices(self, port: str) -> tuple[str, str | None]:
        if port == "memory":
            return "memory", None
        if port == "memif":
            socket = f"{self._stack.enter_context(tempfile.TemporaryDirectory())}/memif"
            ends = [f"role={role},socket={socket},socket-abstract=no" for role in ("server", "client")]
            return f"net_memif0,{ends[0]}", f"net_memif1,{ends[1]}"
        if port == "veth":
            subprocess.run(["ip", "link", "add", ENDS[0], "type", "veth", "peer", "name", ENDS[1]], check=True)
            self._stack.callback(subprocess.run, ["ip", "link", "delete", ENDS[0]], check=True)
            for end in ENDS:
                subprocess.run(["ip", "link", "set", end, "up"], check=True)
            devices = [f"net_af_packet{i},iface={end},{AF_PACKET}" for i, end in enumerate(ENDS)]
            return devices[0], devices[1]
        node_device, _, source_device = port.partition("/")
        return node_device, source_device
