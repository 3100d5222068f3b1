"""Runs fuzz targets, as many at once as there are CPUs, and says what came of each: exit status 1 on a finding.

`run.py SECONDS TARGET...`: a target is a program in build/fuzz/bin/ or fuzz_TARGET.py beside this file. What is worth
keeping goes to build/fuzz/, so that a later run goes on where this one ended.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BUILD = Path("build/fuzz")
LONGEST_INPUT_SECONDS = 10  # one that takes longer is a finding


@dataclass(frozen=True)
class Result:
    """What one target did. `reproducers` are the inputs of its findings."""

    target: str
    failed: bool
    executions: int
    rate: int
    corpus: int
    reproducers: list[str]

    def __str__(self) -> str:
        return (
            f"{self.target:<12} {self.executions:>11} executions {self.rate:>8}/s   corpus {self.corpus:>5}   "
            f"findings {max(int(self.failed), len(self.reproducers))}"
        )


def log_of(target: str) -> Path:
    """Everything that a target's fuzzer printed."""
    return BUILD / f"{target}.log"


def fuzz(target: str, seconds: int) -> Result:
    """Run one target to its end or its first finding."""
    script = HERE / f"fuzz_{target}.py"
    program = [sys.executable, str(script)] if script.exists() else [str(BUILD / "bin" / target)]
    corpus, findings = BUILD / "corpus" / target, BUILD / "findings"
    for directory in (corpus, findings):
        directory.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", f"-timeout={LONGEST_INPUT_SECONDS}", "-rss_limit_mb=2048"]
    options = ["-print_final_stats=1", f"-artifact_prefix={findings}/{target}-"]
    with log_of(target).open("wb") as log:
        done = subprocess.run(
            ["nice", *program, *limits, *options, str(corpus), str(HERE / "corpus" / target)],
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = log_of(target).read_text(errors="replace")
    return Result(
        target,
        done.returncode != 0,
        _statistic(said, "number_of_executed_units"),
        _statistic(said, "average_exec_per_sec"),
        sum(1 for _ in corpus.iterdir()) + sum(1 for _ in (HERE / "corpus" / target).iterdir()),
        re.findall(r"Test unit written to (\S+)", said),
    )


def _statistic(said: str, name: str) -> int:
    found = re.search(rf"^stat::{name}:\s*(\d+)", said, re.MULTILINE)
    return int(found[1]) if found else 0


def main() -> int:
    """Exit status: 0 when nothing was found."""
    seconds, targets = int(sys.argv[1]), sys.argv[2:]
    failed = False
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for result in pool.map(lambda target: fuzz(target, seconds), targets):
            print(result, flush=True)
            if result.failed:
                failed = True
                print(f"  {log_of(result.target)} says what happened; {' '.join(result.reproducers)} makes it happen")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
