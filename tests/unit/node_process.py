"""A node as processes, with a fake forwarder and real backends, for tests to start, ask and kill."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.api_client import ApiError, ask
from controller.pid_file import holder
from controller.rundir import RunDir

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Json = dict[str, Any]

CONFIG = """
node:
  name: lb1
  tunnel_source: {ipv4: 10.0.2.2}
  hash_key: "000102030405060708090a0b0c0d0e0f"
  drain_time: 300ms
forwarder: {ports: [{device: net_null0}], hugepages: false}
health_checks:
  web: {type: http, port: PORT, interval: 50ms, timeout: 40ms, rise: 2, fall: 2}
backend_pools:
  checked: {health_checks: [web], backends: [{name: web1, address: 10.0.3.2}, {name: web2, address: 10.0.3.3}]}
  free: {backends: [{name: api1, address: 10.0.3.9}]}
vips:
  - {name: www, address: 192.0.2.1, port: 80, pools: [checked], table_size: 251}
  - {name: api, address: 192.0.2.2, port: 80, pools: [free], table_size: 251}
"""
BOTH = ["192.0.2.1", "192.0.2.2"]


class Backends:
    """An HTTP server on all of 127.0.0.0/8; the addresses in `down` get no good answer."""

    def __init__(self) -> None:
        backends = self
        self.down: set[str] = set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = self.connection.getsockname()[0]
                self.send_response(503 if address in backends.down else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class NodeProcess:
    """`maglev run` on one configuration, as often as a test starts it."""

    def __init__(self, run_dir: RunDir, port: int) -> None:
        self.run_dir = run_dir
        self.config = run_dir.path.parent / "lb1.yaml"
        self.log = run_dir.path.parent / "node.log"
        self.text = CONFIG.replace("PORT", str(port))
        self.config.write_text(self.text)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, str(HERE / "run_node.py"), str(self.config))
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def ask(self, method: str, resource: str, body: Json | None = None) -> Json:
        return ask(self.run_dir.controller_socket, method, resource, body)

    def status(self) -> Json:
        return self.ask("GET", "/status")

    def until(self, holds: Callable[[Json], object], seconds: float = 8.0) -> Json:
        """The first status of which that holds."""
        deadline = time.monotonic() + seconds
        status: Json = {}
        while time.monotonic() < deadline:
            try:
                status = self.status()
                if holds(status):
                    return status
            except ApiError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"{json.dumps(status)}\n{self.log.read_text()}")

    def forwarder(self) -> int:
        pid = holder(self.run_dir.forwarder_pid)
        assert pid
        return pid

    def mood(self, **mood: object) -> None:
        """Tell the fake forwarder how to behave."""
        path = self.run_dir.path / "fake.json"
        path.with_suffix(".new").write_text(json.dumps(mood))
        path.with_suffix(".new").replace(path)

    def states(self) -> list[Json]:
        """Every state that the forwarder was given."""
        # A write that crosses a page shows in two parts, so the last line may still be half of one.
        whole, _, _ = (self.run_dir.path / "fake.states").read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self.processes:
            self.kill(process)
        if forwarder := holder(self.run_dir.forwarder_pid):
            os.kill(forwarder, signal.SIGKILL)


def announced(status: Json) -> bool:
    return bool(status["announced"] == BOTH)


def members(state: Json) -> dict[str, str]:
    return {name: status for vip in state["vips"] for name, _, status in vip["members"]}


def started(node: NodeProcess) -> subprocess.Popen[bytes]:
    """Start the node and wait until it announces everything."""
    process = node.start()
    node.until(lambda s: announced(s) and s["state"] == "running")
    return process
