"""The laboratory for a module of tests: up, and gone without a trace when they are over."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from lab import machine, namespaces, nodes
from lab.nodes import MAGLEV, WORK


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
