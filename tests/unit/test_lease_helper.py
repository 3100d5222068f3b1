from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from controller.speakers import lease_helper
from controller.speakers.lease_helper import Routes

V4, V6 = "192.0.2.1/32", "2001:db8::1/128"
LEASE = 0.4


def test_a_fresh_helper_withdraws_what_is_known_but_unwanted_first() -> None:
    routes = Routes()
    assert routes.follow({V4: "10.0.2.2"}, [V4, V6, "192.0.2.9/32"]) == [
        "withdraw route 192.0.2.9/32 next-hop 0.0.0.0",
        "withdraw route 2001:db8::1/128 next-hop ::",
        "announce route 192.0.2.1/32 next-hop 10.0.2.2",
    ]


def test_only_differences_become_commands() -> None:
    routes = Routes()
    routes.follow({V4: "10.0.2.2"}, [V4])
    assert routes.follow({V4: "10.0.2.2"}, [V4]) == []
    assert routes.follow({V4: "10.0.2.2", V6: "fd00:2::2"}, []) == [f"announce route {V6} next-hop fd00:2::2"]
    assert routes.follow({V4: "10.0.2.3", V6: "fd00:2::2"}, []) == [f"announce route {V4} next-hop 10.0.2.3"]
    assert routes.follow({}, []) == [
        f"withdraw route {V4} next-hop 10.0.2.3",
        f"withdraw route {V6} next-hop fd00:2::2",
    ]


def test_the_end_of_a_lease_withdraws_all_that_is_known_and_all_when_nothing_is() -> None:
    fresh, settled = Routes(), Routes()
    assert fresh.expire() == ["clear adj-rib out"]
    assert fresh.expire() == []
    settled.follow({V4: "10.0.2.2"}, [V4])
    assert settled.expire() == [f"withdraw route {V4} next-hop 10.0.2.2"]
    assert settled.follow({V4: "10.0.2.2"}, [V4]) == [f"announce route {V4} next-hop 10.0.2.2"]


class Exabgp:
    """The place of ExaBGP: the helper's parent, which reads its commands and answers them."""

    def __init__(self, path: Path) -> None:
        command = (sys.executable, "-I", "-S", lease_helper.__file__, str(path), str(LEASE))
        self.helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.commands: Queue[str] = Queue()
        self.answer = b"done\n"
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        assert self.helper.stdout
        assert self.helper.stdin
        for line in self.helper.stdout:
            self.commands.put(line.decode().strip())
            if self.answer:
                self.helper.stdin.write(self.answer)
                self.helper.stdin.flush()

    def say(self, lines: str) -> None:
        assert self.helper.stdin
        self.helper.stdin.write(lines.encode())
        self.helper.stdin.flush()

    def next(self, seconds: float = 3.0) -> str:
        return self.commands.get(timeout=seconds)

    def quiet(self, seconds: float) -> bool:
        try:
            self.commands.get(timeout=seconds)
        except Empty:
            return True
        return False

    def close(self) -> None:
        self.helper.kill()
        self.helper.wait()
        self.thread.join()
        for pipe in (self.helper.stdin, self.helper.stdout):
            assert pipe
            try:
                pipe.close()
            except BrokenPipeError:
                continue


class Controller:
    """The controller's end of the lease socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.listener.settimeout(3)
        self.connection: socket.socket | None = None

    def accept(self) -> dict[str, Any]:
        """Take the helper's connection; returns its greeting."""
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(3)
        self.file = self.connection.makefile("rb")
        return self.hear()

    def hear(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.file.readline())
        return said

    def want(self, routes: dict[str, str], known: list[str] | None = None, beat: int = 0) -> None:
        self.sequence += 1
        self.renew(routes, known, beat)

    def renew(self, routes: dict[str, str], known: list[str] | None = None, beat: int = 0) -> None:
        message = {"sequence": self.sequence, "beat": beat, "announce": routes, "known": known or []}
        assert self.connection
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def hang_up(self) -> None:
        if self.connection:
            self.connection.close()
            self.file.close()
            self.connection = None

    def close(self) -> None:
        self.hang_up()
        self.listener.close()
        self.path.unlink()


@pytest.fixture
def path(base: Path) -> Path:
    return base / "lease.sock"


@pytest.fixture
def controller(path: Path) -> Iterator[Controller]:
    controller = Controller(path)
    yield controller
    controller.hang_up()
    controller.listener.close()


@pytest.fixture
def exabgp(path: Path) -> Iterator[Exabgp]:
    exabgp = Exabgp(path)
    yield exabgp
    exabgp.close()


def test_it_follows_and_confirms(controller: Controller, exabgp: Exabgp) -> None:
    assert controller.accept() == {"sequence": 0, "beat": 0, "announced": None, "errors": 0, "sessions": {}}
    controller.want({V4: "10.0.2.2"}, [V4, V6])
    assert exabgp.next().startswith(f"withdraw route {V6}")
    assert exabgp.next().startswith(f"announce route {V4}")
    assert controller.hear() == {"sequence": 1, "beat": 0, "announced": [V4], "errors": 0, "sessions": {}}
    exabgp.answer = b"error\n"
    controller.want({})
    assert controller.hear() == {"sequence": 2, "beat": 0, "announced": [], "errors": 1, "sessions": {}}


def test_every_fifth_renewal_asks_whether_exabgp_still_answers(controller: Controller, exabgp: Exabgp) -> None:
    controller.accept()
    controller.want({V4: "10.0.2.2"})
    exabgp.next()
    assert controller.hear()["beat"] == 0
    for beat in range(1, 5):
        controller.renew({V4: "10.0.2.2"}, beat=beat)
    controller.renew({V4: "10.0.2.2"}, beat=5)
    assert exabgp.next() == "version"
    assert controller.hear() == {"sequence": 1, "beat": 5, "announced": [V4], "errors": 0, "sessions": {}}


def test_what_exabgp_says_of_sessions_is_told_at_once_and_in_every_report(
    controller: Controller, exabgp: Exabgp
) -> None:
    controller.accept()
    controller.want({V4: "10.0.2.2"})
    assert controller.hear()["sessions"] == {}
    exabgp.say("neighbor 10.0.2.1 connected\nneighbor 10.0.2.1 up\n")
    assert controller.hear() | {"beat": 0} == {
        "sequence": 1,
        "beat": 0,
        "announced": [V4],
        "errors": 0,
        "sessions": {"10.0.2.1": "up"},
    }
    exabgp.say("neighbor fd00:2::1 up\nneighbor 10.0.2.1 down - peer reset, message [hold timer]\n")
    expected = {"10.0.2.1": "down - peer reset, message [hold timer]", "fd00:2::1": "up"}
    while controller.hear()["sessions"] != expected:
        pass
    controller.want({})
    assert controller.hear()["sessions"] == expected


def test_an_exabgp_that_hangs_leaves_the_renewals_unconfirmed(controller: Controller, exabgp: Exabgp) -> None:
    controller.accept()
    exabgp.answer = b""
    controller.want({}, beat=5)
    assert exabgp.next() == "version"
    assert controller.connection
    controller.connection.settimeout(0.3)
    with pytest.raises(TimeoutError):
        controller.hear()


def test_it_confirms_only_what_exabgp_has_answered(controller: Controller, exabgp: Exabgp) -> None:
    controller.accept()
    exabgp.answer = b""
    controller.want({V4: "10.0.2.2"})
    exabgp.next()
    assert controller.connection
    controller.connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        controller.hear()


def test_silence_for_a_lease_withdraws_and_word_in_time_does_not(controller: Controller, exabgp: Exabgp) -> None:
    controller.accept()
    for _ in range(8):
        controller.want({V4: "10.0.2.2"})
        last = time.monotonic()
        time.sleep(LEASE / 5)
    assert exabgp.next().startswith("announce")
    assert exabgp.next() == f"withdraw route {V4} next-hop 10.0.2.2"
    assert LEASE * 0.9 < time.monotonic() - last < LEASE + 0.3
    controller.want({V4: "10.0.2.2"})
    assert exabgp.next().startswith("announce")


def test_a_controller_that_returns_within_the_lease_changes_nothing(controller: Controller, exabgp: Exabgp) -> None:
    controller.accept()
    controller.want({V4: "10.0.2.2"})
    exabgp.next()
    controller.hang_up()
    greeting = controller.accept()
    assert greeting["announced"] == [V4]
    controller.sequence = 0
    controller.want({V4: "10.0.2.2"})
    assert controller.hear()["sequence"] == 1  # confirmed, though its predecessor's message was number 1 too
    assert exabgp.quiet(LEASE / 2)


def test_a_fresh_helper_without_a_controller_clears_all(exabgp: Exabgp) -> None:
    assert exabgp.next() == "clear adj-rib out"
    assert exabgp.quiet(LEASE * 2)


def test_a_fresh_helper_with_a_controller_that_says_nothing_clears_all(
    controller: Controller, exabgp: Exabgp
) -> None:
    controller.accept()
    assert exabgp.next() == "clear adj-rib out"


def test_it_ends_with_exabgp_with_and_without_a_controller(controller: Controller, path: Path) -> None:
    for expected in ("connected", "reconnecting"):
        exabgp = Exabgp(path)
        if expected == "connected":
            controller.accept()
        else:
            controller.listener.close()
            path.unlink()
            time.sleep(0.2)
        assert exabgp.helper.poll() is None
        assert exabgp.helper.stdin
        exabgp.helper.stdin.close()
        assert exabgp.helper.wait(timeout=2) == 0
        exabgp.close()


@pytest.mark.parametrize("line", [b"garbage\n", b"[]\n", b'{"announce": {}}\n', b'{"announce": 3, "known": []}\n'])
def test_a_message_that_cannot_be_read_does_not_renew(controller: Controller, exabgp: Exabgp, line: bytes) -> None:
    controller.accept()
    controller.want({V4: "10.0.2.2"})
    exabgp.next()
    began = time.monotonic()
    assert controller.connection
    while exabgp.commands.empty() and time.monotonic() - began < 2:
        controller.connection.sendall(line)
        time.sleep(LEASE / 5)
    assert exabgp.next().startswith("withdraw")


def test_more_commands_than_a_pipe_holds_get_through(controller: Controller, exabgp: Exabgp) -> None:
    controller.accept()
    routes = {f"10.{n >> 8}.{n & 255}.1/32": "10.0.2.2" for n in range(5000)}
    controller.want(routes)
    assert sum(exabgp.next().startswith("announce") for _ in routes) == 5000
    assert controller.hear()["sequence"] == 1
