"""`maglev explain`: what becomes of each packet of a capture, and why, told by the stages that `maglev replay` runs.

One line per packet in the order of the capture, also where a packet meets its fate after later ones did. Settings and
state come as JSON on stdin.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from forwarder._capture import CaptureError, CaptureReader
from forwarder._dataplane import FATES, REASONS, DataplaneError
from forwarder.replay import Replay, Trace
from forwarder.settings import Refused, Settings, parse
from forwarder.state_message import StateRefused

Names = dict[int, str]

FATE_WIDTH = max(map(len, FATES))


def in_order(batches: Iterable[list[Trace]]) -> Iterator[Trace]:
    """Traces in the order of their packets: one that comes late is waited for, and those behind it with it."""
    early: dict[int, Trace] = {}
    following = 0
    for batch in batches:
        early.update((trace[0], trace) for trace in batch)
        while (trace := early.pop(following, None)) is not None:
            yield trace
            following += 1


class Lines:
    """A packet's line: a JSON object, or a row of a table for people. Each kind of line is put together once."""

    def __init__(self, vips: Names, backends: Names, as_json: bool) -> None:
        self._vips, self._backends = vips, backends
        self._vip_width = max(map(len, ("vip", *vips.values())))
        self._backend_width = max(map(len, ("backend", *backends.values())))
        self._as_json = as_json
        self._rest = cache(self._object if as_json else self._row)

    def head(self) -> str:
        """What stands above the lines."""
        return "" if self._as_json else f"  index  {self._columns('fate', 'vip', 'backend', 'reason')}"

    def line(self, trace: Trace) -> str:
        """The line of one packet."""
        index, reason, vip, backend = trace
        rest = self._rest(reason, vip, backend)
        return f'{{"index": {index}, {rest}' if self._as_json else f"{index:>7}  {rest}"

    def _object(self, reason: str, vip: int | None, backend: int | None) -> str:
        fields = {
            "fate": REASONS[reason][0],
            "reason": reason,
            "vip": None if vip is None else self._vips[vip],
            "backend": None if backend is None else self._backends[backend],
        }
        return json.dumps(fields).removeprefix("{") + "\n"

    def _row(self, reason: str, vip: int | None, backend: int | None) -> str:
        fate, words = REASONS[reason]
        names = "-" if vip is None else self._vips[vip], "-" if backend is None else self._backends[backend]
        return self._columns(fate, *names, words)

    def _columns(self, fate: str, vip: str, backend: str, words: str) -> str:
        return f"{fate:<{FATE_WIDTH}}  {vip:<{self._vip_width}}  {backend:<{self._backend_width}}  {words}\n"


def _batches(run: Replay, packets: CaptureReader) -> Iterator[list[Trace]]:
    for _ in run.steps(packets):
        for _ in run.sent():
            pass  # makes room for the next
        yield run.traces()


def explain(
    settings: Settings, state: dict[str, Any], source: Path, out: TextIO, as_json: bool = False, workers: int = 1
) -> None:
    """Write the line of every packet of the capture `source`. Raises CaptureError, after what could be told."""
    packets = CaptureReader(str(source))
    run = Replay(settings, state, workers, trace=True)
    try:
        lines = Lines(*run.names(), as_json)
        out.write(lines.head())
        told = 0
        for trace in in_order(_batches(run, packets)):
            out.write(lines.line(trace))
            told += 1
        if told < run.received:
            raise CaptureError(f"{run.received - told} packets met no fate, the first of them is {told}")
    finally:
        run.close()


def _explain(arguments: argparse.Namespace) -> int:
    asked = json.load(sys.stdin)
    try:
        settings = parse(asked["settings"])
        explain(settings, asked["state"], arguments.source, sys.stdout, arguments.json, arguments.workers)
    except (CaptureError, DataplaneError, Refused, StateRefused) as error:
        sys.stdout.flush()  # what could be told comes first
        print(f"maglev explain: {error}", file=sys.stderr)
        return 1
    sys.stdout.flush()
    return 0


def main() -> int:
    """`python -m forwarder.explain IN.pcap [--json] [--workers N]`; returns the exit status, 1 for a bad capture."""
    parser = argparse.ArgumentParser(prog="maglev explain", description="What becomes of each packet of a capture.")
    parser.add_argument("source", type=Path, metavar="IN.pcap")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--workers", type=int, default=1, choices=range(1, 33), metavar="N")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _explain(arguments)
    except OSError as error:
        # Else the interpreter writes once more when it ends, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # whoever reads has seen enough
        print(f"maglev explain: cannot write: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
