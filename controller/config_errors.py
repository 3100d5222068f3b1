"""What is wrong with a configuration, said so that it can be mended: file, line, key, what to write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

KeyPath = tuple[str | int, ...]
"""The way to a value from the top of the file: mapping keys and list positions."""

_LONGEST_QUOTE = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake; `line` is 0 when the file as a whole is meant, `key` is empty for the top of the file."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigError(Exception):
    """A configuration that is refused, with every problem that was found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.key, p.message)))
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: KeyPath) -> str:
    """The path as it is printed: `vips[0].port`."""
    text = ""
    for part in path:
        if isinstance(part, str) and not part.isprintable():
            part = json.dumps(part)
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def show(value: object) -> str:
    """A value from the file as a message quotes it: short, and never a whole section."""
    match value:
        case None:
            return "empty"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            quoted = json.dumps(value, ensure_ascii=False)
            return quoted if len(quoted) <= _LONGEST_QUOTE else quoted[:_LONGEST_QUOTE] + '..."'
        case _:
            return json.dumps(value)


def one_from(known: Sequence[str]) -> str:
    """The choices in words: `a, b or c`."""
    return known[0] if len(known) == 1 else ", ".join(known[:-1]) + " or " + known[-1]


def instead_of(word: str, known: Iterable[str], otherwise: str) -> str:
    """The known word that `word` was probably meant to be, else all of them if few, else `otherwise`."""
    choices = sorted(known)
    if close := get_close_matches(word, choices, n=1):
        return close[0]
    return one_from(choices) if 0 < len(choices) <= 16 else otherwise
