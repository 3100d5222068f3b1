"""Run a program that locks no pid file of its own: `python -m controller.locked_exec PID_FILE ARGV...`.

The pid is written and locked, then the program replaces this one; pid and lock stay.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from controller.pid_file import AlreadyLockedError, PidFile


def main(arguments: list[str]) -> int:
    """Lock the pid file and become the program; returns only when that failed."""
    path, *argv = arguments
    try:
        PidFile(Path(path)).lock(inheritable=True)
        os.execv(argv[0], argv)
    except (AlreadyLockedError, OSError) as error:
        print(f"cannot start {argv[0]}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
