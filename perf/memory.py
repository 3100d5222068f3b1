"""What DPDK's memory is made of in a benchmark: hugepages, as on a server, or ordinary pages of 4 KB."""

import argparse
import atexit
import os
import signal
import sys
from pathlib import Path

from forwarder.hugepages import Hugepages

ARGUMENTS = {True: ["--in-memory"], False: ["--no-huge", "--no-shconf"]}
"""Of DPDK, by whether it is hugepages."""
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


def borrow(megabytes: int) -> None:
    """Have so much free in hugepages; the kernel gets back what it had to add when this process ends.

    Ends the process with a sentence when there are too few.
    """
    pages = Hugepages.read(MEMINFO.read_text())
    if pages.shortage(megabytes) and os.geteuid() == 0:
        atexit.register(RESERVED.write_text, RESERVED.read_text())
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # which would end it without a word
        RESERVED.write_text(str(pages.wanted(megabytes)))
        pages = Hugepages.read(MEMINFO.read_text())
    if shortage := pages.shortage(megabytes):
        sys.exit(f"{shortage}, or say --no-hugepages.")
