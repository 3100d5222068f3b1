"""The Docker engine: the one that runs, or one of our own with a directory of its own, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from traces import Traces

SOURCE = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds for the engine to answer


def run(*words: str) -> str:
    """One command to its end; returns what it printed."""
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stdout + done.stderr)[-4000:]
        raise AssertionError(f"`{' '.join(words)}` ended with status {done.returncode}:\n{told}")
    return done.stdout


def answers() -> bool:
    """Whether an engine runs and we may use it."""
    done = subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, check=False)
    return done.returncode == 0


def say(text: str) -> None:
    """One line for the person who waits."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


@contextmanager
def engine() -> Iterator[None]:
    """An engine that answers `docker`; an own one leaves the machine as it was."""
    if answers():
        say("using the Docker engine that runs")
        yield
        return
    if os.geteuid() != 0:
        pytest.fail("no Docker engine answers, and only root can start one.")
    before = Traces.read()
    with (
        tempfile.TemporaryDirectory(prefix="maglev-compose-", dir="/var/tmp") as data,  # a disk, not memory
        tempfile.TemporaryDirectory(prefix="maglev-compose-", dir="/run") as runtime,
    ):
        try:
            with _own(Path(data), Path(runtime)):
                yield
        finally:
            before.restore()
            _unmount(Path(data), Path(runtime))
    left = before.differences()
    assert not left, f"the engine left behind: {', '.join(left)}"
    say("the engine is stopped, and the machine is as it was")


@contextmanager
def _own(data: Path, runtime: Path) -> Iterator[None]:
    socket = f"unix://{runtime}/docker.sock"
    words = ["dockerd", "--host", socket, "--data-root", str(data), "--exec-root", str(runtime / "exec")]
    words += ["--pidfile", str(runtime / "pid")]
    log = runtime / "log"
    with log.open("w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    outer = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = socket
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"dockerd did not start:\n{log.read_text()[-4000:]}")
            time.sleep(0.2)
        say("started a Docker engine of our own")
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)
        os.environ.pop("DOCKER_HOST")
        if outer is not None:
            os.environ["DOCKER_HOST"] = outer


def _unmount(*roots: Path) -> None:
    """Unmount what an engine that was killed left mounted, innermost first, so that its directories can go."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [point for point in points if any(Path(point).is_relative_to(root) for root in roots)]
    for point in sorted(inside, reverse=True):
        subprocess.run(["umount", point], check=False)


def compose_command() -> list[str]:
    """Compose v2 where there is one, else docker-compose; the environment's COMPOSE decides otherwise."""
    if wanted := os.environ.get("COMPOSE"):
        return wanted.split()
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.fail("neither `docker compose` nor docker-compose is here; apt-get install docker-compose.")
