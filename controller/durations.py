"""Durations as people write them: a number with `ms`, `s`, `m` or `h`."""

from __future__ import annotations

import re

DAY = 86400.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)")


def parse(text: str) -> float | None:
    """Seconds, or None when `text` is no duration."""
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found else None


def spell(seconds: float) -> str:
    """The shortest whole spelling in one unit: 0.5 is `500ms`, 7200 is `2h`."""
    for unit in ("h", "m", "s"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms" if seconds else "0s"
