"""A machine as its files tell it, below a root: `/`, or a directory with copies of its files.

Missing and odd files are no failure: they read as empty, and what is made of that is the subjects' business. What no
file tells is asked through `facts`.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from controller.doctor import cpu_list, drivers
from controller.doctor.facts import Facts, Kernel, Written

FACTS = "maglev-doctor.json"
"""In a made-up machine, what no file tells; see `facts.Written`."""


class Machine:
    """Paths are written without the leading slash. `for_dpdk`: PCI addresses of NICs that DPDK shall have."""

    def __init__(self, root: Path, for_dpdk: tuple[str, ...] = ()) -> None:
        self._root = root.resolve()
        self.for_dpdk = for_dpdk
        self.unreadable: set[str] = set()
        is_this = self._root == Path("/")
        self.facts: Facts = Kernel() if is_this else Written(self.text(FACTS))

    def text(self, path: str) -> str:
        """What is in a file, without white space around it; nothing when it is not there."""
        found = self._inside(path)
        try:
            return found.read_text(errors="replace").strip() if found else ""
        except PermissionError:
            self.unreadable.add(f"/{path}")
        except OSError:  # some files of the kernel are there and have nothing to say
            pass
        return ""

    def word(self, path: str) -> str:
        """The first word of a file that has one."""
        return self.text(path).partition("\n")[0].split(" ")[0]

    def number(self, path: str) -> int | None:
        """The number in a file, decimal or with 0x."""
        try:
            return int(self.text(path), 0)
        except ValueError:
            return None

    def cpus(self, path: str) -> frozenset[int]:
        """The CPUs in a file such as `0-3,8`."""
        return cpu_list.parse(self.text(path))

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted."""
        found = self._inside(path)
        try:
            return sorted(os.listdir(found)) if found else []
        except PermissionError:
            self.unreadable.add(f"/{path}")
        except OSError:
            pass
        return []

    def is_there(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        found = self._inside(path)
        return found is not None and os.path.exists(found)

    def target(self, path: str) -> str | None:
        """The name that a link leads to."""
        try:
            return os.path.basename(os.readlink(self._root / path))
        except OSError:
            return None

    @cached_property
    def driver_directory(self) -> str | None:
        """Where DPDK finds its drivers; of several versions the newest."""
        found = [
            str(path.relative_to(self._root))
            for pattern in (
                "usr/lib/*/dpdk/pmds-*",
                "usr/lib*/dpdk/pmds-*",
                "usr/local/lib/*/dpdk/pmds-*",
                "usr/local/lib*/dpdk/pmds-*",
            )
            for path in self._root.glob(pattern)
        ]
        return max(
            found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.split("/")[-1])], default=None
        )

    @cached_property
    def drivers(self) -> tuple[drivers.Driver, ...]:
        """Every driver for NICs in that directory."""
        directory = self.driver_directory
        names = self.names(directory) if directory else []
        paths = [self._inside(f"{directory}/{name}") for name in names if drivers.is_for_nics(name)]
        return drivers.read_all({path for path in paths if path})

    def _inside(self, path: str) -> Path | None:
        """The file itself. A link that leads out of the root leads nowhere: another machine is there."""
        try:
            found = (self._root / path).resolve()
        except (OSError, RuntimeError, ValueError):  # links in a circle; a name that no file can have
            return None
        return found if found.is_relative_to(self._root) else None
