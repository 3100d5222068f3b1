"""How the findings are shown to people: grouped by subject; what is wrong with why it matters, and its mend."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

COLORS = {"ok": "green", "warning": "yellow", "error": "red"}
WIDE = 12


def show(answer: dict[str, Any]) -> None:
    """The whole answer of `subjects.diagnose`."""
    console = Console(highlight=False, soft_wrap=True)
    before = ""
    for finding in answer["findings"]:
        subject = finding["subject"] if finding["subject"] != before else ""
        before = finding["subject"]
        level = Text(f"{finding['level']:<9}", COLORS[finding["level"]])
        console.print(Text(f"{subject:<{WIDE}}") + level + Text(finding["says"]))
        if finding["level"] != "ok":
            console.print(Text(f"{'':<{WIDE}}  why: {finding['why']}"))
            console.print(Text(f"{'':<{WIDE}} mend: {finding['mend']}"))
    console.print(Text(f"{_counted(answer['errors'], 'error')}, {_counted(answer['warnings'], 'warning')}"))


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
