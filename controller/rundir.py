"""The run directory of a node: every file and socket that its three processes share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from controller.pid_file import holder
from forwarder import table_memory

SOCKET_PATH_LIMIT = 107
"""Bytes that fit into sockaddr_un.sun_path."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class RunDirError(Exception):
    """The run directory cannot be used; the message is one sentence for the operator."""


class NoSuchNodeError(Exception):
    """No running node fits what was asked for; `ambiguous` when several do."""

    def __init__(self, message: str, *, ambiguous: bool = False) -> None:
        super().__init__(message)
        self.ambiguous = ambiguous


def base_directory() -> Path:
    """Where the run directories of all nodes are."""
    override = os.environ.get("MAGLEV_RUN_DIR")
    if override:
        return Path(override)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if os.geteuid() != 0 and runtime:
        return Path(runtime) / "maglev"
    return Path("/run/maglev")


def state_directory() -> Path | None:
    """Where nodes keep what outlives a restart of the machine; None: in their run directories, as laboratories do."""
    override = os.environ.get("MAGLEV_STATE_DIR")
    if override:
        return Path(override)
    if os.environ.get("MAGLEV_RUN_DIR"):
        return None
    if os.geteuid() == 0:
        return Path("/var/lib/maglev")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "maglev"


class RunDir:
    """Paths of one node. Nothing is touched before `create`."""

    def __init__(self, name: str, base: Path | None = None) -> None:
        if not _SAFE_NAME.fullmatch(name):
            raise RunDirError(f"node name {name!r} cannot name a directory")
        self.name = name
        self.path = (base or base_directory()).absolute() / name
        self.controller_pid = self.path / "controller.pid"
        self.controller_socket = self.path / "controller.sock"
        self.forwarder_settings = self.path / "forwarder.json"
        self.forwarder_pid = self.path / "forwarder.pid"
        self.forwarder_socket = self.path / "forwarder.sock"
        self.forwarder_log = self.path / "forwarder.log"
        self.forwarder_tables = self.path / "tables.json"
        self.exabgp_configuration = self.path / "exabgp.conf"
        self.exabgp_environment = self.path / "exabgp.env"
        self.speaker_pid = self.path / "speaker.pid"
        self.speaker_log = self.path / "speaker.log"
        self.lease_socket = self.path / "lease.sock"
        self.bird_configuration = self.path / "bird.conf"
        self.bird_socket = self.path / "bird.sock"
        self.bird_pid = self.path / "bird.pid"
        self.bird_log = self.path / "bird.log"
        kept = state_directory() if base is None else None
        self.overrides = (kept.absolute() / name if kept else self.path) / "overrides.json"
        self.announced = self.path / "announced.json"

    def files(self) -> tuple[Path, ...]:
        """Every file that ends with the node; `controller_pid` is its lock's business, overrides stay."""
        return (
            *(self.controller_socket, self.forwarder_settings, self.forwarder_pid, self.forwarder_socket),
            *(self.exabgp_configuration, self.exabgp_environment, self.speaker_pid, self.lease_socket),
            *(self.announced, self.forwarder_tables, self.forwarder_log, self.speaker_log),
            *(self.bird_configuration, self.bird_socket, self.bird_pid, self.bird_log),
            *(older(self.forwarder_log), older(self.speaker_log), older(self.bird_log)),
        )

    def create(self) -> None:
        """Make the directory, readable by its group at most; refuses one that belongs to somebody else."""
        length = len(os.fsencode(self.controller_socket))  # the longest of the three
        if length > SOCKET_PATH_LIMIT:
            raise RunDirError(
                f"{self.controller_socket} has {length} bytes, a socket path may have {SOCKET_PATH_LIMIT}: "
                "shorten node.name or set MAGLEV_RUN_DIR to a shorter directory"
            )
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o750, exist_ok=True)
            if self.path.stat().st_uid != os.geteuid():
                raise RunDirError(f"run directory {self.path} belongs to another user")
            self.path.chmod(0o750)
        except OSError as error:
            raise RunDirError(f"cannot create run directory {self.path}: {error.strerror}") from error

    def remove(self) -> None:
        """Remove what a node leaves: its connection tables, and all here but the pid file that its controller holds.

        Where a program still lives, after a start that failed half-way, its files stay for the next controller.
        """
        if any(holder(pid) is not None for pid in (self.forwarder_pid, self.speaker_pid, self.bird_pid)):
            return
        for path in (*self.files(), *self.path.glob(".*.new")):  # the latter by a crash in write_private
            with suppress(IsADirectoryError):
                path.unlink(missing_ok=True)
        table_memory.remove(self.path)

    def remove_if_empty(self) -> None:
        """Remove the directories that nothing is in any more."""
        with suppress(OSError):
            self.path.rmdir()
            self.path.parent.rmdir()

    def running(self) -> int | None:
        """The pid of the controller that runs this node, or None."""
        return holder(self.controller_pid)


def find_running(name: str | None = None, base: Path | None = None) -> RunDir:
    """The run directory of the running node of that name, or of the only one that runs."""
    base = base or base_directory()
    running = [node for node in _nodes(base) if node.running() is not None]
    if name is not None:
        running = [node for node in running if node.name == name]
        if not running:
            raise NoSuchNodeError(f"no node {name} is running (looked in {base})")
    if not running:
        raise NoSuchNodeError(f"no node is running (looked in {base})")
    if len(running) > 1:
        names = ", ".join(node.name for node in running)
        raise NoSuchNodeError(f"several nodes are running ({names}): choose one with --node", ambiguous=True)
    return running[0]


def _nodes(base: Path) -> Iterable[RunDir]:
    try:
        names = sorted(entry.name for entry in base.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise NoSuchNodeError(f"cannot look into {base}: {error.strerror}") from error
    return [RunDir(name, base) for name in names if _SAFE_NAME.fullmatch(name)]


def older(log: Path) -> Path:
    """Where a log goes when it has grown too long."""
    return log.with_name(log.name + ".1")


def write_private(path: Path, text: str) -> None:
    """Replace a file whole, mode 0640: a reader or a crash sees the old text or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o640)
        file.write(text)
    temporary.replace(path)


def read_json(path: Path) -> Any:
    """What `write_private` left as JSON, or None when there is nothing of use."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
