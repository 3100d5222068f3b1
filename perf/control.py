"""How long a large configuration takes from the file to the forwarder: a real node, whose ports lead nowhere.

A thousand vips over a hundred pools of a hundred backends each, without health checks, which take the time that
they are given. What is timed goes through the control socket, as a command would.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller.api_client import ApiError, ask
from controller.config import load
from perf.results import Law, Results, finish, options, steps

ROUNDS = 5
BOUND_S = 5.0
PATIENCE_S = 120.0
FLOW = {"protocol": "tcp", "source": "198.51.100.7", "source_port": 40000, "destination_port": 80}


def configuration(vips: int, pools: int, backends: int) -> str:
    """The file; vip n is at 192.x.y.z, in order, and every pool has as many backends."""
    lines = [
        "node: {name: bench, tunnel_source: {ipv4: 10.250.0.1}, hash_key: '000102030405060708090a0b0c0d0e0f'}",
        "forwarder: {ports: [{device: net_null0}], hugepages: false, connection_table: {entries: 65536}}",
        "backend_pools:",
    ]
    for pool in range(pools):
        lines.append(f"  pool{pool}:\n    backends:")
        for number in range(pool * backends // pools, (pool + 1) * backends // pools):
            where = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            lines.append(f"      - {{name: b{number}, address: {where}, weight: 100}}")
    lines.append("vips:")
    lines += [f"  - {{name: v{n}, address: {address(n)}, port: 80, pools: [pool{n % pools}]}}" for n in range(vips)]
    return "\n".join(lines) + "\n"


def address(vip: int) -> str:
    """Of the vip with this number."""
    return f"192.{vip >> 16}.{1 + (vip >> 8)}.{vip & 255}"


class Node:
    """`maglev run` on a file, in a directory of its own."""

    def __init__(self, directory: Path, text: str) -> None:
        self.file = directory / "bench.yaml"
        self.file.write_text(text)
        self._socket = directory / "bench" / "controller.sock"
        self._environment = {**os.environ, "MAGLEV_RUN_DIR": str(directory)}
        self._log_path = directory / "log"

    def __enter__(self) -> Node:
        argv = [sys.executable, "-m", "controller.cli", "run", str(self.file)]
        self._log = self._log_path.open("w")
        self._process = subprocess.Popen(argv, env=self._environment, stderr=self._log)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def ask(self, resource: str, **body: Any) -> dict[str, Any]:
        """One request."""
        return ask(self._socket, "POST", resource, body)

    def serves(self, vip: str) -> bool:
        """Whether the forwarder has a state with this vip."""
        try:
            return self.ask("/lookup", **FLOW, destination=vip)["vip"] is not None
        except ApiError:
            return False


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def until(holds: Callable[[], bool]) -> None:
    """Wait; raises AssertionError when it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def measure(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per thing that an operator waits for."""
    text = configuration(asked.vips, asked.pools, asked.backends)
    last = address(asked.vips - 1)
    with tempfile.TemporaryDirectory(prefix="mg-") as directory:
        node = Node(Path(directory), text)
        found: dict[str, list[float]] = {}
        found["load and validate the file"] = [timed(lambda: load(node.file)) for _ in range(ROUNDS)]
        for _ in steps(range(ROUNDS), lambda number: f"start {number + 1}"):
            with node:
                started = timed(lambda: until(lambda: node.serves(last)))
                found.setdefault("start of the node until its forwarder serves the last vip", []).append(started)
        with node:
            until(lambda: node.serves(last))
            for number in steps(range(ROUNDS), lambda number: f"reload {number + 1}"):
                found.setdefault("reload without a change", []).append(timed(lambda: node.ask("/reload")))
                more = f"  - {{name: more, address: 203.0.113.{number + 1}, port: 80, pools: [pool0]}}\n"
                node.file.write_text(text.replace("name: b0,", f"name: b0x{number},") + more)
                wanted = f"203.0.113.{number + 1}"

                def change(wanted: str = wanted) -> None:
                    node.ask("/reload")
                    until(lambda: node.serves(wanted))

                found.setdefault("reload with one pool changed, until the forwarder has it", []).append(timed(change))
                node.file.write_text(text)
                node.ask("/reload")
                until(lambda wanted=wanted: not node.serves(wanted))  # type: ignore[misc]
            found["what a reload would move (dry run)"] = [
                timed(lambda: node.ask("/reload", dry_run=True)) for _ in range(ROUNDS)
            ]
    return [{"case": case, "seconds": statistics.median(times), "most": max(times)} for case, times in found.items()]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench control", description=__doc__)
    options(parser, "control")
    parser.add_argument("--vips", type=int, default=1000)
    parser.add_argument("--pools", type=int, default=100)
    parser.add_argument("--backends", type=int, default=10_000)
    asked = parser.parse_args(argv)
    settings = {"vips": asked.vips, "pools": asked.pools, "backends": asked.backends, "rounds": ROUNDS}
    columns = {"case": "from the command to", "seconds": "s, median", "most": "s, most"}
    results = Results("control", settings, columns, rows=measure(asked))
    results.laws = [Law(f"{row['case']}, s", row["seconds"], BOUND_S) for row in results.rows]
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
