"""Network namespaces of the lab and the processes that live in them.

Everything goes through `ip`: what the lab does can be typed again by hand. What belongs to the lab is known
by the prefix of its namespaces, so teardown needs no memory of how it was built.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PREFIX = "maglev-lab-"
SOURCE = Path(__file__).resolve().parents[1]  # `python -m lab.backend` and `configs/` are found from here


class LabError(Exception):
    """What went wrong, in one sentence for the person at the terminal."""


def command(*words: str) -> str:
    """Run one command to its end and return what it printed."""
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise LabError(f"`{' '.join(words)}` failed: {reason}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Namespace:
    """One network namespace; `name` is what the lab calls it, without the prefix."""

    name: str

    @property
    def full_name(self) -> str:
        """The name that `ip netns` knows."""
        return PREFIX + self.name

    def create(self, *sysctls: str) -> None:
        """Make the namespace with its loopback up; sysctls come first, so that new links inherit them."""
        command("ip", "netns", "add", self.full_name)
        if sysctls:
            self.run("sysctl", "-qw", *sysctls)
        self.ip("link", "set", "lo", "up")

    def ip(self, *words: str) -> str:
        """One `ip` command inside."""
        return command("ip", "-n", self.full_name, *words)

    def show(self, *words: str) -> list[dict[str, Any]]:
        """One `ip ... show` command inside, parsed."""
        return list(json.loads(self.ip("-j", *words) or "[]"))

    def run(self, *words: str) -> str:
        """One command inside, to its end."""
        return command("ip", "netns", "exec", self.full_name, *words)

    def start(
        self,
        words: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> subprocess.Popen[str]:
        """Start a process inside, in a session of its own so that Ctrl-C at the lab does not reach it.

        Its output is appended to `log`; with `stdout=subprocess.PIPE` only stderr is.
        """
        with log.open("a") as output:
            target: int | IO[str] = output if stdout is None else stdout
            return subprocess.Popen(
                ["ip", "netns", "exec", self.full_name, *words],
                cwd=SOURCE, env={**os.environ, **(environment or {})}, text=True,
                stdin=stdin, stdout=target, stderr=output, start_new_session=True,
            )  # fmt: skip

    def processes(self) -> dict[int, str]:
        """Command line by pid of every process inside; zombies are in no namespace and do not count."""
        found = {}
        for pid in map(int, command("ip", "netns", "pids", self.full_name).split()):
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        return found

    def find(self, text: str) -> int | None:
        """Pid of the process whose command line has `text` in it."""
        return next((pid for pid, line in self.processes().items() if text in line), None)


def existing() -> list[Namespace]:
    """Every namespace of the lab on this machine, from this run or one that crashed."""
    listed = json.loads(command("ip", "-j", "netns", "list") or "[]")
    return [Namespace(ns["name"].removeprefix(PREFIX)) for ns in listed if ns["name"].startswith(PREFIX)]


def kill_all(namespaces: Sequence[Namespace], patience: float = 10.0) -> None:
    """Kill every process inside. Repeats, because supervisors restart what is killed before them."""
    deadline = time.monotonic() + patience
    while pids := [pid for namespace in namespaces for pid in namespace.processes()]:
        if time.monotonic() > deadline:
            raise LabError(f"processes {pids} in the lab's namespaces do not die.")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove_all() -> None:
    """End every process of the lab and remove its namespaces; links and addresses go with them."""
    namespaces = existing()
    kill_all(namespaces)
    for namespace in namespaces:
        command("ip", "netns", "delete", namespace.full_name)
