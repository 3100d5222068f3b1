"""What was found out about one thing of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`why` it matters and what `mend`s it are said of warnings and errors only. With an error no node runs, or none
    serves; with a warning it is slower, or in danger, or something could not be found out.
    """

    level: Level
    says: str
    why: str = ""
    mend: str = ""


def ok(says: str) -> Finding:
    """Nothing is wrong with it."""
    return Finding("ok", says)


def warning(says: str, why: str, mend: str) -> Finding:
    """A node runs, but not as well as it could."""
    return Finding("warning", says, why, mend)


def error(says: str, why: str, mend: str) -> Finding:
    """A node does not start, or does not serve."""
    return Finding("error", says, why, mend)
