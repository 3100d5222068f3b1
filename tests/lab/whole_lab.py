"""The laboratory for a module of tests: up, and gone without a trace when they are over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from typing import Any

from lab import machine, namespaces, nodes
from lab.nodes import MAGLEV, WORK
from lab.topology import CLIENT, CLIENT_ADDRESSES, NODES, ROUTER


def maglev(*words: str) -> None:
    """A command that must succeed, at the nodes of the laboratory."""
    environment = {**os.environ, **nodes.ENVIRONMENT}
    subprocess.run([*MAGLEV, *words], check=True, capture_output=True, timeout=120, env=environment)


def pages() -> list[str]:
    return [path.read_text() for path in machine.HUGEPAGES.glob("nr_hugepages")]


@contextmanager
def whole_lab(*options: str) -> Iterator[list[subprocess.Popen[str]]]:
    """One that an earlier run has left is removed first. What is started inside is put on the list and waited for."""
    before, started = pages(), list[subprocess.Popen[str]]()
    maglev("lab", "down")
    try:
        maglev("lab", "up", *options)
        yield started
    finally:
        maglev("lab", "down")
        for process in started:
            process.wait()
    assert namespaces.existing() == []
    assert not WORK.exists()
    assert pages() == before


def routed(address: IPv4Address) -> bool:
    """Whether the router spreads an address over both nodes."""
    routes = ROUTER.show("route", "show", f"{address}/32")
    hops = {hop["gateway"] for route in routes for hop in route.get("nexthops", [])}
    return hops == {str(node.address) for node in NODES}


def requests(address: IPv4Address, count: int) -> dict[str, Any]:
    """What a client saw of so many requests, each on a connection of its own, from all its addresses in turn."""
    words = [sys.executable, "-m", "lab.load", str(address), "80", "--requests", str(count)]
    words += [word for source in CLIENT_ADDRESSES for word in ("--source", str(source))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with CLIENT.namespace.start(words, WORK / "client.log", **pipes) as client:
        assert client.stdout is not None
        client.stdout.readline()  # it is ready; it ends by itself, or early once stdin is closed
        return dict(json.loads(client.stdout.readline()))
