"""What the lab needs of the machine it runs on: root, tools, hugepages."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lab.namespaces import LabError

HUGEPAGES: Final = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
TOOLS: Final = {"ip": "iproute2", "ethtool": "ethtool", "sysctl": "procps", "bird": "bird2"}  # Debian package
TUN: Final = Path("/dev/net/tun")


def require() -> None:
    """Refuse, in one sentence, a machine on which the lab cannot run."""
    if os.geteuid() != 0:
        raise LabError("the lab makes network namespaces and must be run as root.")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        raise LabError(f"{', '.join(missing)} not found in PATH: `apt-get install {packages}` brings it.")
    if not TUN.exists():
        raise LabError(f"{TUN} is missing: the backends decapsulate through it (`modprobe tun`).")


@contextmanager
def alone() -> Iterator[None]:
    """Refuse to work on the lab while another command does: they would tear down what the other builds."""
    with socket.socket(socket.AF_UNIX) as mark:
        try:
            mark.bind("\0maglev-lab")  # an abstract name: the kernel frees it however this process ends
        except OSError as error:
            raise LabError("another `maglev lab` command is at work; wait for it, or stop it.") from error
        yield


def reserve_hugepages(pages: int, note: Path) -> bool:
    """Have at least `pages` free 2 MB pages; what had to be added is noted. False when they cannot be had."""
    try:
        lacking = pages - _read("free_hugepages")
        if lacking > 0:
            before = _read("nr_hugepages")
            note.write_text(str(lacking))
            _write(before + lacking)
            added = _read("nr_hugepages") - before
            note.write_text(str(added))
        if _read("free_hugepages") >= pages:
            return True
    except (OSError, ValueError):  # no such size, or the kernel gives none
        pass
    restore_hugepages(note)
    return False


def restore_hugepages(note: Path) -> None:
    """Give back the pages that `reserve_hugepages` added, and no others: someone else may use them too."""
    try:
        added = int(note.read_text())
        _write(max(0, _read("nr_hugepages") - added))
    except (OSError, ValueError):  # nothing was added
        return
    note.unlink()


def _read(name: str) -> int:
    return int((HUGEPAGES / name).read_text())


def _write(count: int) -> None:
    (HUGEPAGES / "nr_hugepages").write_text(str(count))
