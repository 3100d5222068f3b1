"""Instructions per packet, counted by callgrind: the same in every run, on a machine however busy.

The program is run once more under valgrind, which counts inside one function only, from the moment on that another
one is entered: what was done before, to open the flows, is not counted. Valgrind has no AVX-512, so code that chooses
by CPU takes its AVX2 path; DPDK of Debian is built without either.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SUMMARY = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def require_valgrind() -> None:
    """End with a sentence when it is not there."""
    if shutil.which("valgrind") is None:
        sys.exit("Instructions are counted by valgrind, which is not installed: apt-get install valgrind")


def count(function: str, since: str, module: str, arguments: Sequence[str]) -> int:
    """Instructions in `function` and what it calls, after `since` was entered, while `python -m module` runs.

    Raises RuntimeError with the end of what was said when the run fails, or when the function never ran.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={function}"]
        valgrind += [f"--zero-before={since}", f"--callgrind-out-file={out}"]
        command = [*valgrind, sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"callgrind over {module} failed: {' '.join(done.stderr.split()[-40:])}")
        found = SUMMARY.search(out.read_text())
    if found is None or int(found[1]) == 0:
        raise RuntimeError(f"callgrind saw no instruction in {function}")
    return int(found[1])
