from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_tree import Tree, make_drivers
from node_process import Backends, NodeProcess

from controller.rundir import RunDir


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where run directories are; its path is short, as unix sockets want it."""
    directory = Path(tempfile.mkdtemp(prefix="mg-"))
    monkeypatch.setenv("MAGLEV_RUN_DIR", str(directory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def run_dir(base: Path) -> RunDir:
    run_dir = RunDir("lb1")
    run_dir.create()
    return run_dir


@pytest.fixture(scope="module")
def server() -> Iterator[Backends]:
    server = Backends()
    yield server
    server.close()


@pytest.fixture
def backends(server: Backends) -> Backends:
    server.down.clear()
    return server


@pytest.fixture
def node(run_dir: RunDir, backends: Backends) -> Iterator[NodeProcess]:
    node = NodeProcess(run_dir, backends.port)
    yield node
    node.close()


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Driver files of DPDK, made by the C compiler."""
    directory = tmp_path_factory.mktemp("pmds")
    make_drivers(directory)
    return directory


@pytest.fixture
def tree(tmp_path: Path, drivers: Path) -> Tree:
    """A made-up machine."""
    return Tree(tmp_path / "machine", drivers)
