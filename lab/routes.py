"""When the router's kernel changes its mind about the vip, to the millisecond."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from lab.namespaces import LabError
from lab.topology import ROUTER, next_hops

POLL = 0.05  # in case a change came before the monitor listened


class RouteWatch:
    """Watches the router's routes from `with` on; `wait` tells when they became what is waited for."""

    def __enter__(self) -> Self:
        """Start listening to the kernel's announcements of changed routes."""
        self._monitor = subprocess.Popen(
            ["ip", "-n", ROUTER.full_name, "monitor", "route"], stdout=subprocess.PIPE, bufsize=0
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._monitor.kill()
        self._monitor.communicate()

    def wait(self, wanted: Callable[[frozenset[str]], bool], timeout: float, what: str) -> float:
        """Block until the vip's next hops are as wanted; returns when, in time.monotonic(), at the latest."""
        assert self._monitor.stdout is not None
        changes = self._monitor.stdout.fileno()
        deadline = time.monotonic() + timeout
        if wanted(next_hops()):
            return time.monotonic()
        while True:
            if time.monotonic() > deadline:
                raise LabError(f"the router did not see within {timeout:g} s that {what}.")
            ready, _, _ = select.select([changes], [], [], POLL)
            changed = time.monotonic()
            if ready and not os.read(changes, 65536):
                raise LabError("`ip monitor route` ended.")
            if wanted(next_hops()):
                return changed
