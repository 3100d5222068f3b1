"""Pid files that cannot lie: one counts only while its process holds the lock on it.

The lock is a flock, so the kernel drops it however the process ends, and it survives an exec.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOCK_PATIENCE = 0.2
"""How long to try for the lock: whoever asks `holder` holds it for an instant."""


class AlreadyLockedError(Exception):
    """Another living process holds the pid file; `pid` is None when it has not written itself down yet."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(f"{path} is held by pid {pid if pid is not None else 'unknown'}")
        self.pid = pid


class PidFile:
    """The pid file of this process: locked once, released once; releasing twice is harmless."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def lock(self, *, inheritable: bool = False) -> None:
        """Take the lock and write our pid; `inheritable` lets the lock live on across an exec."""
        deadline = time.monotonic() + LOCK_PATIENCE
        while self._descriptor < 0:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            if _take(descriptor) and _names(self.path, descriptor):
                self._descriptor = descriptor
                break
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise AlreadyLockedError(self.path, holder(self.path))
            time.sleep(0.01)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        os.set_inheritable(self._descriptor, inheritable)

    def release(self) -> None:
        """Remove the file, then drop the lock: in this order nobody can lock a file that is about to go."""
        if self._descriptor >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def holder(path: Path) -> int | None:
    """The pid of the living process that holds this pid file, or None."""
    deadline = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if _take(descriptor, fcntl.LOCK_SH):
                return None
            text = os.pread(descriptor, 32, 0).strip()
        finally:
            os.close(descriptor)
        if text.isdigit():
            return int(text)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)


def _take(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _names(path: Path, descriptor: int) -> bool:
    """Whether `path` still names the file that was locked, and not a successor of it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
