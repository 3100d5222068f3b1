from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controller.pid_file import AlreadyLockedError, PidFile, holder

ROOT = Path(__file__).parents[2]


def sleeper(pid_file: Path) -> subprocess.Popen[str]:
    """A program that knows nothing of pid files, under one; returns once it runs."""
    program = (sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)")
    command = (sys.executable, "-m", "controller.locked_exec", str(pid_file), *program)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    return process


def test_a_locked_pid_file_names_its_holder_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    assert holder(path) is None
    pid_file = PidFile(path)
    pid_file.lock()
    assert holder(path) == os.getpid()
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(AlreadyLockedError) as caught:
        PidFile(path).lock()
    assert caught.value.pid == os.getpid()
    pid_file.release()
    pid_file.release()
    assert not path.exists()


def test_a_pid_file_left_by_a_dead_process_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    path.write_text(f"{os.getpid()}\n")  # alive, and not the one that wrote it
    assert holder(path) is None
    pid_file = PidFile(path)
    pid_file.lock()
    assert holder(path) == os.getpid()
    pid_file.release()


def test_a_longer_pid_of_before_is_overwritten_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    path.write_text("123456789012\n")
    pid_file = PidFile(path)
    pid_file.lock()
    assert path.read_text() == f"{os.getpid()}\n"
    pid_file.release()


def test_the_lock_lives_on_in_the_program_and_dies_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    with sleeper(path) as process:
        assert holder(path) == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert holder(path) is None


def test_a_second_program_under_the_same_pid_file_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "a.pid"
    with sleeper(path) as process:
        command = (sys.executable, "-m", "controller.locked_exec", str(path), "/bin/true")
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert f"held by pid {process.pid}" in second.stderr
        process.kill()


def test_a_program_that_is_not_there_fails_with_its_name(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "controller.locked_exec", str(tmp_path / "a.pid"), "/no/such/program")
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "/no/such/program" in process.stderr
