"""Pktgen-DPDK on another server, told what to do in Lua over its TCP socket (started with -G or -g HOST:PORT).

NOT RUN YET: it wants two servers with NICs of DPDK. The calls are those of its own scripts (rfc2544.lua,
test_range.lua); `perf/pktgen/README.md` says how to set it up, `perf/pktgen/maglev.lua` lays the flows.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys

TIMEOUT = 10.0
SENT = re.compile(r"sent (\d+)")
OVERHEAD = 20  # bytes of preamble and gap


class PktgenDpdk:
    """Its port 0; rates are shares of the line rate there."""

    name = "Pktgen-DPDK"

    @staticmethod
    def options(parser: argparse.ArgumentParser) -> None:
        """What it must be told."""
        parser.add_argument("--pktgen", metavar="HOST:PORT", help="pktgen-dpdk: where its socket is; port 22022")
        parser.add_argument("--gigabits", type=float, help="pktgen-dpdk: speed of its port, Gbit/s")

    def __init__(self, asked: argparse.Namespace) -> None:
        if None in (asked.pktgen, asked.gigabits):
            sys.exit("pktgen-dpdk needs --pktgen HOST:PORT and --gigabits; see perf/pktgen/README.md.")
        host, _, port = asked.pktgen.rpartition(":")
        self._where = host, int(port)
        self._bits = asked.gigabits * 1e9

    def start(self, rate: float, size: int) -> None:
        """Set rate and size, zero the counters, start."""
        line = self._bits / ((size + OVERHEAD) * 8)
        percent = min(100.0, rate / line * 100) if rate else 100.0
        sizes = [f'pktgen.range.pkt_size("0", "{key}", {size});' for key in ("start", "min", "max")]
        self._tell("pktgen.clr();", f'pktgen.set("0", "rate", {percent:.4f});', *sizes, 'pktgen.start("0");')

    def stop(self) -> int:
        """Stop, wait for the NIC, ask how many left."""
        said = self._tell(
            'pktgen.stop("0");',
            "pktgen.delay(1000);",
            'printf("sent %d\\n", pktgen.portStats("0", "port")[0].opackets);',
            answer=True,
        )
        found = SENT.search(said)
        if found is None:
            sys.exit(f"Pktgen did not say how many packets it sent, but: {said!r}")
        return int(found[1])

    def _tell(self, *lua: str, answer: bool = False) -> str:
        """Each connection is one script; what it prints comes back."""
        with socket.create_connection(self._where, TIMEOUT) as connection:
            connection.sendall("\n".join(lua).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while answer and (part := connection.recv(4096)):
                said += part
        return said.decode(errors="replace")
