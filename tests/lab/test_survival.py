"""Every process of a node killed with SIGKILL, again and again: each start works and adopts what runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from lab import laboratory, machine, nodes, traffic
from lab.laboratory import wait_until
from lab.namespaces import LabError
from lab.nodes import MAGLEV, WORK
from lab.topology import NODES

ROUNDS = 20
VICTIMS = ("forwarder", "controller", "speaker")
PATIENCE = 20.0

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(any(not shutil.which(t) for t in machine.TOOLS), reason="a tool of the lab is missing"),
]

NODE, OTHER = NODES


@pytest.fixture(scope="module")
def lab() -> Iterator[None]:
    for words in (("down",), ("up",)):
        subprocess.run([*MAGLEV, "lab", *words], check=True, timeout=120)
    yield
    subprocess.run([*MAGLEV, "lab", "down"], check=True, timeout=60)


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


def whole() -> bool:
    """The node serves and is announced, and its forwarder is fit."""
    try:
        status: dict[str, Any] = nodes.status(NODE)
    except LabError:
        return False
    return bool(
        status["forwarder"]["healthy"]
        and status["speaker"]["connected"]
        and status["state"] == "running"
        and status["announced"] == ["192.0.2.1"]
        and laboratory.all_announced()
    )


def test_twenty_kills_are_survived_and_nothing_is_left_over(lab: None) -> None:
    wait_until(whole, PATIENCE, "the node is whole")
    free = free_hugepages()
    controllers: list[subprocess.Popen[str]] = []
    for number, victim in enumerate(islice(cycle(VICTIMS), ROUNDS)):
        before = pids()
        os.kill(before[victim], signal.SIGKILL)
        if victim == "controller":
            if controllers:
                controllers[-1].wait()
            controllers.append(start_controller())
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
    assert controllers[-1].wait() == 0
    assert not list((WORK / "run").glob("*/*")), "a run directory is not empty"
    assert free_hugepages() > free


def processes(node: Any) -> list[str]:
    return list(node.namespace.processes().values())


def _replaced(victim: str, before: dict[str, int]) -> bool:
    try:
        now = pids()[victim]
    except LabError:
        return False
    return now is not None and now != before[victim]
