"""What DPDK's memory is made of in a benchmark: hugepages, as on a server, or ordinary pages of 4 KB."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forwarder.hugepages import Hugepages

MEMINFO, RESERVED = Path("/proc/meminfo"), Path("/proc/sys/vm/nr_hugepages")


def option(parser: argparse.ArgumentParser, *, default: bool) -> None:
    """Which of the two."""
    parser.add_argument(
        "--hugepages",
        action=argparse.BooleanOptionalAction,
        default=default,
        help="memory in hugepages, as on a server; root borrows what is missing from the kernel (default: "
        f"{'yes' if default else 'no, pages of 4 KB'})",
    )


def arguments(megabytes: int, *, hugepages: bool) -> list[str]:
    """DPDK's, for so much memory, and for no more of the machine than a benchmark needs."""
    kind = ["--in-memory"] if hugepages else ["--no-huge", "--no-shconf"]
    return [*kind, "--no-pci", "--no-telemetry", "-m", str(megabytes)]


@contextmanager
def borrowed(megabytes: int) -> Iterator[None]:
    """Have so much free in hugepages while memory is taken; what is missing, root adds.

    Afterwards the kernel has its old number to keep: pages that a process has beyond it are gone with the process,
    however that ends. Ends this process with a sentence when there are too few.
    """
    pages, before = Hugepages.read(MEMINFO.read_text()), RESERVED.read_text()
    add = pages.shortage(megabytes) is not None and os.geteuid() == 0
    try:
        if add:
            RESERVED.write_text(str(pages.wanted(megabytes)))
            pages = Hugepages.read(MEMINFO.read_text())
        if shortage := pages.shortage(megabytes):
            sys.exit(f"{shortage}, or say --no-hugepages.")
        yield
    finally:
        if add:
            RESERVED.write_text(before)
