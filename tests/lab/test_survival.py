"""Every process of a node killed with SIGKILL, again and again: each start works and adopts what runs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from needs import LAB
from whole_lab import whole_lab

from controller.api_client import ask
from forwarder import table_memory
from lab import laboratory, nodes, topology, traffic
from lab.laboratory import wait_until
from lab.namespaces import LabError
from lab.nodes import MAGLEV, WORK
from lab.topology import BACKENDS, NODES
from lab.traffic import Traffic

CONNECTIONS = 1000
ROUNDS = 20
VICTIMS = ("forwarder", "controller", "speaker")
PATIENCE = 20.0

pytestmark = LAB

NODE, OTHER = NODES


Controllers = list["subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Controllers]:
    """The lab, up; and the controllers that tests have started in it."""
    with whole_lab() as controllers:
        yield controllers


def pids() -> dict[str, int]:
    """The node's three processes; raises LabError while the controller does not answer."""
    status = nodes.status(NODE)
    return {
        "controller": status["pid"],
        "forwarder": status["forwarder"]["pid"],
        "speaker": status["speaker"]["pid"],
    }


def start_controller() -> subprocess.Popen[str]:
    return NODE.namespace.start(
        [*MAGLEV, "run", str(nodes.config_path(NODE))], nodes.log_path(NODE), nodes.ENVIRONMENT
    )


def free_hugepages() -> int:
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["HugePages_Free"])


def serves() -> bool:
    """The node is announced, and its forwarder is fit."""
    try:
        status: dict[str, Any] = nodes.status(NODE)
    except LabError:
        return False
    return bool(
        status["forwarder"]["healthy"]
        and status["speaker"]["connected"]
        and status["state"] == "running"
        and status["announced"] == ["192.0.2.1"]
        and str(NODE.address) in topology.next_hops()
    )


def whole() -> bool:
    """So does the other one."""
    return serves() and laboratory.all_announced()


@pytest.fixture
def alone(lab: Controllers) -> Iterator[None]:
    """All traffic by way of one node, with the pool that the lab begins with."""
    nodes.change_pool(laboratory.POOL)
    wait_until(whole, PATIENCE, "the node is whole")
    names = {backend.name for backend in laboratory.POOL}
    wait_until(lambda: set(nodes.slots(NODE)) == names, PATIENCE, "the pool is in use")
    socket = WORK / "run" / OTHER.name / "controller.sock"
    ask(socket, "POST", "/drain-self", {"drain": True})
    wait_until(lambda: not laboratory.all_announced(), PATIENCE, "the other node is out")
    yield
    ask(socket, "POST", "/drain-self", {"drain": False})


@pytest.mark.parametrize("victims", [("forwarder",), ("controller", "forwarder")], ids=" and ".join)
def test_connections_are_kept(lab: Controllers, alone: None, victims: tuple[str, ...]) -> None:
    """Killed just after the pool changed: one backend has left, another takes a third of the slots."""
    b1, b2, b3, b4 = BACKENDS
    with Traffic(requests=0, connections=CONNECTIONS, period=2.0) as load:
        nodes.change_pool((b1, b3, b4))
        wait_until(lambda: set(nodes.slots(NODE)) == {"b1", "b3", "b4"}, PATIENCE, "the pool has changed")
        before = pids()
        for victim in victims:
            os.kill(before[victim], signal.SIGKILL)
        if "controller" in victims:
            lab.append(start_controller())
        wait_until(lambda: _replaced("forwarder", before), PATIENCE, "there is a new forwarder")
        wait_until(serves, PATIENCE, "the node serves again")
        kept = nodes.status(NODE)["stats"]["connections"]
        results = load.finish()
    assert [connection for connection in results.connections if connection.broken] == []
    assert len(results.connections) == CONNECTIONS
    assert sum(connection.backend == b2.name for connection in results.connections) > CONNECTIONS / 5
    assert kept["started_empty"] is None
    assert kept["kept"] >= CONNECTIONS


def test_twenty_kills_are_survived_and_nothing_is_left_over(lab: Controllers) -> None:
    wait_until(whole, PATIENCE, "the node is whole")
    free = free_hugepages()
    for number, victim in enumerate(islice(cycle(VICTIMS), ROUNDS)):
        before = pids()
        os.kill(before[victim], signal.SIGKILL)
        if victim == "controller":
            lab.append(start_controller())
        where = f"round {number}, {victim} killed"
        wait_until(lambda: _replaced(victim, before), PATIENCE, f"{where}: there is a new one")  # noqa: B023
        wait_until(whole, PATIENCE, f"{where}: the node is whole again")
        after = pids()
        kept = {name for name in VICTIMS if name != victim}
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}, where
        results = traffic.burst(60)
        assert (results.answered, results.failed) == (60, 0), where
        assert free_hugepages() == free, where

    for node in NODES:
        os.kill(int(nodes.status(node)["pid"]), signal.SIGTERM)
    wait_until(
        lambda: not any("maglev" in line or "forwarder" in line for n in NODES for line in processes(n)),
        PATIENCE,
        "both nodes have ended",
    )
    assert lab[-1].wait() == 0
    assert not list((WORK / "run").glob("*/*")), "a run directory is not empty"
    for node in NODES:
        assert not table_memory.place(WORK / "run" / node.name, True).directory.exists()
    assert free_hugepages() > free


def processes(node: Any) -> list[str]:
    return list(node.namespace.processes().values())


def _replaced(victim: str, before: dict[str, int]) -> bool:
    try:
        now = pids()[victim]
    except LabError:
        return False
    return now is not None and now != before[victim]
