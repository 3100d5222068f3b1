"""The controller's end of the lease: tells ExaBGP's helper the whole set of routes, again and again."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controller.tasks import background, end

log = structlog.get_logger(__name__)

LONGEST_PERIOD = 0.2
LINE_LIMIT = 4 << 20
"""A greeting of the helper names every route."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the helper said last; `announced` is None when it is fresh and cannot know."""

    sequence: int
    announced: frozenset[str] | None
    errors: int
    sessions: Mapping[str, str]
    """By neighbor: "up" or "down - REASON"; those that were heard of (a helper of an earlier version: none)."""


class LeaseServer:
    """Listens for the helper. The newest connection counts: an older helper is dead or dying."""

    def __init__(self, path: Path, lease: float) -> None:
        self._path = path
        self._period = min(LONGEST_PERIOD, lease / 5)
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._renewals: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._message: dict[str, Any] | None = None
        self._sequence = 0
        self._beat = 0
        self._heard = time.monotonic()
        self.greeting: Report | None = None
        self.report: Report | None = None

    @property
    def connected(self) -> bool:
        """Whether a helper listens."""
        return self._writer is not None

    @property
    def silent_for(self) -> float:
        """Seconds since the helper last confirmed anything; ExaBGP has answered it by then."""
        return time.monotonic() - self._heard

    def excuse(self, patience: float = 0.0) -> None:
        """Count its silence from now on, or from so many seconds on: it was just started."""
        self._heard = time.monotonic() + patience

    async def start(self) -> None:
        """Listen, and renew whatever is wanted."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LINE_LIMIT)
        os.chmod(self._path, 0o660)
        self._renewals = background(self._renew(), "renew lease")

    async def close(self) -> None:
        """Stop renewing; the lease runs out by itself."""
        await end(self._renewals)
        if self._server:
            self._server.close()
            if self._writer:
                self._writer.transport.abort()
            await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    def want(self, routes: Mapping[str, str], known: Collection[str]) -> None:
        """Announce exactly these {prefix: next hop}; sent at once and renewed."""
        wish = {"announce": dict(sorted(routes.items())), "known": sorted({*known, *routes})}
        if self._message and all(self._message[key] == value for key, value in wish.items()):
            return
        self._sequence += 1
        self._message = {"sequence": self._sequence, **wish}
        self._send()

    async def greeted(self, within: float) -> Report | None:
        """What the helper said when it first connected, or None when it did not in that time."""
        await self._until(lambda: self.greeting is not None, within)
        return self.greeting

    async def settled(self, within: float) -> bool:
        """Whether the helper confirms the newest wish in that time."""
        return await self._until(lambda: self.report is not None and self.report.sequence == self._sequence, within)

    async def _until(self, holds: Callable[[], bool], within: float) -> bool:
        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(holds)
        except TimeoutError:
            return False
        return True

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            self._beat += 1
            self._send()

    def _send(self) -> None:
        # A helper that does not read is not fed: the buffer would only hold wishes that are out of date.
        if self._writer and self._message and self._writer.transport.get_write_buffer_size() == 0:
            self._writer.write(json.dumps({**self._message, "beat": self._beat}).encode() + b"\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._writer:
            self._writer.transport.abort()
        self._writer = writer
        self.report = None
        self._send()
        try:
            while line := await reader.readline():
                await self._take(line)
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("lease helper cut off", error=repr(error))
        finally:
            writer.transport.abort()
            if self._writer is writer:
                self._writer = self.report = None

    async def _take(self, line: bytes) -> None:
        said = json.loads(line)
        announced = said["announced"]
        routes = None if announced is None else frozenset(announced)
        report = Report(said["sequence"], routes, said["errors"], dict(said.get("sessions", {})))
        if self.report and report.errors > self.report.errors:
            log.error("ExaBGP refused a command", errors=report.errors)
        self.excuse()
        async with self._changed:
            self.greeting = self.greeting or report
            self.report = report
            self._changed.notify_all()
