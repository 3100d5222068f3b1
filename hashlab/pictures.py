"""What `maglev hashing compare` draws: how even the schemes are, and what changes move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hashlab.compare import Row
from hashlab.drawing import BLUE, DARK, GREY, RED, panels, save


def comparison(rows: Sequence[Row], settings: dict[str, Any], directory: Path) -> list[Path]:
    """Both pictures; where they are."""
    return [*_balance(rows, settings, directory), *_disruption(rows, settings, directory)]


def _balance(rows: Sequence[Row], settings: dict[str, Any], directory: Path) -> list[Path]:
    """A dot for each node."""
    figure, (axes,) = panels(1.6 + 0.38 * len(rows))
    scatter = np.random.default_rng(1)  # up and down only, so that dots do not hide each other
    for y, row in enumerate(rows):
        jitter = scatter.uniform(-0.28, 0.28, len(row.loads))
        axes.plot(row.loads, y + jitter, ".", color=BLUE, alpha=0.45, markersize=4, markeredgewidth=0)
        axes.text(
            1.01, y, f"{row.balance.largest:.2f}", va="center", color=DARK, transform=axes.get_yaxis_transform()
        )
    axes.axvline(1, color=GREY, zorder=0)
    axes.set_xlabel("load of a node, divided by its fair share (right: the largest)")
    axes.set_title(f"How even: {settings['keys']:,} keys over {settings['nodes']} nodes, a dot each")
    _names(axes, rows)
    return save(figure, directory, "balance")


def _disruption(rows: Sequence[Row], settings: dict[str, Any], directory: Path) -> list[Path]:
    """Bars: what had to move, and what moved besides."""
    changes = settings["changes"]
    if not changes:
        return []
    figure, axes = panels(1.8 + 0.32 * len(rows), len(changes))
    for number, (panel, text) in enumerate(zip(axes, changes, strict=True)):
        needed = [row.changes[text].needed * 100 for row in rows]
        extra = [row.changes[text].extra * 100 for row in rows]
        at = range(len(rows))
        panel.barh(at, needed, color=GREY, label="had to move")
        panel.barh(at, extra, left=needed, color=RED, label="moved besides")
        for y, (one, more) in enumerate(zip(needed, extra, strict=True)):
            panel.text(one + more, y, f" {one + more:.1f}" + (f" ({more:.2g} besides)" if more else ""),
                       va="center", fontsize=8)  # fmt: skip
        panel.set_xlim(0, 1.45 * max(map(sum, zip(needed, extra, strict=True))))
        panel.set_title(text)
        panel.set_xlabel("% of all keys")
        _names(panel, rows)
        if number:
            panel.tick_params(labelleft=False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return save(figure, directory, "disruption")


def _names(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_yticks(range(len(rows)), [row.scheme for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
