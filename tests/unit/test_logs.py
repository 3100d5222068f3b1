from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from controller import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()


def test_a_file_gets_json_lines_from_us_and_from_libraries() -> None:
    stream = io.StringIO()
    logs.set_up(stream)
    structlog.get_logger("a").info("announce", address="192.0.2.1")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert (ours["event"], ours["address"], ours["level"]) == ("announce", "192.0.2.1", "info")
    assert theirs["event"] == "slow callback"


def test_an_exception_is_in_its_line() -> None:
    stream = io.StringIO()
    logs.set_up(stream)
    try:
        raise ValueError("boom")
    except ValueError:
        structlog.get_logger("b").exception("failed")
    assert "ValueError: boom" in json.loads(stream.getvalue())["exception"]


def test_a_terminal_gets_readable_lines() -> None:
    stream = Terminal()
    logs.set_up(stream)
    structlog.get_logger("c").info("announce")
    structlog.get_logger("c").debug("noise")
    assert "announce" in stream.getvalue()
    assert "{" not in stream.getvalue()
    assert "noise" not in stream.getvalue()
