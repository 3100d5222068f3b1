"""Sets of CPUs as the kernel writes them: `0-3,8`."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import groupby

HIGHEST = 8191
"""More than any kernel can have."""


def parse(text: str) -> frozenset[int]:
    """The CPUs of a list; what is no part of one is left out."""
    found: set[int] = set()
    for part in text.split(","):
        if match := re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part, re.ASCII):
            first, last = int(match[1]), int(match[2] or match[1])
            found.update(range(first, min(last, HIGHEST) + 1))
    return frozenset(found)


def written(cpus: Collection[int]) -> str:
    """The list of these CPUs."""
    runs = [list(run) for _, run in groupby(enumerate(sorted(set(cpus))), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs)
