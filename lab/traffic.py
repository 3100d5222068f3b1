"""Load from the client's namespace, as the scenario sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from lab.load import PERIOD, LongConnection, Results, Retry
from lab.namespaces import LabError
from lab.nodes import WORK
from lab.topology import CLIENT, CLIENT_ADDRESSES, PORT, VIP

LOG = WORK / "client.log"


class Traffic:
    """A running load: its long connections are open once it is made, requests go on until `finish`."""

    def __init__(
        self,
        *,
        requests: int | None = None,
        connections: int = 0,
        rate: float | None = None,
        period: float = PERIOD,
    ) -> None:
        words = [sys.executable, "-m", "lab.load", str(VIP), str(PORT), "--connections", str(connections)]
        words += ["--period", str(period)]
        words += [word for address in CLIENT_ADDRESSES for word in ("--source", str(address))]
        words += ["--requests", str(requests)] if requests is not None else []
        words += ["--rate", str(rate)] if rate is not None else []
        self._process = CLIENT.namespace.start(words, LOG, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._line()  # the long connections are open

    def __enter__(self) -> Self:
        """The load runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever happened, nothing is left running."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def finish(self) -> Results:
        """Stop, with a last exchange on every long connection, and tell what the client saw."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return _results(self._line())

    def completed(self) -> Results:
        """Wait until the given number of requests is made; for a load without long connections."""
        return _results(self._line())

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LabError(f"the client's load ended early, see {LOG}.")
        return dict(json.loads(line))


def burst(requests: int) -> Results:
    """Make this many requests now, as fast as it goes."""
    with Traffic(requests=requests) as traffic:
        return traffic.completed()


def _results(found: Mapping[str, Any]) -> Results:
    lists = {
        "retries": [Retry(**retry) for retry in found["retries"]],
        "connections": [LongConnection(**connection) for connection in found["connections"]],
    }
    return Results(**{**found, **lists})
