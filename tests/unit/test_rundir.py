from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.pid_file import PidFile
from controller.rundir import (
    NoSuchNodeError,
    RunDir,
    RunDirError,
    base_directory,
    find_running,
    read_json,
    write_private,
)
from forwarder import table_memory


def test_the_base_directory_is_the_override_or_what_fits_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGLEV_RUN_DIR", "/somewhere")
    assert base_directory() == Path("/somewhere")
    monkeypatch.delenv("MAGLEV_RUN_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert base_directory() == Path("/run/maglev")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert base_directory() == Path("/run/user/1000/maglev")


def test_a_new_run_directory_is_closed_to_others(base: Path) -> None:
    run_dir = RunDir("lb1", base / "deep" / "er")
    run_dir.create()
    run_dir.create()
    assert run_dir.path.stat().st_mode & 0o777 == 0o750


def test_a_directory_of_somebody_else_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = RunDir("lb1")
    run_dir.create()
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(RunDirError, match="belongs to another user"):
        run_dir.create()


def test_a_path_too_long_for_a_socket_is_refused_with_the_number(base: Path) -> None:
    longest = RunDir("n", base / ("x" * (107 - len(f"{base}//n/controller.sock"))))
    assert len(os.fsencode(longest.controller_socket)) == 107
    longest.create()
    with pytest.raises(RunDirError, match="has 108 bytes, a socket path may have 107"):
        RunDir("nn", longest.path.parent).create()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", ".hidden"])
def test_a_name_that_is_no_directory_is_refused(name: str) -> None:
    with pytest.raises(RunDirError):
        RunDir(name)


def test_what_a_node_leaves_is_removed_and_nothing_else(run_dir: RunDir, base: Path) -> None:
    for path in (*run_dir.files(), run_dir.path / ".announced.json.new"):
        path.touch()
    run_dir.remove()
    run_dir.remove_if_empty()
    assert not base.exists()
    run_dir.create()
    (run_dir.path / "notes").touch()
    run_dir.remove()
    run_dir.remove_if_empty()
    assert [path.name for path in run_dir.path.iterdir()] == ["notes"]


def test_the_tables_of_a_node_are_removed_with_it(run_dir: RunDir) -> None:
    place = table_memory.place(run_dir.path, False)
    place.create(2, 100)
    other = table_memory.place(run_dir.path.with_name("lb2"), False)
    other.create(1, 100)
    run_dir.remove()
    assert not place.directory.exists()
    assert other.directory.exists()
    RunDir("lb2").remove()
    assert not other.directory.exists()


def test_nodes_are_found_by_their_lock(base: Path) -> None:
    with pytest.raises(NoSuchNodeError, match="no node is running"):
        find_running(base=base / "nowhere")
    nodes = [RunDir(name, base) for name in ("lb1", "lb2", "dead")]
    locks = [PidFile(node.controller_pid) for node in nodes[:2]]
    for node in nodes:
        node.create()
    nodes[2].controller_pid.write_text("1\n")
    with pytest.raises(NoSuchNodeError, match="no node is running"):
        find_running()
    locks[0].lock()
    assert find_running().name == "lb1"
    locks[1].lock()
    with pytest.raises(NoSuchNodeError, match=r"lb1, lb2.*--node") as caught:
        find_running()
    assert caught.value.ambiguous
    assert find_running("lb2").name == "lb2"
    with pytest.raises(NoSuchNodeError, match="no node dead is running"):
        find_running("dead")
    for lock in locks:
        lock.release()


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert read_json(path) is None
    write_private(path, "[1]")
    write_private(path, "[2]")
    assert read_json(path) == [2]
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    write_private(path, "[")
    assert read_json(path) is None


def test_the_files_of_a_program_that_lives_are_not_removed(base: Path) -> None:
    run_dir = RunDir("lb1")
    run_dir.create()
    write_private(run_dir.announced, "[]")
    tables = table_memory.place(run_dir.path, False)
    tables.create(1, 100)
    living = PidFile(run_dir.forwarder_pid)
    living.lock()
    run_dir.remove()
    assert run_dir.announced.exists()
    assert tables.directory.exists()
    assert run_dir.forwarder_pid.exists()
    living.release()
    run_dir.remove()
    assert not run_dir.announced.exists()
    assert not tables.directory.exists()
