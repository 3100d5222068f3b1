"""What the operator has said over the configuration's head: kept over reloads, crashes and restarts of the node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.rundir import read_json, write_private


class OverrideNotKeptError(Exception):
    """The override is in force, but could not be written down; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class Word:
    """Who said it, when (seconds since 1970), and why if that was said too."""

    by: str
    at: float
    why: str | None = None


class Overrides:
    """Backends that drain, and whether the whole node does. Written down at every change; nothing said, no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = read_json(path)
        stored = stored if isinstance(stored, dict) else {}
        backends = stored.get("backends")
        words = {str(name): _word(raw) for name, raw in backends.items()} if isinstance(backends, dict) else {}
        self.backends: dict[str, Word] = {name: word for name, word in words.items() if word}
        self.node: Word | None = _word(stored.get("node"))

    @property
    def drained(self) -> frozenset[str]:
        """Names of the backends that take no new flows."""
        return frozenset(self.backends)

    @property
    def drain_self(self) -> bool:
        """Whether the node is to announce nothing."""
        return self.node is not None

    def drain(self, backend: str, word: Word) -> None:
        """Let a backend take no new flows. The first word stands. Raises OverrideNotKeptError, as all of these do."""
        self.backends.setdefault(backend, word)
        self._store()

    def undrain(self, backend: str) -> None:
        """Take that back."""
        self.backends.pop(backend, None)
        self._store()

    def drain_node(self, word: Word) -> None:
        """Let the node withdraw everything. The first word stands."""
        self.node = self.node or word
        self._store()

    def undrain_node(self) -> None:
        """Take that back."""
        self.node = None
        self._store()

    def as_json(self) -> dict[str, Any]:
        """{"backends": {name: {"by", "at", "why"}}, "node": the same or null}."""
        backends = {name: asdict(word) for name, word in sorted(self.backends.items())}
        return {"backends": backends, "node": asdict(self.node) if self.node else None}

    def _store(self) -> None:
        try:
            if self.backends or self.node:
                self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                write_private(self._path, json.dumps(self.as_json()))
                return
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise OverrideNotKeptError(
                f"this is in force, but will not outlive the node: cannot write {self._path}: {error.strerror}"
            ) from error
        with suppress(OSError):  # other files may be there
            self._path.parent.rmdir()


def _word(raw: Any) -> Word | None:
    """A word as it was stored; anything else is none."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("at"), int | float):
        return None
    why = raw.get("why")
    return Word(str(raw.get("by")), float(raw["at"]), None if why is None else str(why))
