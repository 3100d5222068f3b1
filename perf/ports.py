"""A node on one end of a veth pair, under af_packet and under af_xdp, beside each other in one run (root).

Our own source is at the other end, on the first CPU, always under af_packet, and sends as much as it can; the node
carries packets from receive to transmit on the last CPU. A veth is no NIC: what its sender does for a packet, the
receiver's driver included, the kernel does on the sender's CPU. So the source's share is in every figure, and that of
the node's driver in the source's. They compare drivers; they do not foretell what a NIC brings.

Rounds of all cases alternate; figures are medians, ratios medians of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from perf import lcores
from perf.results import Results, finish, options, steps
from perf.sources.own import AF_PACKET, layout_option

if TYPE_CHECKING:
    from perf._bench import Node, Source

DRIVERS = ("af_packet", "af_xdp")
MODES = {"node": "turns", "plain forwarder": "plain"}
ROUNDS = 9
SECONDS = 0.4
FLOWS = 1 << 15
OPENING_RATE = 5e4
KNOWN = 0.99  # share of the node's packets that must have met their flow's entry
VIPS = 100  # perf/csrc/generator.c: the addresses, and the MAC that frames are sent to
FIRST_VIP, MAC = IPv4Address("192.0.2.1"), "02:00:00:00:00:02"


class Wire:
    """A veth pair: the node under `driver` at one end, the source at the other."""

    def __init__(self, number: int, driver: str, asked: argparse.Namespace, stack: ExitStack) -> None:
        from perf._bench import Node, Source

        ends = self._link(number, stack)
        first = f"net_{driver}{2 * number},iface={ends[0]},"
        device = first + (self._xdp(asked) if driver == "af_xdp" else AF_PACKET)
        self._node: Node = Node(
            port=device, traffic="hit", flows=FLOWS, vips=VIPS, size=asked.size - 4, layout=asked.layout
        )
        stack.callback(self._node.close)
        if driver == "af_xdp":
            self._claim(ends[0], stack)
        self._source: Source = Source(
            self._node, lcores.SOURCE, f"net_af_packet{2 * number + 1},iface={ends[1]},{AF_PACKET}"
        )
        stack.callback(self._source.close)
        for first_packet in (True, False):
            self._node.start("turns", [lcores.NODE])
            self._source.open_flows(OPENING_RATE, first=first_packet)
            self._node.stop()

    @staticmethod
    def _link(number: int, stack: ExitStack) -> tuple[str, str]:
        a, b = (f"mgbench{number}{end}" for end in "ab")
        subprocess.run(["ip", "link", "add", a, "address", MAC, "type", "veth", "peer", "name", b], check=True)
        stack.callback(subprocess.run, ["ip", "link", "delete", a], check=True)
        for end in (a, b):
            subprocess.run(["ethtool", "-K", end, "gro", "off", "tx", "off"], check=True, capture_output=True)
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        return a, b

    @staticmethod
    def _xdp(asked: argparse.Namespace) -> str:
        from forwarder import xdp

        return f"force_copy=1,busy_budget={asked.busy_budget},xdp_prog={xdp.OBJECT}"

    @staticmethod
    def _claim(interface: str, stack: ExitStack) -> None:
        from forwarder import xdp

        claim = xdp.Claim(socket.if_nametoindex(interface), bytes.fromhex(MAC.replace(":", "")))
        stack.callback(claim.end)
        claim.add({FIRST_VIP + number: xdp.ROLE_VIP for number in range(VIPS)})

    def window(self, mode: str) -> tuple[float, float, float]:
        """Packets forwarded in a second, the share of those sent that was not, and ns of a turn per packet in it."""
        self._node.start(MODES[mode], [lcores.NODE])
        self._source.start(0)
        time.sleep(SECONDS)
        sent = self._source.stop()
        got = self._node.stop()
        lcores.let_others_run(SECONDS)
        assert mode != "node" or got["known"] >= KNOWN * got["forwarded"] > 0, f"flows were not known: {got}"
        return got["forwarded"] / sent["seconds"], 1 - got["forwarded"] / sent["sent"], got["turn_ns"]


def measure(wires: dict[str, Wire], results: Results) -> None:
    """Rows of all cases."""
    seen: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for _ in steps(range(ROUNDS), lambda number: f"round {number + 1} of all cases"):
        for mode in MODES:
            for driver in DRIVERS:
                seen[mode, driver].append(wires[driver].window(mode))
    for (mode, driver), rounds in seen.items():
        rates, beside = ([rate for rate, _, _ in of] for of in (rounds, seen[mode, DRIVERS[0]]))
        results.rows.append(
            {
                "case": f"{mode}, {driver}",
                "mpps": statistics.median(rates) / 1e6,
                "ratio": statistics.median(a / b for a, b in zip(rates, beside, strict=True)),
                "lost": statistics.median(lost for _, lost, _ in rounds),
                "turn_ns": statistics.median(ns for _, _, ns in rounds),
            }
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench ports", description=__doc__)
    options(parser, "ports")
    lcores.options(parser)
    layout_option(parser)
    parser.add_argument("--size", type=int, default=100, help="of frames, check sequence included")
    parser.add_argument("--busy-budget", type=int, default=64, help="of net_af_xdp; 0: no busy polling")
    asked = parser.parse_args(argv)
    if os.geteuid() != 0:
        sys.exit("Interfaces are made and opened: run it as root.")
    results = Results(
        "ports",
        {"rounds": ROUNDS, "seconds": SECONDS, "size": asked.size, "flows": FLOWS, "layout": asked.layout}
        | {"realtime": asked.realtime, "hugepages": asked.hugepages, "busy_budget": asked.busy_budget},
        {
            "case": "case",
            "mpps": "Mpps forwarded",
            "ratio": "by af_packet's",
            "lost": "share lost",
            "turn_ns": "ns a packet",
        },
    )
    lcores.start_node(realtime=asked.realtime, hugepages=asked.hugepages)
    with ExitStack() as stack:
        measure({driver: Wire(number, driver, asked, stack) for number, driver in enumerate(DRIVERS)}, results)
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
