"""What the operator has said over the configuration's head; kept over reloads and controller crashes."""

from __future__ import annotations

import json
from pathlib import Path

from controller.rundir import read_json, write_private


class Overrides:
    """Backends that drain, and whether the whole node does. Written down at every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = read_json(path)
        stored = stored if isinstance(stored, dict) else {}
        drained = stored.get("drained")
        self.drained = frozenset(map(str, drained)) if isinstance(drained, list) else frozenset[str]()
        self.drain_self = stored.get("drain_self") is True

    def drain(self, backend: str) -> None:
        """Let a backend take no new flows."""
        self.drained |= {backend}
        self._store()

    def undrain(self, backend: str) -> None:
        """Take that back."""
        self.drained -= {backend}
        self._store()

    def set_drain_self(self, drain: bool) -> None:
        """Withdraw everything, or take that back."""
        self.drain_self = drain
        self._store()

    def _store(self) -> None:
        write_private(self._path, json.dumps({"drained": sorted(self.drained), "drain_self": self.drain_self}))
