"""One running program: our child, or one that an earlier controller started. Both are watched by pidfd."""

from __future__ import annotations

import asyncio
import os
import signal
import site
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import controller
from controller.pid_file import holder
from controller.rundir import older

LOG_LIMIT = 1 << 20
EXEC_PATIENCE = 0.2


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and the pid file that it keeps locked while it lives."""

    name: str
    argv: tuple[str, ...]
    pid_file: Path
    log: Path
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended; `code` is None for one that was not our child. `message`: its last words."""

    code: int | None
    message: str

    def __str__(self) -> str:
        if self.code is None:
            return "ended"
        if self.code < 0:
            return f"killed by {signal.Signals(-self.code).name}"
        return f"exit status {self.code}: {self.message}" if self.message else f"exit status {self.code}"


class Process:
    """A process that was alive when this was made; `wait` may be called by several tasks."""

    def __init__(
        self, pid: int, pidfd: int, child: subprocess.Popen[bytes] | None, log: Path, log_start: int
    ) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._child = child
        self._log = log
        self._log_start = log_start
        self._ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pidfd, self._reap)

    @property
    def adopted(self) -> bool:
        """Whether an earlier controller started it."""
        return self._child is None

    @property
    def alive(self) -> bool:
        """Whether it has not been seen to end."""
        return not self._ended.done()

    async def wait(self) -> Exit:
        """Return when the process has ended."""
        return await asyncio.shield(self._ended)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; harmless when it has ended (the pidfd never means another process)."""
        if self.alive:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return

    async def stop(self, grace: float) -> Exit:
        """TERM, and KILL when it is not gone after `grace` seconds."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                return await self.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()

    def _reap(self) -> None:
        code = self._child.wait() if self._child else None
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._ended.set_result(Exit(code, last_line(self._log, self._log_start)))


def spawn(program: Program) -> Process:
    """Start the program in a session of its own, its output appended to its log."""
    _rotate(program.log)
    descriptor = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        log_start = os.fstat(descriptor).st_size
        child = subprocess.Popen(
            program.argv,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env={**_importable(dict(os.environ)), **program.environment},
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return Process(child.pid, os.pidfd_open(child.pid), child, program.log, log_start)


def adopt(program: Program) -> Process | None:
    """The running program of an earlier controller, or None."""
    pid = holder(program.pid_file)
    if pid is None or not _is_running(program, pid):
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if holder(program.pid_file) != pid:  # it went, and its number may be somebody else's by now
        os.close(pidfd)
        return None
    size = program.log.stat().st_size if program.log.exists() else 0
    return Process(pid, pidfd, None, program.log, size)


def _is_running(program: Program, pid: int) -> bool:
    """Whether the process is that program at all: what a pid file says may have been written over."""
    deadline = time.monotonic() + EXEC_PATIENCE
    while not (words := _command_line(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)  # in the middle of an exec it has none
    return program.argv[-1].encode() in words


def _command_line(pid: int) -> list[bytes]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return text.split(b"\0") if text else []


def last_line(log: Path, start: int) -> str:
    """The last line of a log that says something, from `start` on."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, file.seek(0, os.SEEK_END) - 8192))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _rotate(log: Path) -> None:
    """Keep a log that restarts fill from growing for ever; the run directory is memory."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(older(log))


def _importable(environment: dict[str, str]) -> dict[str, str]:
    """Let `python -m` find our packages from any directory, also out of a tree that is not installed."""
    root = str(Path(controller.__file__).parent.parent)
    if root not in site.getsitepackages():
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{known}" if known else root
    return environment
