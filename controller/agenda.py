"""Things that are due at some time, thousands of them, behind one timer."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Agenda(Generic[T]):
    """Calls `start` with each item once it is due and `has_room` says so; in order of time."""

    def __init__(self, start: Callable[[T], None], has_room: Callable[[], bool]) -> None:
        self._start = start
        self._has_room = has_room
        self._entries: list[tuple[float, int, T]] = []
        self._numbers = count()  # items that are due at one time cannot be compared
        self._timer: asyncio.TimerHandle | None = None

    def add(self, due: float, item: T) -> None:
        """One more; `due` is a time of the event loop."""
        heapq.heappush(self._entries, (due, next(self._numbers), item))
        self.wind()

    def replace(self, entries: Iterable[tuple[float, T]]) -> None:
        """These and no others."""
        self._entries = [(due, next(self._numbers), item) for due, item in entries]
        heapq.heapify(self._entries)
        self.wind()

    def wind(self) -> None:
        """Set the timer for what is due next; to be called when there is room again."""
        wanted = self._entries[0][0] if self._entries and self._has_room() else None
        if self._timer and (wanted is None or self._timer.when() > wanted):
            self._timer.cancel()
            self._timer = None
        if wanted is not None and not self._timer:
            self._timer = asyncio.get_running_loop().call_at(wanted, self._start_due)

    def _start_due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._entries and self._entries[0][0] <= now and self._has_room():
            self._start(heapq.heappop(self._entries)[2])
        self.wind()
