from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from structlog.testing import capture_logs
from waiting import until

from controller.backoff import Backoff
from controller.pid_file import holder
from controller.process import LOG_LIMIT, Exit, Program, adopt, last_line, spawn
from controller.rundir import older
from controller.supervisor import Supervisor

ROOT = Path(__file__).parents[2]
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PLAIN = "import time; print('up', flush=True); time.sleep(60)"


def program(directory: Path, code: str) -> Program:
    """Python code under a locked pid file, as ExaBGP is run."""
    pid_file = directory / "p.pid"
    wrapper = (sys.executable, "-m", "controller.locked_exec", str(pid_file))
    return Program("p", (*wrapper, sys.executable, "-c", code), pid_file, directory / "p.log")


def started_by_another(running: Program) -> subprocess.Popen[bytes]:
    return subprocess.Popen(running.argv, cwd=ROOT, stdout=subprocess.DEVNULL)


def is_up(supervisor: Supervisor) -> Callable[[], bool]:
    def check() -> bool:
        return last_line(supervisor.program.log, 0) == "up" and holder(supervisor.program.pid_file) is not None

    return check


async def test_a_killed_program_is_noticed_at_once_and_started_again(tmp_path: Path) -> None:
    exits: list[Exit] = []
    starts: list[int] = []
    supervisor = Supervisor(
        program(tmp_path, PLAIN),
        on_start=lambda process: starts.append(process.pid),
        on_exit=exits.append,
        backoff=Backoff(first=0.01),
    )
    supervisor.start()
    await until(is_up(supervisor))
    first = supervisor.pid
    assert first
    assert os.getsid(first) == first  # a session of its own
    clock = asyncio.get_running_loop().time
    killed = clock()
    os.kill(first, signal.SIGKILL)
    await until(lambda: exits)
    assert clock() - killed < 0.5
    assert (exits[0].code, str(exits[0])) == (-signal.SIGKILL, "killed by SIGKILL")
    await until(lambda: len(starts) == 2)
    assert supervisor.restarts == 1
    await supervisor.stop(2.0)
    assert supervisor.pid is None
    assert holder(supervisor.program.pid_file) is None


async def test_a_program_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    supervisor = Supervisor(program(tmp_path, STUBBORN))
    supervisor.start()
    await until(is_up(supervisor))
    clock = asyncio.get_running_loop().time
    began = clock()
    await supervisor.stop(0.2)
    assert 0.2 <= clock() - began < 1.0
    assert holder(supervisor.program.pid_file) is None


async def test_its_last_words_and_status_are_told_and_the_wait_grows(tmp_path: Path) -> None:
    exits: list[Exit] = []
    code = "import sys; print('noise'); print('no hugepages'); print(); sys.exit(2)"
    supervisor = Supervisor(program(tmp_path, code), on_exit=exits.append, backoff=Backoff(0.01, 0.02))
    supervisor.start()
    await until(lambda: len(exits) == 3)
    await supervisor.stop(1.0)
    assert exits[0].code == 2
    assert str(exits[0]) == "exit status 2: no hugepages"


async def test_what_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    exits: list[Exit] = []
    missing = Program("p", ("/no/such/program",), tmp_path / "p.pid", tmp_path / "p.log")
    supervisor = Supervisor(missing, on_exit=exits.append, backoff=Backoff(0.01, 0.01))
    supervisor.start()
    await until(lambda: len(exits) == 2)
    await supervisor.stop(1.0)
    assert "No such file" in exits[0].message


async def test_a_running_program_of_another_controller_is_adopted_and_watched(tmp_path: Path) -> None:
    running = program(tmp_path, PLAIN)
    with started_by_another(running) as stranger:
        await until(lambda: holder(running.pid_file))
        exits: list[Exit] = []
        supervisor = Supervisor(running, on_exit=exits.append, backoff=Backoff(first=0.01))
        supervisor.start()
        await until(lambda: supervisor.process)
        assert supervisor.process
        assert supervisor.process.adopted
        assert supervisor.pid == stranger.pid
        stranger.kill()
        await until(lambda: exits)
        assert (exits[0].code, str(exits[0])) == (None, "ended")
        await until(lambda: supervisor.pid not in (None, stranger.pid))
        await supervisor.stop(2.0)


async def test_a_program_that_ends_badly_when_it_is_stopped_is_told_with_its_last_words(tmp_path: Path) -> None:
    """Its log goes with the run directory, so they are nowhere else."""
    code = (
        "import signal, sys; signal.signal(15, lambda *_: sys.exit('7 packets are missing')); print('up', flush=True)"
    )
    supervisor = Supervisor(program(tmp_path, f"{code}; signal.pause()"))
    supervisor.start()
    await until(is_up(supervisor))
    with capture_logs() as logs:
        await supervisor.stop(2.0)
    assert [(entry["event"], entry["how"]) for entry in logs] == [
        ("not ended well", "exit status 1: 7 packets are missing")
    ]


async def test_an_adopted_program_is_stopped_like_a_child(tmp_path: Path) -> None:
    running = program(tmp_path, PLAIN)
    with started_by_another(running) as stranger:
        await until(lambda: holder(running.pid_file))
        supervisor = Supervisor(running)
        supervisor.start()
        await until(lambda: supervisor.process)
        await supervisor.stop(2.0)
        assert stranger.wait() == -signal.SIGTERM


async def test_a_pid_file_nobody_holds_is_not_adopted(tmp_path: Path) -> None:
    left = program(tmp_path, PLAIN)
    left.pid_file.write_text(f"{os.getpid()}\n")
    assert adopt(left) is None


async def test_a_long_log_is_put_aside_before_a_start(tmp_path: Path) -> None:
    noisy = program(tmp_path, "print('new')")
    noisy.log.write_bytes(b"x" * (LOG_LIMIT + 1))
    process = spawn(noisy)
    assert await process.wait() == Exit(0, "new")
    assert noisy.log.read_text() == "new\n"
    assert older(noisy.log).stat().st_size == LOG_LIMIT + 1


def test_the_last_line_is_looked_for_from_where_the_run_began(tmp_path: Path) -> None:
    log = tmp_path / "l"
    assert last_line(log, 0) == ""
    log.write_text("old words\n")
    assert last_line(log, 10) == ""
    log.write_text("old words\n\n  new words \n\n")
    assert last_line(log, 10) == "new words"
