"""One picture per benchmark, drawn from what its result file says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perf.machine import title

mpl.use("Agg")

BLUE, GREY, ORANGE, GREEN, RED = "#2563a8", "#b8bfc7", "#e08a1e", "#3a8f5c", "#b5443c"
WIDTH = 10.0
Written = dict[str, Any]


def draw(written: Written, path: Path) -> None:
    """The picture of a run."""
    DRAWN[written["benchmark"]](written, path)


def worker(written: Written, path: Path) -> None:
    """Bars of nanoseconds beside those of the floor."""
    rows = written["results"]
    figure, axes = _bars(len(rows) * 2)
    at = range(len(rows))
    axes.barh([y - 0.2 for y in at], [r["ns"] for r in rows], 0.4, color=BLUE, label="worker")
    axes.barh([y + 0.2 for y in at], [r["floor_ns"] for r in rows], 0.4, color=GREY, label="memory floor")
    for y, row in zip(at, rows, strict=True):
        axes.text(row["ns"], y - 0.2, f" {row['ratio']:.2f} x floor", va="center", fontsize=8)
    axes.set_xlim(right=max(r["ns"] for r in rows) * 1.2)
    _names(axes, rows)
    axes.set_xlabel("ns per packet")
    axes.legend(loc="lower right")
    _save(figure, written, path, "One worker: time per packet beside what memory alone costs")


def instructions(written: Written, path: Path) -> None:
    """Bars of instructions."""
    rows = written["results"]
    figure, axes = _bars(len(rows))
    bars = axes.barh(range(len(rows)), [r["instructions"] for r in rows], color=BLUE)
    axes.bar_label(bars, fmt=" %.0f", fontsize=8)
    _names(axes, rows)
    axes.set_xlabel("instructions per packet")
    _save(figure, written, path, "Instructions per packet, counted by callgrind")


def node(written: Written, path: Path) -> None:
    """Bars: what the port costs alone, and what the node adds to it."""
    rows = [row for row in written["results"] if row["ns"] is not None]
    figure, axes = _bars(len(rows))
    for y, row in enumerate(rows):
        if row["case"] == "worker alone":
            axes.barh(y, row["ns"], color=GREEN, label="the worker alone")
            axes.text(row["ns"], y, f" {row['mpps']:.2f} Mpps", va="center", fontsize=8)
            continue
        passed = row["pass_ns"] if row["pass_ns"] is not None else row["ns"]
        axes.barh(y, min(passed, row["ns"]), color=GREY, label="packets only passed through" if y == 1 else None)
        axes.barh(
            y, max(row["ns"] - passed, 0), left=passed, color=BLUE, label="the node beyond it" if y == 1 else None
        )
        axes.text(row["ns"], y, f" {row['mpps']:.2f} Mpps", va="center", fontsize=8)
    axes.set_xlim(right=max(r["ns"] for r in rows) * 1.15)
    _names(axes, rows)
    axes.set_xlabel("ns per packet (on one lcore, or between packets leaving)")
    axes.legend(loc="lower right")
    _save(figure, written, path, f"Whole nodes, frames of {written['settings']['size'] + 4} bytes")


def latency(written: Written, path: Path) -> None:
    """Delay against load, a line per percentile."""
    figure, axes = _panel(5.5)
    rows = written["results"]
    kinds = (("node", "-", "o"), ("forwarder", "--", "s"))
    for key, colour in (("median_us", GREEN), ("p99_us", BLUE), ("p999_us", ORANGE), ("longest_us", RED)):
        for who, line, marker in kinds:
            mine = [row for row in rows if row["who"] == who and not row["idle"]]
            label = f"{written['columns'][key].removesuffix(' us')}, {who if who == 'node' else 'plain forwarder'}"
            load, delay = [row["load"] for row in mine], [row[key] for row in mine]
            axes.plot(load, delay, line, marker=marker, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_xlabel(f"load, % of the zero-loss rate ({written['settings']['zero_loss_mpps']:.2f} Mpps)")
    axes.set_ylabel("delay, microseconds")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    _save(figure, written, path, "Delay from source to sink through a node and through a plain forwarder")


def zeroloss(written: Written, path: Path) -> None:
    """Rates against frame size, and the line rate of Ethernet beside them."""
    figure, axes = _panel(5.5)
    rows = written["results"]
    sizes = [row["size"] for row in rows]
    axes.plot(sizes, [row["mpps"] for row in rows], "-", marker="o", color=BLUE, label="node, no packet lost")
    if all(row["forwarder_mpps"] is not None for row in rows):
        axes.plot(
            sizes, [row["forwarder_mpps"] for row in rows], "-", marker="s", color=GREY, label="plain forwarder"
        )
    for gigabits, style in ((10, ":"), (25, "--")):
        line = [gigabits * 1e3 / ((size + 20) * 8) for size in sizes]
        axes.plot(sizes, line, style, color=ORANGE, label=f"line rate of {gigabits} Gbit/s")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
    axes.set_xlabel("frame size, bytes, check sequence included")
    axes.set_ylabel("million packets per second")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, written, path, f"Highest rate without loss (source: {written['settings']['source']})")


def ports(written: Written, path: Path) -> None:
    """Bars of packets per second."""
    rows = written["results"]
    figure, axes = _bars(len(rows))
    bars = axes.barh(range(len(rows)), [row["mpps"] for row in rows], color=BLUE)
    axes.bar_label(bars, labels=[f" {row['ratio']:.2f} x af_packet" for row in rows], fontsize=8)
    axes.margins(x=0.2)
    _names(axes, rows)
    axes.set_xlabel("million packets per second")
    _save(figure, written, path, "A node on a veth, by driver")


def scale(written: Written, path: Path) -> None:
    """A panel per thing that grows."""
    rows = written["results"]
    axis_names = list(dict.fromkeys(row["axis"] for row in rows))
    figure = Figure(figsize=(WIDTH, 6.5), layout="constrained")
    for number, name in enumerate(axis_names, 1):
        axes = figure.add_subplot(2, 3, number)
        mine = [row for row in rows if row["axis"] == name]
        x = [row["x"] for row in mine]
        axes.plot(x, [row["ns"] for row in mine], "-", marker="o", color=BLUE, label="worker")
        axes.plot(x, [row["floor_ns"] for row in mine], "-", marker="s", color=GREY, label="memory floor")
        if min(x) > 0 and max(x) / min(x) > 10:
            axes.set_xscale("log")
        else:
            axes.set_xticks([tick for i, tick in enumerate(x) if i == 0 or tick - x[i - 1] > 0.05 * max(x)])
        axes.set_ylim(bottom=0)
        axes.set_xlabel(name)
        axes.set_ylabel("ns per packet")
        axes.grid(alpha=0.3)
        if number == 1:
            axes.legend(fontsize=8)
    _save(figure, written, path, "Cost of a packet against what grows")


def tables(written: Written, path: Path) -> None:
    """Bars of milliseconds beside those of the straightforward loop, a panel per table size."""
    rows = written["results"]
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    figure = Figure(figsize=(WIDTH, 6.5), layout="constrained")
    for number, size in enumerate(sizes, 1):
        axes = figure.add_subplot(len(sizes), 1, number)
        mine = [row for row in rows if row["size"] == size]
        at = range(len(mine))
        axes.barh([y - 0.2 for y in at], [r["ms"] for r in mine], 0.4, color=BLUE, label="this build")
        reference = [r["reference_ms"] for r in mine]
        axes.barh([y + 0.2 for y in at], reference, 0.4, color=GREY, label="a loop with one % per probe")
        for y, row in zip(at, mine, strict=True):
            axes.text(row["ms"], y - 0.2, f" {row['ratio']:.2f} x", va="center", fontsize=8)
        axes.set_xlim(right=max(reference) * 1.3)
        _names(axes, mine)
        axes.set_xlabel("milliseconds")
        if number == 1:
            axes.legend(loc="lower right", fontsize=8)
    _save(figure, written, path, "Building a Maglev table")


def control(written: Written, path: Path) -> None:
    """Bars of seconds."""
    rows = written["results"]
    figure, axes = _bars(len(rows) * 2)
    bars = axes.barh(range(len(rows)), [row["seconds"] for row in rows], color=BLUE)
    axes.bar_label(bars, fmt=" %.2f", fontsize=8)
    _names(axes, rows)
    axes.set_xlabel("seconds")
    settings = written["settings"]
    _save(
        figure, written, path, f"{settings['vips']} vips, {settings['backends']} backends: what an operator waits for"
    )


def health(written: Written, path: Path) -> None:
    """Bars of lateness, on a scale that has room for the one probe that was late."""
    rows = written["results"]
    figure, axes = _bars(len(rows) * 3)
    percentiles = (("late_p50_ms", GREEN, "median"), ("late_p99_ms", BLUE, "99 %"), ("late_max_ms", RED, "most"))
    for number, (key, colour, label) in enumerate(percentiles):
        at = [y + (number - 1) * 0.27 for y in range(len(rows))]
        axes.barh(at, [row[key] for row in rows], 0.27, color=colour, label=label)
    for y, row in enumerate(rows):
        axes.text(row["late_max_ms"], y + 0.27, f" {row['cores']:.2f} cores", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(row["late_max_ms"] for row in rows) * 3)
    _names(axes, rows)
    axes.set_xlabel("milliseconds from the moment a probe is due to the moment it begins")
    axes.legend(loc="lower right", fontsize=8)
    _save(figure, written, path, f"Health checks of one process, every {written['settings']['interval']:g} s")


def _bars(count: int) -> tuple[Figure, Axes]:
    return _panel(1.6 + 0.24 * count)


def _panel(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _names(axes: Axes, rows: list[dict[str, Any]]) -> None:
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows])
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _save(figure: Figure, written: Written, path: Path, heading: str) -> None:
    figure.suptitle(f"{heading}\n", fontsize=13)
    figure.text(0.5, 0.995 - 0.32 / figure.get_figheight(), title(written), ha="center", va="top", fontsize=8)
    figure.savefig(path, dpi=130)


DRAWN: dict[str, Callable[[Written, Path], None]] = {
    "worker": worker,
    "instructions": instructions,
    "node-instructions": instructions,
    "node": node,
    "latency": latency,
    "zeroloss": zeroloss,
    "ports": ports,
    "scale": scale,
    "tables": tables,
    "control": control,
    "health": health,
}
