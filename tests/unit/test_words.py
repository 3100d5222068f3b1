"""Every command with wrong, missing and extra words: a usage line on stderr, nothing on stdout, status 2, and no
wait.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from controller.cli import maglev

WAIT = 10.0
"""Seconds that no command takes for this, whatever else the machine does; without load each takes a fifth of one."""
FILLED = {"CONFIG": "configs/maglev.yaml", "PERCENT": "5"}


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that lead to it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*path, name))


COMMANDS = dict(leaves(maglev))
OWN_WORDS = {path: command for path, command in COMMANDS.items() if path[0] != "bench"}
"""Those of bench belong to the benchmarks."""


def arguments(command: click.Command) -> list[click.Argument]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Argument)]


def required(command: click.Command) -> list[str]:
    return [str(argument.name) for argument in arguments(command) if argument.required]


def refused(*words: str) -> str:
    """What a real command says on stderr."""
    argv = [sys.executable, "-m", "controller.cli", *words]
    ended = subprocess.run(
        argv, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert ended.stderr.lower().startswith("usage:")
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_option_that_is_not_there(path: tuple[str, ...]) -> None:
    refused(*path, "--nosuch")


@pytest.mark.parametrize("path", [p for p, command in OWN_WORDS.items() if required(command)], ids=" ".join)
def test_a_word_that_is_missing(path: tuple[str, ...]) -> None:
    assert "Missing argument" in refused(*path)
    *given, _ = required(COMMANDS[path])
    assert "Missing argument" in refused(*path, *(FILLED["CONFIG"] for _ in given))


@pytest.mark.parametrize(
    "path", [p for p, command in OWN_WORDS.items() if all(a.nargs == 1 for a in arguments(command))], ids=" ".join
)
def test_a_word_too_many(path: tuple[str, ...]) -> None:
    words = [FILLED["CONFIG"] for _ in arguments(COMMANDS[path])]
    assert "unexpected extra argument" in refused(*path, *words, "extra")


@pytest.mark.parametrize(
    "words",
    [
        ("nosuch",),
        ("statsu",),
        ("bench", "nosuch"),
        ("hashing", "nosuch"),
        ("lab", "nosuch"),
        ("drain",),
        ("drain", "web1", "--self"),
        ("undrain",),
        ("flush",),
        ("flush", "web1", "--self"),
        ("lookup",),
        ("lookup", "--live", "tcp"),
        ("lookup", FILLED["CONFIG"], "tcp", "198.51.100.7", "http", "192.0.2.1", "80"),
        ("lookup", FILLED["CONFIG"], "icmp", "198.51.100.7", "1", "192.0.2.1", "80"),
        ("lookup", FILLED["CONFIG"], "tcp", "198.51.100", "1", "192.0.2.1", "80"),
        ("table", FILLED["CONFIG"], "nosuch"),
        ("check", "nosuch.yaml"),
        ("check", "."),
        ("doctor", "nosuch.yaml"),
        ("doctor", "--nic", "eth0"),
        ("doctor", "--root", "nosuch"),
        ("replay", FILLED["CONFIG"], "in", "out", "--workers", "0"),
        ("explain", FILLED["CONFIG"], "in", "--workers", "many"),
        ("--nosuch",),
    ],
    ids=" ".join,
)
def test_words_that_do_not_fit(words: tuple[str, ...]) -> None:
    argv = [sys.executable, "-m", "controller.cli", *words]
    ended = subprocess.run(
        argv, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert ended.stderr
    assert "Traceback" not in ended.stderr


def test_no_word_at_all_shows_what_there_is() -> None:
    assert "Commands:" in refused()
