"""The pictures of docs/hashing.md."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.axes import Axes

from hashlab import pictures
from hashlab.articles import game_servers, karger, maglev_paper, swift
from hashlab.drawing import BLUE, DARK, GREEN, GREY, ORANGE, RED, panels, save
from hashlab.figures import Figures


def draw(figures: Figures, directory: Path) -> list[Path]:
    """All of them; where they are."""
    paths = [path for one in DRAWN for path in one(figures, directory)]
    settings = {"keys": 1_000_000, "nodes": 100, "changes": list(figures.compared[0].changes)}
    return paths + pictures.comparison(figures.compared, settings, directory)


def one_node_more(figures: Figures, directory: Path) -> list[Path]:
    """Why the remainder is ruinous."""
    moves = figures.moves
    rows = [
        ("hash mod n", moves.modulo, RED),
        ("ranges of hashes", moves.ranges, ORANGE),
        ("1000 virtual nodes", moves.vnodes, GREEN),
        ("what the new node must get", swift.IDS / (swift.NODES + 1), GREY),
    ]
    figure, (axes,) = panels(2.6)
    for y, (name, moved, colour) in enumerate(rows):
        axes.barh(y, moved / swift.IDS * 100, color=colour)
        axes.text(moved / swift.IDS * 100, y, f" {moved:,.0f} ids ({moved / swift.IDS:.2%})", va="center")
        axes.text(-0.01, y, name, va="center", ha="right", transform=axes.get_yaxis_transform())
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 125)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel("% of ten million ids that move when 100 nodes become 101")
    axes.set_title("One node more")
    return save(figure, directory, "one-node-more")


def ring_of_two(figures: Figures, directory: Path) -> list[Path]:
    """Karger's ring, before and after virtual nodes."""
    figure, axes = panels(4.6, len(figures.karger))
    for panel, (points, drawn) in zip(axes, figures.karger.items(), strict=True):
        _ring(panel, drawn)
        counts = [sum(owner == cache for _, owner in drawn.objects) for cache in range(len(karger.CACHES))]
        each = "one point each" if points == 1 else f"{points} virtual nodes each"
        panel.set_title(f"{each}: {counts[0]} and {counts[1]} objects")
    return save(figure, directory, "ring")


def _ring(axes: Axes, drawn: karger.Drawn) -> None:
    colours = (BLUE, ORANGE)

    def at(fraction: float, radius: float) -> tuple[float, float]:
        return radius * sin(2 * pi * fraction), radius * cos(2 * pi * fraction)

    previous = drawn.points[-1][0] - 1
    for place, owner in drawn.points:
        arc = np.linspace(previous, place, 100)
        axes.plot(np.sin(2 * pi * arc), np.cos(2 * pi * arc), color=colours[owner], linewidth=5, alpha=0.35,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot(*at(place, 1), "o", color=colours[owner], markersize=13)
        axes.text(*at(place, 1), karger.CACHES[owner][-1], color="white", ha="center", va="center", fontsize=8)
        previous = place
    for number, (place, owner) in enumerate(drawn.objects, 1):
        axes.plot(*at(place, 1), "D", color=colours[owner], markersize=8, markeredgecolor="white")
        axes.text(*at(place, 1.22), f"object {number}", ha="center", va="center", color=colours[owner])
    axes.annotate("", at(0.03, 0.62), at(0.97, 0.62),
                  arrowprops={"arrowstyle": "->", "color": DARK, "connectionstyle": "arc3,rad=-0.2"})  # fmt: skip
    axes.text(0, 0.5, "a key goes on clockwise\nto the next cache", ha="center", va="top", color=DARK, fontsize=9)
    shares = [
        f"cache {c[-1]}: {share:.0%} of the circle" for c, share in zip(karger.CACHES, drawn.shares, strict=True)
    ]
    axes.text(0, -0.3, "\n".join(shares), ha="center", va="center", color=DARK, fontsize=9)
    axes.set_aspect("equal")
    axes.set_xlim(-1.5, 1.5)
    axes.set_ylim(-1.35, 1.35)
    axes.axis("off")


def points_even_out(figures: Figures, directory: Path) -> list[Path]:
    """What virtual nodes mend, and how slowly."""
    figure, (axes,) = panels(3.6)
    fair = game_servers.IDS / game_servers.NODES
    points = list(figures.deviations)
    measured = [figures.deviations[one] / fair * 100 for one in points]
    axes.plot(points, [100 / one**0.5 for one in points], "--", color=GREY, label="1 / sqrt(points)")
    axes.plot(points, measured, "-o", color=BLUE, label="measured: 500,000 ids over 50 nodes")
    for one in (160, 1280):
        place = (one, figures.deviations[one] / fair * 100)
        axes.annotate(f"{one} points: sd {figures.deviations[one]:.0f} of {fair:.0f}", place, (-8, -14),
                      textcoords="offset points", ha="right", color=BLUE)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(points, [str(one) for one in points])
    axes.minorticks_off()
    axes.set_yticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
    axes.set_xlabel("points of each node on the circle")
    axes.set_ylabel("standard deviation, % of the mean")
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title("Virtual nodes even out, by the square root")
    return save(figure, directory, "points")


def ten_nodes_more(figures: Figures, directory: Path) -> list[Path]:
    """Bounded loads when nodes come."""
    shown = {bound: figures.growth[bound] for bound in ("none", "1.0")}
    figure, axes = panels(3.8, len(shown))
    for panel, (bound, growth) in zip(axes, shown.items(), strict=True):
        at = np.arange(len(growth.new))
        before = growth.after - growth.new
        panel.bar(at, before, width=0.9, color=GREY, label="500,000 ids that stay")
        panel.bar(at, growth.new, bottom=before, width=0.9, color=BLUE, label="100,000 new ids")
        panel.axhline(growth.after.mean(), color=DARK, linewidth=1, linestyle=":")
        words = "No bound" if bound == "none" else "Bounded at the mean"
        panel.set_title(f"{words}: {growth.to_new_nodes:.0%} to the new ten")
        panel.set_ylim(0, 15000)
        panel.set_xlabel(f"node; the fullest is {growth.overload:.0%} over the mean")
    axes[0].set_ylabel("ids")
    axes[1].tick_params(labelleft=False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return save(figure, directory, "ten-nodes-more")


def provisioning(figures: Figures, directory: Path) -> list[Path]:
    """Why a ring still needs large tables."""
    figure, axes = panels(3.4, 2)
    for panel, size in zip(axes, maglev_paper.SIZES, strict=True):
        for x, name in enumerate(("maglev", "ring", "rendezvous")):
            seeds = [one * 100 for one in figures.provisioning[name, size]]
            panel.bar(x, mean(seeds), width=0.6, color=GREEN if name == "maglev" else BLUE, alpha=0.8)
            panel.plot([x] * len(seeds), seeds, ".", color=DARK, markersize=4)
            panel.text(x + 0.33, max(mean(seeds), 1), f"{mean(seeds):.2g}", va="center")
            if (name, size) in maglev_paper.PAPER_PROVISIONING:
                paper = maglev_paper.PAPER_PROVISIONING[name, size] * 100
                label = "in the paper" if x == 1 else None
                panel.plot(x, paper, "D", color=ORANGE, markeredgecolor="white", label=label)
        panel.set_xticks(range(3), ["Maglev", "ring, 1000 points", "rendezvous"])
        panel.set_ylim(0, 55)
        panel.set_title(f"{size:,} slots")
        panel.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("over-provisioning needed, %")
    axes[0].legend(loc="upper left")
    return save(figure, directory, "provisioning")


def failures(figures: Figures, directory: Path) -> list[Path]:
    """What Maglev trades."""
    figure, (axes,) = panels(3.4)
    for size, colour in zip(maglev_paper.SIZES, (ORANGE, GREEN), strict=True):
        extra = [figures.extra[size, failures] * 100 for failures in maglev_paper.FAILURES]
        axes.plot(maglev_paper.FAILURES, extra, "-o", color=colour, label=f"{size:,} slots")
        for failed, one in zip(maglev_paper.FAILURES, extra, strict=True):
            above = 7 if colour == ORANGE else -16
            axes.annotate(
                f"{one:.2f}", (failed, one), (0, above), textcoords="offset points", ha="center", color=colour
            )
    axes.set_xticks(maglev_paper.FAILURES)
    axes.set_ylim(0, 3.3)
    axes.set_xlabel("of 1000 backends fail at once")
    axes.set_ylabel("slots moved besides, %")
    axes.grid(alpha=0.3)
    axes.legend(loc="center right")
    axes.set_title("Maglev moves a little more than it must; a larger table, less")
    return save(figure, directory, "failures")


def overview(figures: Figures, directory: Path) -> list[Path]:
    """How even against what a failure moves besides: the choice in one picture."""
    figure, (axes,) = panels(4.2)
    for row in figures.compared:
        x, y = (row.balance.largest - 1) * 100, row.changes["remove:1"].extra * 100
        history = row.scheme in ("vnode", "partition", "sticky")
        axes.plot(max(x, 0.1), y, "o", color=GREY if history else BLUE, markersize=8)
        offset = OFFSETS.get(row.scheme, (7, 5))
        axes.annotate(row.scheme, (max(x, 0.1), y), offset, textcoords="offset points", color=DARK, fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(-0.03, 200)
    axes.set_yticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.minorticks_off()
    axes.set_xlabel("the fullest of 100 nodes, % over its share (a million keys: chance alone makes 2 to 3)")
    axes.set_ylabel("moved besides, % of keys,\nwhen one node leaves")
    axes.grid(alpha=0.3)
    axes.set_title("Down and left is better; grey ones need a history that nodes would have to share")
    return save(figure, directory, "overview")


OFFSETS = {"rendezvous": (-72, 5), "vnode": (4, 12), "partition": (12, -14), "bounded-maglev": (8, -12),
           "maglev": (-14, 9), "modulo": (8, -4), "ring": (-6, -15), "ketama": (8, 2),
           "bounded": (-30, 10)}  # fmt: skip
DRAWN: tuple[Callable[[Figures, Path], list[Path]], ...] = (
    *(one_node_more, ring_of_two, points_even_out, provisioning, failures, ten_nodes_more, overview),
)
