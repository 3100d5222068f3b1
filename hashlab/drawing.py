"""How all pictures of the laboratory look, and where they go."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

mpl.use("Agg")
mpl.rcParams.update(
    {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.titlesize": 12,
        "axes.axisbelow": True,
        "font.size": 10,
        "legend.frameon": False,
        "svg.hashsalt": "maglev",  # the same picture is the same file
        "svg.fonttype": "none",
    }
)

BLUE, GREY, ORANGE, GREEN, RED, DARK = "#2563a8", "#b8bfc7", "#e08a1e", "#3a8f5c", "#b5443c", "#30363d"
WIDTH = 9.0


def panels(height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])


def save(figure: Figure, directory: Path, name: str) -> list[Path]:
    """As PNG and as SVG; the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=120, metadata=metadata)
    return paths
