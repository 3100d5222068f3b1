from __future__ import annotations

from pathlib import Path

import pytest

from controller.overrides import Overrides


def test_overrides_outlive_the_controller(tmp_path: Path) -> None:
    path = tmp_path / "overrides.json"
    overrides = Overrides(path)
    assert (overrides.drained, overrides.drain_self) == (frozenset(), False)
    overrides.drain("web1")
    overrides.drain("web2")
    overrides.undrain("web1")
    overrides.undrain("web9")
    overrides.set_drain_self(True)
    again = Overrides(path)
    assert (again.drained, again.drain_self) == (frozenset({"web2"}), True)


def test_a_damaged_file_overrides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "overrides.json"
    for text in ("", "[1]", "{"):
        path.write_text(text)
        assert Overrides(path).drained == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        '{"drained": 5}',
        '{"drained": null}',
        '{"drained": "web1", "drain_self": "no"}',
        "[1]",
        "[" * 200_000,
        "junk",
        "",
    ],
)
def test_what_is_not_overrides_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "overrides.json"
    path.write_text(text)
    overrides = Overrides(path)
    assert (overrides.drained, overrides.drain_self) == (frozenset(), False)
