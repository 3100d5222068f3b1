"""Whole nodes, from receive to transmit, beside the same port with the packets only passed through, in one run.

Ports: net_null makes packets of nothing, net_ring gives back what was sent to it, and on both a receive callback lays
the next frame of the traffic; on memif a source on another CPU sends. Rounds of all cases alternate; figures are
medians over the rounds, ratios medians of the rounds' own ratios.

Time is that of turns that had packets, so a slow source and an idle CPU are in no figure.

Layout `rss` is measured with one worker, whose lane does it all. Layout `software` is measured twice: all stages on
one lcore in turns, each turn timed, so that the sum is what a packet costs in CPU; and each stage on its lcore, as in
a forwarder, where the slowest one and the CPUs they share decide.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perf import lcores, testpmd
from perf.instructions import count, require_valgrind
from perf.results import Law, Results, finish, options, steps

if TYPE_CHECKING:
    from perf._bench import Bench, Node, Source

ROUNDS = 7
SECONDS = 0.15  # of a window
FLOWS = 1 << 17
SIZE = 96  # without check sequence: the 100-byte packets of the paper
OPENING_RATE = 1e6
KNOWN = 0.99  # share of the packets that must have met their flow's entry
PAPER_MPPS = 9.06  # Maglev, NSDI 2016, section 5.2: one worker, 100-byte packets, no upper limit by the NIC
RUN_TO_COMPLETION = 1.25  # workers that a node may cost beyond its port where one lcore does it all
LAYOUTS = ("software", "rss")
TESTPMD_SECONDS = 5
COUNTED_TURNS = 512
BURST = 64
STAGES = {"steering": "steering_turn", "workers": "worker_turn", "muxing": "muxing_turn"}
COUNTED = {
    "software, steering, receive included": "steering_turn",
    "of these the traffic's frames": "lay_frames",
    "software, worker": "worker_turn",
    "software, muxing, transmit included": "muxing_turn",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to use a port. `lay` false: frames are left as the port made them."""

    name: str
    mode: str
    lay: bool = True


BARE = Mode("pass-through, bare", "pass", lay=False)
PASS = Mode("pass-through", "pass")
TURNS = Mode("software, in turns", "turns")
STAGED = Mode("software, staged", "stages")
LANE = Mode("rss, one lane", "turns")


@dataclass(slots=True)
class Rig:
    """A port with a node on it, and its source where it needs one."""

    name: str
    node: Node
    modes: tuple[Mode, ...]
    source: Source | None = None

    def window(self, mode: Mode, seconds: float) -> dict[str, float]:
        """Figures of one window at full speed."""
        where = [lcores.STAGES + i for i in range(3)] if mode.mode == "stages" else [lcores.NODE]
        self.node.start(mode.mode, where, lay=mode.lay)
        if self.source is not None:
            self.source.start(0)
        time.sleep(seconds)
        sent = self.source.stop() if self.source is not None else None
        got = self.node.stop()
        lcores.let_others_run(seconds)
        assert got["known"] >= KNOWN * got["forwarded"] > 0, f"{self.name}, {mode.name}: flows were not known: {got}"
        assert sent is not None or got["dropped"] == 0, f"{self.name}, {mode.name}: packets were dropped: {got}"
        ns = got["turn_ns"] or got["seconds"] / got["forwarded"] * 1e9
        stages = {f"{stage}_ns": float(got[f"{stage}_ns"]) for stage in STAGES}  # type: ignore[literal-required]
        return {"ns": ns, **(stages if mode is TURNS else {})}


def rigs(stack: ExitStack, flows: int, size: int) -> list[Rig]:
    """All ports, flows open."""
    from perf._bench import Node, Source

    def node(port: str, idle: str = "spin", layout: str = "software") -> Node:
        made = Node(port=port, traffic="hit", flows=flows, size=size, idle=idle, layout=layout)
        stack.callback(made.close)
        return made

    shared = lcores.shared(1)
    null = Rig("net_null", node("net_null0"), (BARE, PASS, TURNS, *(() if shared else (STAGED,))))
    ring = Rig("net_ring", node("net_ring0", "yield" if shared else "spin"), (BARE, PASS, TURNS, STAGED))
    lanes = [Rig(rig.name, node(f"{rig.name}1", layout="rss"), (LANE,)) for rig in (null, ring)]
    for rig in (null, ring, *lanes):
        rig.node.open_flows()
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    memifs = []
    for number, (layout, modes) in enumerate((("software", (PASS, TURNS)), ("rss", (LANE,)))):
        link = f"socket={directory}/{number},socket-abstract=no,id={number}"
        memif = Rig("memif", node(f"net_memif{2 * number},role=server,{link}", layout=layout), modes)
        memif.source = Source(memif.node, lcores.SOURCE, f"net_memif{2 * number + 1},role=client,{link}")
        stack.callback(memif.source.close)
        open_flows(memif.node, memif.source)
        memifs.append(memif)
    return [null, ring, *lanes, *memifs]


def open_flows(node: Node, source: Source) -> None:
    """By a source: every flow's first packet, and one a second later."""
    for first in (True, False):
        node.start("turns", [lcores.NODE])
        source.open_flows(OPENING_RATE, first=first)
        node.stop()


def measure(results: Results, bench: Bench, ports: Sequence[Rig]) -> None:
    """All rounds; rows and laws go into `results`."""
    seen: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    worker = []
    for _ in steps(range(ROUNDS), lambda number: f"round {number + 1} of all ports"):
        worker.append(bench.run(4000)["worker_ns"])
        for port in ports:
            for mode in port.modes:
                seen[port.name, mode.name].append(port.window(mode, SECONDS))
    results.rows.append(row("worker alone", [{"ns": ns} for ns in worker], None))
    for port in ports:
        for mode in port.modes:
            passed = None if mode is BARE else seen[port.name, PASS.name]
            results.rows.append(row(f"{port.name}, {mode.name}", seen[port.name, mode.name], passed))
    judge(results, statistics.median(worker), seen)


def row(case: str, rounds: Sequence[dict[str, float]], passed: Sequence[dict[str, float]] | None) -> dict[str, Any]:
    """Medians of one case."""
    made: dict[str, Any] = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    made |= {"case": case, "mpps": 1e3 / made["ns"], "pass_ns": None, "ratio": None}
    if passed is not None:
        made["pass_ns"] = statistics.median(one["ns"] for one in passed)
        made["ratio"] = statistics.median(
            one["ns"] / beside["ns"] for one, beside in zip(rounds, passed, strict=True)
        )
    return made


def judge(results: Results, worker: float, seen: dict[tuple[str, str], list[dict[str, float]]]) -> None:
    """What the rings cost, and what the paper's bar says."""
    bar = 1e3 / PAPER_MPPS
    results.laws.append(Law(f"one worker keeps up with the paper's {PAPER_MPPS} Mpps (ns per packet)", worker, bar))
    for port in ("net_null", "net_ring"):
        turns = seen[port, TURNS.name]
        passed = statistics.median(one["ns"] for one in seen[port, PASS.name])
        inside = {stage: statistics.median(one[f"{stage}_ns"] for one in turns) for stage in STAGES}
        rings = inside["steering"] + inside["muxing"] - passed
        results.notes.append(
            f"{port}, software in turns: {passed:.1f} ns are the port's, {inside['workers']:.1f} the worker's, "
            f"and {rings:.1f} what steering, muxing and the rings between them add: "
            f"{rings / inside['workers']:.2f} times the worker."
        )
        lane = statistics.median(one["ns"] for one in seen[port, LANE.name])
        text = f"{port}, rss: ns per packet, at most those of pass-through and {RUN_TO_COMPLETION} workers"
        results.laws.append(Law(text, lane, passed + RUN_TO_COMPLETION * worker))


def beside_testpmd(results: Results, *, hugepages: bool) -> None:
    """The same ports under testpmd, which lays no frames."""
    if not testpmd.installed():
        results.notes.append("dpdk-testpmd is not installed (apt-get install dpdk-dev): not measured beside it.")
        return
    cases = [(device, forward) for device in ("net_null0", "net_ring0") for forward in ("io", "macswap")]
    for device, forward in steps(cases, lambda case: f"testpmd {case[1]} on {case[0]}"):
        ns = 1e9 / testpmd.rate(device, forward, TESTPMD_SECONDS, hugepages=hugepages)
        results.rows.append(row(f"{device[:-1]}, testpmd {forward}", [{"ns": ns}], None))


def rates(asked: argparse.Namespace) -> int:
    """Measure, write, print."""
    results = Results(
        "node",
        {"rounds": ROUNDS, "seconds": SECONDS, "flows": asked.flows, "size": asked.size, "layouts": LAYOUTS}
        | {"realtime": asked.realtime, "hugepages": asked.hugepages},
        {"case": "case", "mpps": "Mpps", "ns": "ns", "pass_ns": "pass ns", "ratio": "ratio"}
        | {"steering_ns": "steering ns", "workers_ns": "worker ns", "muxing_ns": "muxing ns"},
    )
    lcores.start_node(realtime=asked.realtime, hugepages=asked.hugepages)
    from perf._bench import Bench

    with ExitStack() as stack:
        ports = rigs(stack, asked.flows, asked.size)
        bench = Bench(traffic="hit", flows=asked.flows, size=asked.size)
        stack.callback(bench.close)
        measure(results, bench, ports)
    beside_testpmd(results, hugepages=asked.hugepages)
    if lcores.shared(1):
        results.notes.append(
            f"With {len(lcores.CPUS)} CPUs steering and muxing share one: `staged` takes turns by yielding, "
            "and is measured on net_ring only, where packets go round and nothing is lost meanwhile."
        )
    return finish(results, asked)


def instructions(asked: argparse.Namespace) -> int:
    """Instructions per packet of each stage, by callgrind."""
    require_valgrind()
    lcores.require_bench()
    results = Results(
        "node-instructions",
        {"turns": COUNTED_TURNS, "port": "net_ring"},
        {"case": "case", "instructions": "instructions per packet"},
    )
    for case, function in steps(list(COUNTED.items()), lambda one: one[0]):
        total = count(function, "node_step", "perf.node", ["--count"])
        results.rows.append({"case": case, "instructions": total / (COUNTED_TURNS * BURST)})
    return finish(results, asked)


def run_counted() -> int:
    """What callgrind watches: turns of a node over net_ring."""
    lcores.start_node()
    from perf._bench import Node

    node = Node(port="net_ring0", traffic="hit", flows=1 << 12, size=SIZE)
    node.open_flows()
    got = node.step(COUNTED_TURNS)
    node.close()
    assert got["forwarded"] == got["known"] == COUNTED_TURNS * BURST, got
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="maglev bench node", description=__doc__)
    given: Any = sys.argv[1:] if argv is None else argv
    options(parser, "node-instructions" if "--instructions" in given else "node")
    lcores.options(parser)
    parser.add_argument("--instructions", action="store_true", help="count each stage's instructions by callgrind")
    parser.add_argument("--flows", type=int, default=FLOWS, help="a power of two")
    parser.add_argument("--size", type=int, default=SIZE, help="of frames, without the check sequence's 4 bytes")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    if asked.count:
        return run_counted()
    return instructions(asked) if asked.instructions else rates(asked)


if __name__ == "__main__":
    sys.exit(main())
