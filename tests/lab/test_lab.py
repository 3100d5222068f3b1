"""The lab's scenario, for real and small, and what it must not leave behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import LAB

from forwarder import table_memory
from lab import machine, namespaces
from lab.nodes import MAGLEV, WORK
from lab.topology import NODES

REQUESTS, CONNECTIONS = 600, 30
STEPS = ["spread", "membership", "backend death", "forwarder death", "node drain"]
MODULES = ("lab.backend", "lab.decap", "lab.load", f"run {WORK}", f"{WORK}/run")

pytestmark = LAB


def maglev(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAGLEV, "lab", *words], capture_output=True, text=True, timeout=240, check=False)


def left_over() -> list[str]:
    """Everything on this machine that only the lab makes."""
    found = [f"namespace {namespace.full_name}" for namespace in namespaces.existing()]
    found += [str(WORK)] if WORK.exists() else []
    tables = (table_memory.place(WORK / "run" / node.name, True).directory for node in NODES)
    found += [str(directory) for directory in tables if directory.exists()]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text().replace("\0", " ")
        except OSError:
            continue
        found += [f"process {line}"] if any(module in line for module in MODULES) else []
    return found


def hugepages() -> str:
    path = machine.HUGEPAGES / "nr_hugepages"
    return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def clean() -> Iterator[None]:
    maglev("down")
    yield
    maglev("down")


@pytest.fixture(scope="module")
def played(clean: None) -> tuple[dict[str, dict[str, Any]], int, list[str]]:
    """The steps of one run by name, its exit status, and what it left over."""
    pages = hugepages()
    done = maglev("run", "--json", "--requests", str(REQUESTS), "--connections", str(CONNECTIONS))
    rest = left_over() + ([] if hugepages() == pages else [f"hugepages {hugepages()}"])
    assert done.stdout, done.stderr
    steps = json.loads(done.stdout)["steps"]
    return {step["name"]: step for step in steps}, done.returncode, rest


@pytest.mark.parametrize("name", STEPS)
def test_step_is_as_expected(played: tuple[dict[str, dict[str, Any]], int, list[str]], name: str) -> None:
    steps, _, _ = played
    assert name in steps, f"the run ended before {name!r}: {list(steps.values())[-1]}"
    step = steps[name]
    assert step["unmet"] == []
    assert step["answered"] == step["requests"] > 0
    assert step["failed"] == 0
    assert sum(step["per_backend"].values()) == step["answered"]
    assert step["broken"] == 0
    assert step["connections"] <= CONNECTIONS
    assert (step["connections"] > 0) == (name != "spread")


def test_every_request_of_the_spread_is_counted(
    played: tuple[dict[str, dict[str, Any]], int, list[str]],
) -> None:
    step = played[0]["spread"]
    assert step["requests"] == REQUESTS
    assert sorted(step["per_backend"]) == ["b1", "b2", "b3"]


@pytest.mark.parametrize("name", ["forwarder death", "node drain"])
def test_route_is_withdrawn_within_a_second(
    played: tuple[dict[str, dict[str, Any]], int, list[str]], name: str
) -> None:
    assert 0 < played[0][name]["route_ms"] < 1000


def test_run_succeeds_and_leaves_nothing(played: tuple[dict[str, dict[str, Any]], int, list[str]]) -> None:
    _, status, rest = played
    assert status == 0
    assert rest == []


def test_down_cleans_up_after_a_killed_run(clean: None) -> None:
    pages = hugepages()
    with subprocess.Popen([*MAGLEV, "lab", "run", "--json"], stdout=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 60
        while not (WORK / "up").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        run.send_signal(signal.SIGKILL)
    assert left_over() != []
    assert maglev("down").returncode == 0
    assert left_over() == []
    assert hugepages() == pages
    assert maglev("down").returncode == 0
