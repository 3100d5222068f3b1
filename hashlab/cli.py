"""What stands behind the words of `maglev hashing compare`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hashlab import compare, request
from hashlab.compare import Row
from hashlab.keys import md5_keys


def run(
    schemes: Sequence[str],
    nodes: str,
    weights: str,
    keys: int,
    changes: Sequence[str],
    seed: int,
    as_json: bool,
    pictures: Path | None,
) -> None:
    """Measure and print. Raises ValueError with what to write instead."""
    asked = [request.scheme(text) for text in schemes or request.DEFAULT_SCHEMES]
    members = request.nodes(nodes, weights)
    wanted = [request.change(text) for text in changes or request.default_changes(len(members))]
    for one in wanted:
        one.apply(members, Random(seed))  # what cannot be done is said at once
    draw = _drawer() if pictures else None
    with _progress() as progress:
        hashing = progress.add_task("keys", total=keys)
        made = md5_keys(keys, progress=lambda done: progress.advance(hashing, done))
        measuring = progress.add_task("schemes", total=len(asked))

        def next_scheme(text: str) -> None:
            progress.update(measuring, description=text)
            progress.advance(measuring)

        found = compare.rows(asked, members, made, wanted, seed, next_scheme)
    texts = [one.text for one in wanted]
    settings = {"nodes": len(members), "weights": weights, "keys": keys, "changes": texts, "seed": seed}
    if as_json:
        print(json.dumps({"settings": settings, "schemes": compare.as_json(found)}, indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else 160).print(compare.table(found, texts))
        print(f"{keys} keys over {len(members)} nodes; max, min and sd are of loads divided by the fair one")
    if draw is not None and pictures is not None:
        for path in draw(found, settings, pictures):
            print(path, file=sys.stderr)


def _drawer() -> Callable[[Sequence[Row], dict[str, Any], Path], list[Path]]:
    try:
        from hashlab.pictures import comparison  # here: slow to import, and seldom wanted
    except ModuleNotFoundError as error:
        raise ValueError(f"pictures need {error.name}, which is not installed: pip install matplotlib") from error
    return comparison


def _progress() -> Progress:
    """On stderr, so that stdout is the answer alone."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
