"""Path MTU discovery with real TCP: a path of 1500 bytes, a full-sized sender, no MSS clamping anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from needs import LAB
from whole_lab import whole_lab

from lab import nodes, topology
from lab.bulk import Transfer
from lab.counters import FORWARDED
from lab.nodes import MAGLEV
from lab.topology import BACKENDS, CLIENT, CLIENT_MTU, NODES, PORT, VIP

MEGABYTE = 1 << 20
UPLOAD, DOWNLOAD = 20 * MEGABYTE, 10 * MEGABYTE
GRE = 24  # bytes of encapsulation

pytestmark = LAB


@pytest.fixture(scope="module")
def lab() -> Iterator[None]:
    with whole_lab("--tunnel-mtu", str(CLIENT_MTU)):
        yield


@pytest.fixture(autouse=True)
def ways(lab: None) -> Iterator[None]:
    """All ways are as they were built, and no kernel remembers that they were not."""
    for host in (CLIENT, *BACKENDS):
        topology.forget_path_mtus(host)
    yield
    for host in (CLIENT, *BACKENDS):
        topology.narrow(host, None)


def transfer(direction: str, size: int, *options: str) -> Transfer:
    words = [sys.executable, "-m", "lab.bulk", *options, str(VIP), str(PORT), direction, str(size)]
    return Transfer(**json.loads(CLIENT.namespace.run(*words)))


def counted() -> dict[str, int]:
    """Fates of all nodes, and the pieces that they have sent."""
    all_stats: list[dict[str, Any]] = [nodes.status(node)["stats"] for node in NODES]
    sums = {fate: sum(stats["fates"][fate] for stats in all_stats) for fate in all_stats[0]["fates"]}
    return {**sums, "pieces": sum(stats["own"]["pieces"] for stats in all_stats)}


def since(before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in counted().items()}


def learned() -> dict[str, set[int]]:
    """What the nodes have learned: {backend: MTUs}."""
    found: dict[str, set[int]] = {}
    for node in NODES:
        for way in nodes.status(node)["stats"]["path_mtus"]:
            found.setdefault(way["backend"], set()).add(way["mtu"])
    return found


def test_an_upload_through_a_path_of_1500_bytes_completes(lab: None) -> None:
    """The node itself tells the client how large a packet may be."""
    before = counted()
    done = transfer("up", UPLOAD)
    counts = since(before)
    assert done.bytes == UPLOAD
    assert done.mtu == CLIENT_MTU - GRE
    assert 0 < counts["too_big_reply"] < 100, "the client is told, and heeds it"
    assert counts["too_big"] == counts["pieces"] == counts["path_mtu"] == 0
    assert sum(counts[fate] for fate in FORWARDED) >= UPLOAD / (CLIENT_MTU - GRE)
    assert topology.path_mtu(CLIENT, VIP, CLIENT.address) == CLIENT_MTU - GRE


def test_an_upload_without_df_completes_in_pieces(lab: None) -> None:
    before = counted()
    done = transfer("up", UPLOAD // 4, "--no-df")
    counts = since(before)
    assert done.bytes == UPLOAD // 4
    assert done.mtu == CLIENT_MTU, "nobody has told the client anything"
    assert counts["pieces"] >= UPLOAD // 4 / CLIENT_MTU
    assert counts["too_big_reply"] == counts["too_big"] == 0


def test_a_router_s_error_reaches_the_backend_whose_flow_it_is_about(lab: None) -> None:
    """A narrower way from the backends to the client: the router complains to the vip, and the nodes pass it on."""
    topology.narrow(CLIENT, 1400)
    before = counted()
    done = transfer("down", DOWNLOAD)
    counts = since(before)
    assert done.bytes == DOWNLOAD
    assert counts["icmp_error"] > 0
    told = {backend.name: topology.path_mtu(backend, CLIENT.address, VIP) for backend in BACKENDS}
    assert told == {backend.name: 1400 if backend.name == done.backend else None for backend in BACKENDS}


def test_a_router_s_error_to_the_tunnel_source_lowers_the_backend_s_mtu(lab: None) -> None:
    """A narrower hop on the way to the backends: the node learns of it, and tells the client."""
    for backend in BACKENDS:
        topology.narrow(backend, 1450)
    before = counted()
    done = transfer("up", UPLOAD)
    counts = since(before)
    assert done.bytes == UPLOAD
    assert done.mtu == 1450 - GRE
    assert counts["path_mtu"] > 0
    assert counts["too_big_reply"] > 0
    assert learned() == {done.backend: {1450}}
    text = subprocess.run(
        [
            "env",
            *(f"{k}={v}" for k, v in nodes.ENVIRONMENT.items()),
            *MAGLEV,
            "status",
            "--node",
            _node(done.backend),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "path MTUs that routers told of" in text
    assert "1450" in text


def _node(backend: str) -> str:
    """The node that has learned of this backend's way."""
    return next(
        node.name
        for node in NODES
        if any(way["backend"] == backend for way in nodes.status(node)["stats"]["path_mtus"])
    )
