from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.overrides import OverrideNotKeptError, Overrides, Word
from controller.rundir import RunDir

ALICE = Word("alice", 1000.0, "new disk")
BOB = Word("bob", 2000.0)


def test_overrides_outlive_the_controller_with_who_when_and_why(tmp_path: Path) -> None:
    path = tmp_path / "overrides.json"
    overrides = Overrides(path)
    assert (overrides.drained, overrides.drain_self) == (frozenset(), False)
    overrides.drain("web1", BOB)
    overrides.drain("web2", ALICE)
    overrides.undrain("web1")
    overrides.undrain("web9")
    overrides.drain_node(BOB)
    again = Overrides(path)
    assert (again.drained, again.drain_self) == (frozenset({"web2"}), True)
    assert again.backends == {"web2": ALICE}
    assert again.node == BOB
    assert again.as_json()["backends"] == {"web2": {"by": "alice", "at": 1000.0, "why": "new disk"}}


def test_the_first_word_stands_until_it_is_taken_back(tmp_path: Path) -> None:
    overrides = Overrides(tmp_path / "overrides.json")
    for word in (ALICE, BOB):
        overrides.drain("web1", word)
        overrides.drain_node(word)
    assert (overrides.backends["web1"], overrides.node) == (ALICE, ALICE)
    overrides.undrain("web1")
    overrides.drain("web1", BOB)
    assert overrides.backends["web1"] == BOB


def test_when_nothing_is_overridden_there_is_no_file_and_no_directory_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "lb1" / "overrides.json"
    overrides = Overrides(path)
    overrides.undrain("web1")
    assert not path.parent.exists()
    overrides.drain("web1", ALICE)
    overrides.drain_node(ALICE)
    assert path.stat().st_mode & 0o777 == 0o640
    overrides.undrain("web1")
    assert path.exists()
    overrides.undrain_node()
    assert not path.parent.exists()


def test_a_directory_with_other_files_stays(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    overrides = Overrides(tmp_path / "overrides.json")
    overrides.drain_node(ALICE)
    overrides.undrain_node()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_what_cannot_be_written_down_is_in_force_and_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    overrides = Overrides(tmp_path / "file" / "overrides.json")
    with pytest.raises(OverrideNotKeptError, match=r"in force, but will not outlive the node: cannot write .*/file/"):
        overrides.drain("web1", ALICE)
    assert overrides.drained == {"web1"}


@pytest.mark.parametrize(
    "text",
    [
        '{"backends": 5}',
        '{"backends": null}',
        '{"backends": ["web1"], "node": true}',
        '{"backends": {"web1": null, "web2": {"by": "x"}, "web3": {"at": "now"}}, "node": {"at": null}}',
        "[1]",
        "[" * 200_000,
        "junk",
        "{",
        "",
    ],
)
def test_what_is_not_overrides_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "overrides.json"
    path.write_text(text)
    overrides = Overrides(path)
    assert (overrides.drained, overrides.drain_self) == (frozenset(), False)


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({"MAGLEV_STATE_DIR": "/a"}, "/a/lb1"),
        ({"MAGLEV_STATE_DIR": "/a", "MAGLEV_RUN_DIR": "/b"}, "/a/lb1"),
        ({"MAGLEV_RUN_DIR": "/b"}, "/b/lb1"),
        ({}, "/var/lib/maglev/lb1"),
    ],
)
def test_overrides_outlive_a_restart_of_the_machine_but_in_laboratories(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], where: str
) -> None:
    for name in ("MAGLEV_STATE_DIR", "MAGLEV_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert RunDir("lb1").overrides == Path(where) / "overrides.json"


def test_the_file_is_json_that_a_person_can_read(tmp_path: Path) -> None:
    path = tmp_path / "overrides.json"
    Overrides(path).drain("web1", ALICE)
    assert json.loads(path.read_text()) == {
        "backends": {"web1": {"by": "alice", "at": 1000.0, "why": "new disk"}},
        "node": None,
    }
