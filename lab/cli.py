"""`maglev lab`: the laboratory from the command line."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

import click
from rich.console import Console

from lab import laboratory, machine, report, scenario
from lab.laboratory import Say
from lab.namespaces import LabError
from lab.nodes import WORK
from lab.topology import TUNNEL_MTU

P = ParamSpec("P")


@contextmanager
def _progress(title: str, quiet: bool = False) -> Iterator[Say]:
    """A line on stderr that says what is going on; nothing when quiet."""
    console = Console(stderr=True, quiet=quiet)
    with console.status(title) as status:

        def say(what: str) -> None:
            console.print(f"[dim]{what}[/dim]")
            status.update(f"{title}: {what}")

        yield say


def _one_sentence(function: Callable[P, None]) -> Callable[P, None]:
    """Turn a LabError into a sentence and exit status 1; let SIGTERM unwind, so that cleanups run."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            with machine.alone():
                function(*args, **kwargs)
        except LabError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


@click.group()
def lab() -> None:
    """The laboratory: client, BGP router, two nodes and backends in network namespaces of this machine."""


@lab.command()
@click.option(
    "--tunnel-mtu",
    type=click.IntRange(1280, 9216),
    default=TUNNEL_MTU,
    show_default=True,
    help="MTU of the links of nodes and backends; below 1524 a full packet does not fit the tunnel.",
)
@_one_sentence
def up(tunnel_mtu: int) -> None:
    """Build the lab and start everything in it."""
    machine.require()
    if laboratory.is_up():
        click.echo("The lab is up already.")
        return
    with _progress("lab up") as say:
        laboratory.up(say, tunnel_mtu)
    click.echo(f"The lab is up; its logs and configurations are in {WORK}. For instance:")
    click.echo("  ip netns exec maglev-lab-client curl -s http://192.0.2.1/")
    click.echo(f"  MAGLEV_RUN_DIR={WORK}/run maglev status --node lb1")


@lab.command()
@_one_sentence
def down() -> None:
    """Remove every trace of the lab, also after a crash."""
    machine.require()
    laboratory.down()


@lab.command()
@click.option("--requests", type=click.IntRange(min=60), default=10_000, show_default=True, help="First step.")
@click.option("--connections", type=click.IntRange(min=1), default=200, show_default=True, help="Later steps.")
@click.option("--keep", is_flag=True, help="Leave a lab up that this run brought up.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress.")
@_one_sentence
def run(requests: int, connections: int, keep: bool, as_json: bool) -> None:
    """Play the scenario: spread, membership, a dead backend, a dead forwarder, a drain.

    Brings the lab up if it is not, and then takes it down again.
    Exit status 0 only if every expectation was met.
    """
    machine.require()
    was_up = laboratory.is_up()
    try:
        with _progress("lab run", quiet=as_json) as say:
            (laboratory.reset if was_up else laboratory.up)(say)
            steps = scenario.play(scenario.Size(requests, connections), say)
    finally:
        if not (was_up or keep):
            laboratory.down()
    if as_json:
        click.echo(json.dumps(report.document(steps), indent=2))
    else:
        Console().print(report.view(steps))
    if any(step.unmet for step in steps):
        sys.exit(1)


if __name__ == "__main__":
    lab()
