"""Memory of connection tables that outlives the process: files on hugetlbfs or on shared memory. No DPDK in it.

All files of a node are in one directory, named after its run directory, so that no two nodes share one. When `create`
or `open` returns, every page is there: what is missing is said then, and no access can fail later.
"""

import errno
import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forwarder.settings import Refused

MOUNTS, MEMINFO = Path("/proc/mounts"), Path("/proc/meminfo")
SHARED_MEMORY = Path("/dev/shm")
PAGE, HUGE_PAGE = 4096, 2 << 20
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of one node's table files, and the kind of memory that they are made of."""

    mount: Path
    directory: Path
    hugepages: bool

    def file_bytes(self, table_bytes: int) -> int:
        """The size of a file that holds so much: whole pages."""
        page = HUGE_PAGE if self.hugepages else PAGE
        return -(-table_bytes // page) * page

    def difference(self, count: int, table_bytes: int) -> str | None:
        """What keeps the files from being `count` tables of this size; None when nothing does."""
        wanted = self.file_bytes(table_bytes)
        for worker in range(count):
            path = self._path(worker)
            if path.is_symlink() or not path.is_file():
                return f"the table of worker {worker} is missing in {self.directory}"
            if (size := path.stat().st_size) != wanted:
                return f"the table of worker {worker} has {size} bytes instead of {wanted}"
        return None

    def create(self, count: int, table_bytes: int) -> list[mmap.mmap]:
        """New files of zeros, mapped. Raises Refused, and then nothing is left of them."""
        needed = count * self.file_bytes(table_bytes)
        available = _available_memory()
        if not self.hugepages and needed > available:  # to try it would bring others into distress
            raise Refused(
                f"the connection tables need {_megabytes(needed)} MB of memory and {available // MEGABYTE} MB are "
                "available: write fewer connection_table.entries in the forwarder section."
            )
        try:
            self.directory.mkdir(mode=0o700)
            return [self._map(worker, table_bytes, os.O_CREAT | os.O_EXCL) for worker in range(count)]
        except OSError as error:
            sentence = self._why_not(error, needed)
            _remove(self.directory)
            raise Refused(sentence) from error

    def open(self, count: int, table_bytes: int) -> list[mmap.mmap]:
        """The files that another process left, mapped. Raises Refused."""
        try:
            return [self._map(worker, table_bytes, 0) for worker in range(count)]
        except OSError as error:
            raise Refused(self._why_not(error, count * self.file_bytes(table_bytes))) from error

    def _path(self, worker: int) -> Path:
        return self.directory / f"table-{worker}"

    def _map(self, worker: int, table_bytes: int, flags: int) -> mmap.mmap:
        size = self.file_bytes(table_bytes)
        descriptor = os.open(self._path(worker), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(descriptor)
        if not self.hugepages:
            with suppress(OSError):  # a kernel without them; and what a tmpfs makes of it is its mount's business
                memory.madvise(mmap.MADV_HUGEPAGE)
        return memory

    def _why_not(self, error: OSError, needed: int) -> str:
        if error.errno == errno.EEXIST:
            return f"{self.directory} is in the way of the connection tables, and not ours: remove it."
        if error.errno != errno.ENOSPC:
            return f"there is no memory for the connection tables in {self.directory}: {error.strerror}."
        if self.hugepages:
            return (
                f"the connection tables need {_megabytes(needed)} MB of hugepages and {self.mount} has no room for "
                "them: raise vm.nr_hugepages, or mount it without a size limit."
            )
        room = os.statvfs(self.mount)
        wanted = (room.f_blocks - room.f_bavail) * room.f_frsize + needed
        return (
            f"the connection tables need {_megabytes(needed)} MB of shared memory, which {self.mount} has no room "
            f"for: make it with `mount -o remount,size={_megabytes(wanted)}M {self.mount}`, or write fewer "
            "connection_table.entries in the forwarder section."
        )


def place(run_dir: Path, hugepages: bool) -> Place:
    """Where the tables of the node of this run directory belong now. Raises Refused."""
    for found in _places(run_dir):
        if hugepages or not found.hugepages:
            return found
    raise Refused(
        f"there is no shared memory for the connection tables: `mount -t tmpfs tmpfs {SHARED_MEMORY}` makes some."
    )


def remove(run_dir: Path) -> None:
    """Remove the tables of this node, wherever they are."""
    for found in _places(run_dir):
        _remove(found.directory)


def _places(run_dir: Path) -> Iterator[Place]:
    """Every place that could have the tables, the best one first."""
    path = run_dir.resolve()
    name = f"maglev-{path.name}-{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    mounts = mount_points(MOUNTS.read_text())
    for mount in of_huge_pages(mounts):
        if os.access(mount, os.W_OK):
            yield Place(mount, mount / name, hugepages=True)
    for directory in (SHARED_MEMORY, path):
        around = [mount for mount in mounts if directory.is_relative_to(mount)]
        mount = max(around, key=lambda mount: len(mount.parts), default=Path())
        if around and mounts[mount][0] == "tmpfs" and os.access(directory, os.W_OK):
            yield Place(mount, directory / name, hugepages=False)


def _megabytes(octets: int) -> int:
    return -(-octets // MEGABYTE)


def _available_memory() -> int:
    (line,) = (line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def of_huge_pages(mounts: dict[Path, tuple[str, str]]) -> list[Path]:
    """The mount points whose files can be tables in hugepages."""
    huge = {at: options.split(",") for at, (kind, options) in mounts.items() if kind == "hugetlbfs"}
    return [at for at, options in huge.items() if "pagesize=2M" in options]


def mount_points(text: str) -> dict[Path, tuple[str, str]]:
    """From the text of /proc/mounts: file system and options by mount point; of several on one point the last one."""
    found = {}
    for line in text.splitlines():
        _, point, kind, options, *_ = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
        found[Path(point)] = kind, options
    return found


def _remove(directory: Path) -> None:
    with suppress(OSError):
        status = directory.lstat()
        if status.st_uid == os.geteuid() and directory.is_dir() and not directory.is_symlink():
            for path in directory.glob("table-*"):
                path.unlink()
            directory.rmdir()
