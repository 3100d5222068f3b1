"""Delay through a node against load, beside a plain forwarder on the same port at the same rates, in one run.

A plain forwarder exchanges each frame's MAC addresses, as testpmd's macswap does; passing through does not even look.

Source and sink are one thread on the first CPU, node or forwarder spin on the last; between them is a memory port, so
what is measured is ours: the time from a packet's offer to the port until the sink has it in hand. The load is a
share of the node's zero-loss rate, found first. The last load is as much as the source can send: then the law is that
no packet is delayed by more than pool size divided by rate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from perf import lcores
from perf.results import Law, Results, finish, options, steps
from perf.sources.own import OwnSource, layout_option
from perf.zeroloss import search

LOADS = (10, 50, 90, 100)  # per cent of the zero-loss rate
# Each packet by itself, and its flow's entry in a cache: what is left is the node's own doing.
IDLE_LOAD = 1
IDLE_FLOWS = 1024
ROUNDS = 5
SECONDS = 0.2
POOL = 16384
IDLE = 1.5  # a node with nothing to wait for, as a multiple of a plain forwarder
DRIFT = 0.1  # share of the zero-loss rate by which it may differ from beginning to end
WHO = {"node": "turns", "forwarder": "plain", "pass-through": "pass"}
DELAYS = {"median_us": "median_ns", "p99_us": "p99_ns", "p999_us": "p999_ns", "longest_us": "longest_ns"}


def window(both: OwnSource, rate: float, size: int, seconds: float) -> dict[str, Any]:
    """Delays and losses of one window."""
    before = both.forwarded()
    both.start(rate, size)
    time.sleep(seconds)
    sent = both.stop()
    forwarded = both.forwarded() - before
    delays = {key: both.delays[source] / 1e3 for key, source in DELAYS.items()}
    return {**delays, "lost": sent - forwarded, "sent": sent, "rate": forwarded / both.delays["seconds"]}


def middle(windows: Sequence[dict[str, Any]], who: str, load: int) -> dict[str, Any]:
    """A row: medians of the windows; so is the maximum a median of maxima, and the worst one stands beside it."""
    row: dict[str, Any] = {key: statistics.median(one[key] for one in windows) for key in (*DELAYS, "rate")}
    row["mpps"] = row.pop("rate") / 1e6
    row["worst_us"] = max(one["longest_us"] for one in windows)
    row["lost"] = sum(one["lost"] for one in windows) / sum(one["sent"] for one in windows)
    return {"case": f"{load} %, {who}", "who": who, "load": load, "idle": load == IDLE_LOAD, **row}


def overloaded(both: OwnSource, size: int, seconds: float, results: Results) -> None:
    """The law of the overloaded node: judged by the window that was disturbed least, since it is about the node."""
    windows = [window(both, 0, size, seconds) for _ in range(ROUNDS)]
    least = min(windows, key=lambda one: float(one["longest_us"]) * float(one["rate"]))
    bound = POOL / least["rate"] * 1e6
    results.laws.append(Law("overloaded: longest delay, us, by pool size / rate", least["longest_us"], bound))


def at_load(both: OwnSource, rate: float, load: int, size: int) -> list[dict[str, Any]]:
    """Rows of all three, in turns, at a share of this rate."""
    seen: dict[str, list[dict[str, Any]]] = {who: [] for who in WHO}
    for _ in range(ROUNDS):
        for who, mode in WHO.items():
            both.mode = mode
            seen[who].append(window(both, rate * load / 100, size, SECONDS))
    return [middle(windows, who, load) for who, windows in seen.items()]


def measure(asked: argparse.Namespace, results: Results) -> None:
    """Find the rate, then all loads."""
    with closing(OwnSource("memory", layout=asked.layout)) as both:
        rate = search(both, both, asked.size, asked)
        assert rate > 0, "no rate was without loss: is the machine busy?"
        results.settings["zero_loss_mpps"] = rate / 1e6
        for load in steps(LOADS, lambda load: f"{load} % of {rate / 1e6:.2f} Mpps"):
            results.rows += at_load(both, rate, load, asked.size)
        both.mode = WHO["node"]
        again = search(both, both, asked.size, asked)
        results.settings["zero_loss_mpps_at_the_end"] = again / 1e6
        if abs(again - rate) > DRIFT * rate:
            results.notes.append(
                f"The zero-loss rate was {rate / 1e6:.2f} Mpps at the beginning and {again / 1e6:.2f} at the end: "
                "loads are not quite what they are called."
            )
        overloaded(both, asked.size, SECONDS, results)
    with closing(OwnSource("memory", layout=asked.layout, flows=IDLE_FLOWS)) as both:
        results.rows = at_load(both, rate, IDLE_LOAD, asked.size) + results.rows
    judge(results)


def judge(results: Results) -> None:
    """What a node adds, and whether that is little while it is idle."""
    for load in (IDLE_LOAD, *LOADS):
        node, forwarder, _ = (row for row in results.rows if row["load"] == load)
        added = [f"{node[key] - forwarder[key]:.2f}" for key in DELAYS]
        if load == IDLE_LOAD:
            times = node["median_us"] / forwarder["median_us"]
            text = f"idle ({load} %, {IDLE_FLOWS} flows): median, by that of the plain forwarder"
            results.laws.append(Law(text, times, IDLE))
        results.notes.append(f"{load} %: added by the node, us: median, 99 %, 99.9 %, maximum: {', '.join(added)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench latency", description=__doc__)
    options(parser, "latency")
    lcores.options(parser)
    layout_option(parser)
    parser.add_argument("--size", type=int, default=100, help="of frames, check sequence included")
    asked = parser.parse_args(argv)
    asked.seconds, asked.tries, asked.tolerate = SECONDS, 3, 0.0
    results = Results(
        "latency",
        {"rounds": ROUNDS, "seconds": SECONDS, "size": asked.size, "port": "memory", "idle": "spin", "pool": POOL}
        | {"realtime": asked.realtime, "hugepages": asked.hugepages, "layout": asked.layout},
        {"case": "load", "mpps": "Mpps", "median_us": "median us", "p99_us": "99 % us", "p999_us": "99.9 % us"}
        | {"longest_us": "maximum us", "worst_us": "worst of all rounds us", "lost": "share lost"},
    )
    lcores.start_node(realtime=asked.realtime, hugepages=asked.hugepages)
    measure(asked, results)
    return finish(results, asked)


if __name__ == "__main__":
    sys.exit(main())
