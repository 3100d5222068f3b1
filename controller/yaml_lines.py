"""YAML that remembers where things stand, and refuses what plain YAML takes in silence.

Built on libyaml's events rather than on PyYAML's constructor, so that a hostile file is stopped while it is
read: nothing is expanded, and only plain values come out. Scalars follow YAML 1.2: `yes`, `012` and
`12:34:56` are text, not a truth, an octal and a number in base 60.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

import yaml

from controller.config_errors import ConfigError, KeyPath, Problem, dotted

MAX_BYTES = 8 << 20
MAX_NODES = 500_000
MAX_DEPTH = 32
MAX_ALIASES = 1000

_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Longer runs of digits are keys and identifiers, not quantities: they stay text.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Document:
    """The values of one file, the line of every key, and the problems that did not stop the reading."""

    file: str
    value: object
    lines: Mapping[KeyPath, int]
    problems: tuple[Problem, ...]

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem at `path`, or at the nearest key above it that the file has."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        return Problem(self.file, self.lines.get(known, 1), dotted(path), message)


def read(path: Path) -> Document:
    """The document of a file; raises ConfigError when it cannot be read to its end."""
    file = str(path)
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe or a device could keep the reader for ever
            raise ConfigError([Problem(file, 0, "", "is not a regular file; write the path of one")])
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise ConfigError([Problem(file, 0, "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(file, line, "", "is not UTF-8; write it as UTF-8 text")]) from error
    if len(raw) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES >> 20} MiB; write a smaller file"
        raise ConfigError([Problem(file, 0, "", message)])
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """The document in `text`; raises ConfigError when it cannot be read to its end."""
    try:
        return _Reader(text, file).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"is not YAML: {error.problem}" + (f" ({error.context})" if error.context else "")
        raise ConfigError([Problem(file, mark.line + 1 if mark else 0, "", message)]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([Problem(file, line, "", f"is not YAML: {error.reason}")]) from error


class _Reader:
    """Turns the events of one stream into plain values, counting as it goes."""

    def __init__(self, text: str, file: str) -> None:
        self._parser = yaml.CSafeLoader(text)
        self._file = file
        self._lines: dict[KeyPath, int] = {}
        self._problems: list[Problem] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._nodes = 0
        self._aliases = 0

    def document(self) -> Document:
        self._next()
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            raise ConfigError([Problem(self._file, 0, "", "is empty; write a configuration")])
        value = self._value((), self._next())
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            self._note((), after, "a second document begins here; write one document in one file")
        return Document(self._file, value, self._lines, tuple(self._problems))

    def _next(self) -> yaml.Event:
        event = self._parser.get_event()
        assert event is not None, "the stream was read past its end"
        return event

    def _problem(self, path: KeyPath, event: yaml.Event, message: str) -> Problem:
        return Problem(self._file, _line(event), dotted(path), message)

    def _note(self, path: KeyPath, event: yaml.Event, message: str) -> None:
        self._problems.append(self._problem(path, event, message))

    def _stop(self, path: KeyPath, event: yaml.Event, message: str) -> ConfigError:
        return ConfigError([*self._problems, self._problem(path, event, message)])

    def _value(self, path: KeyPath, event: yaml.Event) -> object:
        """The value that begins with `event`, read to its end."""
        self._lines.setdefault(path, _line(event))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(path, event)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        before = self._nodes
        self._count(path, event, 1)
        if len(path) > MAX_DEPTH:
            raise self._stop(path[:3], event, f"is nested deeper than {MAX_DEPTH} levels; write it flatter")
        if event.tag is not None:
            self._note(path, event, f"has the tag {_short(event.tag)}; write the value without a tag")
        value: object
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        else:
            value = self._mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._sequence(path)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _count(self, path: KeyPath, event: yaml.Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            message = f"is beyond {MAX_NODES} values, aliases counted in full; write fewer"
            raise self._stop(path, event, message)

    def _alias(self, path: KeyPath, event: yaml.AliasEvent) -> object:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise self._stop(path, event, f"is alias number {MAX_ALIASES + 1}; write the values out")
        if event.anchor not in self._anchors:
            message = f"uses *{event.anchor}, which is not complete above; write the value out"
            raise self._stop(path, event, message)
        value, size = self._anchors[event.anchor]
        self._count(path, event, size)
        return value

    def _sequence(self, path: KeyPath) -> list[object]:
        values: list[object] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._value((*path, len(values)), event))
        return values

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, usable = self._key(path, event)
            here = (*path, key)
            if key in values:
                message = f"is given twice, first on line {self._lines[here]}; write it once"
                self._note(here, event, message)
                usable = False
            elif usable:
                self._lines[here] = _line(event)
            value = self._value(here, self._next())
            if usable:
                values[key] = value
        return values

    def _key(self, path: KeyPath, event: yaml.Event) -> tuple[str, bool]:
        """The key that begins with `event`, and whether it is one that a configuration may have."""
        if isinstance(event, yaml.ScalarEvent):
            key = event.value
            text = isinstance(_scalar(event), str)
        else:
            key, text = "?", False
            self._value((*path, key), event)
        here = (*path, key)
        if not text:
            self._note(here, event, "is a key that is not text; write the key in quotes")
        elif isinstance(event, yaml.ScalarEvent) and (event.tag or event.anchor):
            self._note(here, event, "is a key with a tag or an anchor; write the key alone")
        elif key == "<<":
            self._note(here, event, "is a merge key; write the keys out")
        else:
            return key, True
        return key, False


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "libyaml marks every event"
    return event.start_mark.line + 1


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _scalar(event: yaml.ScalarEvent) -> object:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FRACTION.fullmatch(text) else text
