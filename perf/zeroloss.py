"""The highest rate that loses no packet, per frame size: the binary search of RFC 2544.

The source is our own, with a node in the same process, or one that sends to a running node from another machine: then
that node's counters say what it forwarded. A plain forwarder over the same port is searched for beside our own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from perf import lcores
from perf.results import Results, finish, options, steps
from perf.search import Trial, highest_rate
from perf.sources import Counted, Source
from perf.sources.kernel_pktgen import KernelPktgen
from perf.sources.own import OwnSource, layout_option
from perf.sources.pktgen_dpdk import PktgenDpdk
from perf.sources.running_node import RunningNode

SIZES = (64, 128, 256, 512, 1024, 1280, 1518)  # RFC 2544, section 9.1: Ethernet, check sequence included
RESOLUTION = 0.02
SECONDS = 0.2
TRIES = 3
SETTLE_SECONDS = 1.0  # for a running node: from the source's last packet until its counters are read


def trial_of(source: Source, counted: Counted, size: int, seconds: float, settle: float) -> Callable[[float], Trial]:
    """A trial at a rate, as the search wants it."""

    def trial(rate: float) -> Trial:
        before = counted.forwarded()
        source.start(rate, size)
        time.sleep(seconds)
        sent = source.stop()
        time.sleep(settle)
        return Trial(sent, counted.forwarded() - before)

    return trial


def search(source: Source, counted: Counted, size: int, asked: argparse.Namespace) -> float:
    """Packets per second without loss; begins a little above what is forwarded under overload."""
    settle = 0.0 if isinstance(counted, OwnSource) else SETTLE_SECONDS
    trial = trial_of(source, counted, size, asked.seconds, settle)
    flood = trial(0)
    highest = min(flood.sent, flood.forwarded * 1.3) / asked.seconds
    return highest_rate(trial, highest, RESOLUTION, asked.tries, asked.tolerate)


def own(asked: argparse.Namespace, results: Results) -> None:
    """Node and plain forwarder in this process, size by size."""
    lcores.start_node(realtime=asked.realtime, hugepages=asked.hugepages)
    for size in steps(asked.sizes, lambda size: f"{size} bytes"):
        rates = {}
        for mode in ("turns", "plain"):
            both = OwnSource(asked.port, mode, asked.layout)
            try:
                rates[mode] = search(both, both, size, asked)
            finally:
                both.close()
        results.rows.append(row(size, rates["turns"], rates["plain"]))


def foreign(asked: argparse.Namespace, results: Results) -> None:
    """A running node, and a source that is not ours."""
    source = KernelPktgen(asked) if asked.source == "kernel-pktgen" else PktgenDpdk(asked)
    counted = RunningNode(asked.node)
    for size in steps(asked.sizes, lambda size: f"{size} bytes"):
        results.rows.append(row(size, search(source, counted, size, asked), None))


def row(size: int, rate: float, forwarder: float | None) -> dict[str, Any]:
    """A row; line rate counts preamble and gap, 20 bytes."""
    beside = None if forwarder is None else forwarder / 1e6
    return {
        "case": f"{size} bytes",
        "size": size,
        "mpps": rate / 1e6,
        "gbits": rate * (size + 20) * 8 / 1e9,
        "forwarder_mpps": beside,
        "ratio": rate / forwarder if forwarder else None,
    }


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="maglev bench zeroloss", description=__doc__)
    options(parser, "zeroloss")
    lcores.options(parser)
    layout_option(parser)
    parser.add_argument("--source", choices=("own", "kernel-pktgen", "pktgen-dpdk"), default="own")
    parser.add_argument("--port", default="memory", help="own: memory, memif, veth, or NODE-DEVICE/SOURCE-DEVICE")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of frames, check sequence included")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per trial; RFC 2544 wants 60")
    parser.add_argument("--tries", type=int, default=TRIES, help="a rate passes when one of so many trials does")
    parser.add_argument("--tolerate", type=float, default=0.0, help="share of packets that may be lost")
    parser.add_argument("--node", help="of the others: the running node's name, where there are several")
    KernelPktgen.options(parser)
    PktgenDpdk.options(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    asked = arguments().parse_args(argv)
    own_source = asked.source == "own"
    source = f"own, {asked.port}" if own_source else asked.source
    settings = {"source": source, "seconds": asked.seconds, "tries": asked.tries, "tolerate": asked.tolerate}
    results = Results(
        "zeroloss",
        settings
        | {
            "resolution": RESOLUTION,
            "realtime": asked.realtime,
            "hugepages": own_source and asked.hugepages,
            "layout": asked.layout,
        },
        {"case": "frame", "mpps": "Mpps", "gbits": "Gbit/s on the wire"}
        | {"forwarder_mpps": "plain forwarder Mpps", "ratio": "ratio"},
    )
    if own_source:
        own(asked, results)
    else:
        foreign(asked, results)
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
