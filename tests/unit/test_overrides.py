from __future__ import annotations

from pathlib import Path

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
