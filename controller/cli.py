"""The command `maglev`. Exit status: 0 ok, 1 failed, 2 wrong usage or configuration (DESIGN 9)."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from controller import logs, offline, views
from controller import strict as strict_rules
from controller.api_client import ApiError, ask
from controller.bench import bench
from controller.config import Config, ConfigError, load
from controller.hashing import hashing
from controller.rundir import NoSuchNodeError, RunDir, RunDirError, find_running

FAILED = 1
WRONG = 2

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_node = click.option("--node", metavar="NAME", help="The running node to ask; default: the only one.")
_why = click.option("--why", metavar="TEXT", help="For the log and the status of the node.")
_config = click.argument("config", type=click.Path(path_type=Path, dir_okay=False))
_capture = click.argument("capture", metavar="IN.pcap", type=click.Path(path_type=Path, dir_okay=False))
_workers = click.option("--workers", type=click.IntRange(1, 32), default=1, show_default=True)


class _Percent(click.FloatRange):
    """0 to 100."""

    def __init__(self) -> None:
        super().__init__(0, 100)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """What is no number is none in the range either."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not in the range 0<=x<=100.", param, ctx)
        return number


class _Group(click.Group):
    """Loads the laboratory's commands only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "lab"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "lab":
            return super().get_command(ctx, cmd_name)
        try:
            command: click.Command = importlib.import_module("lab.cli").lab
        except ModuleNotFoundError as error:
            raise click.ClickException(f"the laboratory is not installed: {error}") from error
        return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="maglev")
def maglev() -> None:
    """A network load balancer after Google's Maglev: one node of it, and its tools."""


@maglev.command()
@_config
@click.option("--verbose", is_flag=True, help="Log what is of interest to developers only.")
def run(config: Path, verbose: bool) -> None:
    """Run the node that CONFIG describes. SIGHUP reloads it; SIGTERM withdraws, drains and ends."""
    from controller.app import StartError  # only `run` needs all of the node
    from controller.machine import obstacle
    from controller.run import serve

    loaded = _load(config)
    if sentence := obstacle(loaded):
        _fail(sentence, WRONG)
    logs.set_up(verbose=verbose)
    try:
        asyncio.run(serve(config.absolute(), loaded, RunDir(loaded.node.name)))
    except StartError as error:
        _fail(str(error), WRONG if error.wrong else FAILED)
    except RunDirError as error:
        _fail(str(error), FAILED)


@maglev.command()
@_config
@click.option("--strict", is_flag=True, help="Also warn of what is allowed but seldom wanted; any warning: status 1.")
@click.option(
    "--beside",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="OTHER",
    help="With --strict: the configuration of another node, with which this one must agree.",
)
@_as_json
def check(config: Path, strict: bool, beside: Path | None, as_json: bool) -> None:
    """Say whether CONFIG is right, and what it would serve."""
    if beside is not None and not strict:
        raise click.UsageError("--beside goes with --strict")
    loaded = _load(config)
    warned = strict_rules.warnings(config, loaded, (beside, _load(beside)) if beside else None) if strict else []
    answer = offline.check(loaded)
    if strict:
        answer["warnings"] = [asdict(problem) for problem in warned]
    _print(answer, as_json, views.check)
    if warned and not as_json:
        click.echo("\n".join(f"warning: {problem}" for problem in warned), err=True)
    if warned:
        sys.exit(FAILED)


@maglev.command()
@click.option("--dry-run", is_flag=True, help="Only say what would change, and what that would move.")
@click.option("--max-churn", metavar="PERCENT", type=_Percent(), help="Refuse to move more of any vip.")
@_node
@_as_json
def reload(dry_run: bool, max_churn: float | None, node: str | None, as_json: bool) -> None:
    """Make the running node read its configuration file anew.

    With --dry-run it says per vip which slots would move, as `maglev plan` does, and what becomes of its live flows:
    at risk are those that would lose their backend if the routers also rehashed, moved are those of them that are not
    at risk now, and lost are those that lose their backend in any case. --max-churn refuses, with exit status 1, when
    more than PERCENT of a vip's slots, or of its live flows, would move.

    \b
    Examples:
      maglev reload --dry-run
      maglev reload --max-churn 12.5
    """
    _print(_ask(node, "POST", "/reload", {"dry_run": dry_run, "max_churn": max_churn}), as_json, views.reload)


@maglev.command()
@click.argument("old", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("new", type=click.Path(path_type=Path, dir_okay=False))
@_as_json
def plan(old: Path, new: Path, as_json: bool) -> None:
    """Say what the configuration NEW in place of OLD would do, with every backend healthy.

    Per vip: the slots that move, since their backend left, to a backend that came, or besides; and their share.
    Where the table's size, the affinity or the hash key differ, flows have other slots: then there is only the share.

    \b
    Example:
      maglev plan /etc/maglev/lb1.yaml lb1-new.yaml
    """
    _print(offline.plan(_load(old), _load(new)), as_json, views.plan)


@maglev.command()
@_node
@_as_json
def status(node: str | None, as_json: bool) -> None:
    """Show the running node: vips, backends, health, announcements, counters."""
    _print(_ask(node, "GET", "/status"), as_json, views.status)


@maglev.command()
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, metavar="SECONDS")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many; default: when interrupted.")
@_node
@_as_json
def top(interval: float, count: int | None, node: str | None, as_json: bool) -> None:
    """Watch the running node: rates of fates, vips and backends, ring pointers, connections. --json: a line each."""
    from controller.top import watch  # draws; nobody else needs it

    watch(lambda: _ask(node, "GET", "/status"), interval, count, as_json)


@maglev.command()
@click.argument("backend", required=False)
@click.option("--self", "whole_node", is_flag=True, help="The node itself: withdraw all of its addresses.")
@_why
@_node
@_as_json
def drain(backend: str | None, whole_node: bool, why: str | None, node: str | None, as_json: bool) -> None:
    """Give BACKEND no new flows, and let it keep the old ones. Holds over reloads and restarts, until undrained."""
    _override("drain", backend, whole_node, why, node, as_json)


@maglev.command()
@click.argument("backend", required=False)
@click.option("--self", "whole_node", is_flag=True, help="The node itself: announce its addresses again.")
@_why
@_node
@_as_json
def undrain(backend: str | None, whole_node: bool, why: str | None, node: str | None, as_json: bool) -> None:
    """Take a drain of BACKEND back."""
    _override("undrain", backend, whole_node, why, node, as_json)


@maglev.command()
@click.argument("backend", required=False)
@click.option("--self", "whole_node", is_flag=True, help="Of the whole node: every flow that it remembers.")
@_why
@_node
@_as_json
def flush(backend: str | None, whole_node: bool, why: str | None, node: str | None, as_json: bool) -> None:
    """End the flows that BACKEND still has: their next packets go where new flows go."""
    if whole_node == (backend is not None):
        raise click.UsageError("give a BACKEND or --self")
    body = {"all": True} if whole_node else {"backend": backend}
    _print(_ask(node, "POST", "/flush", body | _word(why)), as_json, views.flushed)


@maglev.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, metavar="[CONFIG] PROTO SRC SPORT DST DPORT")
@click.option("--live", is_flag=True, help="Ask the running node instead of a CONFIG.")
@_node
@_as_json
def lookup(arguments: tuple[str, ...], live: bool, node: str | None, as_json: bool) -> None:
    """Say where a packet of this flow goes: by CONFIG, all backends healthy, or by the running node."""
    expected = 5 if live else 6
    if len(arguments) != expected:
        raise click.UsageError("give PROTO SRC SPORT DST DPORT, after a CONFIG unless --live")
    protocol, source, source_port, destination, destination_port = arguments[-5:]
    try:
        ports = int(source_port), int(destination_port)
    except ValueError as error:
        raise click.UsageError("a port is a number") from error
    if live:
        body = {"protocol": protocol, "source": source, "source_port": ports[0]}
        body |= {"destination": destination, "destination_port": ports[1]}
        answer = _ask(node, "POST", "/lookup", body)
    else:
        config = _load(Path(arguments[0]))
        try:
            answer = offline.lookup(config, protocol, source, ports[0], destination, ports[1])
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    _print(answer, as_json, views.pairs)


@maglev.command()
@_config
@click.argument("vip")
@_as_json
def table(config: Path, vip: str, as_json: bool) -> None:
    """Show the Maglev table of VIP with every backend healthy; all its slots with --json."""
    try:
        answer = offline.table(_load(config), vip)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _print(answer, as_json, views.table)


@maglev.command()
@_config
@_capture
@click.argument("output", metavar="OUT.pcap", type=click.Path(path_type=Path, dir_okay=False))
@_workers
@click.option("--json", "as_json", is_flag=True, help="For symmetry: it always prints JSON.")
def replay(config: Path, capture: Path, output: Path, workers: int, as_json: bool) -> None:
    """Run the real packet path over the capture IN.pcap; write what it would send to OUT.pcap."""
    _over_capture("forwarder.replay", config, [capture, output], [f"--workers={workers}"])


@maglev.command()
@_config
@_capture
@_workers
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def explain(config: Path, capture: Path, workers: int, as_json: bool) -> None:
    """Say of every packet of the capture IN.pcap what would become of it, and why: a line each.

    The packets go through the real packet path, as `maglev replay` runs it. Index 0 is the first packet (number 1 in
    Wireshark); vip and backend are shown as soon as the packet has matched the one and been given the other.

    \b
    Examples:
      maglev explain lb1.yaml IN.pcap | grep malformed
      maglev explain lb1.yaml IN.pcap --json | jq -r .reason | sort | uniq -c
    """
    options = [f"--workers={workers}", *(["--json"] if as_json else [])]
    _over_capture("forwarder.explain", config, [capture], options)


@maglev.command()
@click.argument("config", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--nic",
    "nics",
    multiple=True,
    metavar="ADDRESS",
    help="A NIC on PCI that DPDK shall have, beside those of CONFIG; may be repeated.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default="/",
    metavar="DIR",
    help="Look at the copy of another machine's /proc, /sys and /usr/lib in DIR.",
)
@_as_json
def doctor(config: Path | None, nics: tuple[str, ...], root: Path, as_json: bool) -> None:
    """Say whether this machine is ready for the node of CONFIG, and how to mend what is not. Status 1: with errors.

    Without a CONFIG it tells what there is, and what a node could make of it.
    """
    from controller.doctor.machine import Machine  # nobody else needs them
    from controller.doctor.pci import full_address
    from controller.doctor.subjects import diagnose
    from controller.doctor.view import show

    try:
        named = [full_address(nic) for nic in nics]
    except ValueError as error:
        raise click.UsageError(f"--nic: {error}") from error
    node = _load(config) if config else None
    ports = [port.device for port in node.forwarder.ports if port.kind == "pci"] if node else []
    answer = diagnose(Machine(root, tuple(dict.fromkeys([*ports, *named]))), node)
    _print(answer, as_json, show)
    if answer["errors"]:
        sys.exit(FAILED)


maglev.add_command(bench)
maglev.add_command(hashing)


def main() -> None:
    """The entry point of the console script."""
    maglev(prog_name="maglev")


def _load(path: Path) -> Config:
    try:
        return load(path)
    except ConfigError as error:
        _fail(str(error), WRONG)


def _over_capture(module: str, config: Path, captures: list[Path], options: list[str]) -> NoReturn:
    """Run a module of the forwarder that moves the packets of a capture; its exit status is ours."""
    argv = [sys.executable, "-m", module, *options, "--", *map(str, captures)]
    asked = json.dumps(offline.replay_request(_load(config)))
    sys.exit(subprocess.run(argv, input=asked, text=True, check=False).returncode)


def _word(why: str | None) -> dict[str, Any]:
    """Why, and for whom by sudo; who asks, the node sees by itself."""
    return {"why": why, "for": os.environ.get("SUDO_USER")}


def _override(
    verb: str, backend: str | None, whole_node: bool, why: str | None, node: str | None, as_json: bool
) -> None:
    if whole_node == (backend is not None):
        raise click.UsageError("give a BACKEND or --self")
    if whole_node:
        answer = _ask(node, "POST", "/drain-self", {"drain": verb == "drain"} | _word(why))
    else:
        answer = _ask(node, "POST", f"/{verb}", {"backend": backend} | _word(why))
    _print(answer, as_json, views.overrides)


def _ask(node: str | None, method: str, resource: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        return ask(find_running(node).controller_socket, method, resource, body)
    except NoSuchNodeError as error:
        _fail(str(error), WRONG if error.ambiguous else FAILED)
    except ApiError as error:
        _fail(str(error), WRONG if error.wrong else FAILED)


def _print(answer: dict[str, Any], as_json: bool, view: views.View) -> None:
    if as_json:
        click.echo(json.dumps(answer))
    else:
        view(answer)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
