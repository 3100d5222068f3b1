"""`maglev bench`: the benchmarks of a checkout, each a program of its own, since it takes DPDK for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

CHECKOUT = Path(__file__).resolve().parents[1]
BENCHMARKS = {
    "worker": "Nanoseconds per packet of one worker, beside the memory floor; --instructions counts those.",
    "node": "Whole nodes, beside the same ports with packets only passed through.",
    "latency": "Delay through a node, idle and at 10 to 100 % of its zero-loss rate, beside a plain forwarder.",
    "zeroloss": "The highest rate without loss, per frame size.",
    "ports": "A node on a veth under af_packet and under af_xdp, beside each other.",
    "scale": "Cost of a packet against flows, vips, backends, workers, new flows.",
    "compare": "Two result files side by side.",
    "control": "A large configuration, from the file to the forwarder.",
    "health": "Thousands of health checks from one process: are they on time, at which cost.",
    "tables": "How long Maglev tables take to build.",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def bench() -> None:
    """Benchmarks; each has options of its own, see maglev bench NAME --help. They run from a checkout."""


def _add(name: str, what: str) -> None:
    @bench.command(
        name,
        help=what,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        sys.exit(run(name, arguments))


def run(name: str, arguments: tuple[str, ...]) -> int:
    """One benchmark to its end; its exit status."""
    if not (CHECKOUT / "perf" / f"{name}.py").exists():
        raise click.ClickException(f"the benchmark {name} is not installed: run this from a checkout of the project")
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.getenv("PYTHONPATH")]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
    }  # nothing from where the user happens to be
    argv = [sys.executable, "-m", f"perf.{name}", *arguments]
    return subprocess.run(argv, env=environment, check=False).returncode


for _name, _what in BENCHMARKS.items():
    _add(_name, _what)
