"""The speaker for real: a node in one network namespace, BIRD as the router in another, and what kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from metrics_text import of_socket
from needs import AS_ROOT, tools

from controller.api_client import ApiError, ask
from controller.rundir import RunDir

ROOT = Path(__file__).parents[2]
RUN_NODE = ROOT / "tests" / "unit" / "run_node.py"
NODE, ROUTER = "tB-node", "tB-router"
LEASE = 1.0

pytestmark = [AS_ROOT, tools("bird")]

BIRD = """
router id 10.0.2.1;
protocol device {}
protocol bfd { interface "*" { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; }; }
protocol bgp node {
    local 10.0.2.1 as 65001;
    neighbor 10.0.2.2 as 65002;
    PASSWORD
    hold time 9;
    BFD_OR_NOT
    graceful restart off;
    long lived graceful restart off;
    connect delay time 1; connect retry time 2; error wait time 1, 5;
    ipv4 { import all; export none; };
    ipv6 { import all; export none; };
}
"""

CONFIG = """
node:
  name: lb1
  tunnel_source: {ipv4: 10.0.2.2}
  hash_key: "000102030405060708090a0b0c0d0e0f"
  drain_time: 500ms
forwarder: {ports: [{device: net_null0}], hugepages: false}
bgp:
  speaker: SPEAKER
  local_as: 65002
  router_id: 10.0.2.2
  neighbors: [{address: 10.0.2.1, remote_as: 65001, hold_time: 3s, password: PASSWORD}]
  next_hop: {ipv4: 10.0.2.2, ipv6: "fd00:2::2"}
  lease: LEASEs
backend_pools:
  web: {backends: [{name: web1, address: 10.0.3.2}]}
vips:
  - {name: www, address: 192.0.2.1, port: 80, pools: [web], table_size: 251}
  - {name: www6, address: "2001:db8::1", port: 80, pools: [web], table_size: 251}
"""

BOTH = {"192.0.2.1/32", "2001:db8::1/128"}


class Lab:
    """Two namespaces on a wire, the router's BIRD, and at most one node."""

    def __init__(
        self, directory: Path, *, password: str | None = None, lease: float = LEASE, speaker: str = "exabgp"
    ) -> None:
        self.directory = directory
        self.run_dir = RunDir("lb1", directory)
        self.config = directory / "lb1.yaml"
        self.log = directory / "node.log"
        quoted = f'password "{password}";' if password else ""
        bfd = "bfd on;" if speaker == "bird" else ""
        (directory / "bird.conf").write_text(BIRD.replace("PASSWORD", quoted).replace("BFD_OR_NOT", bfd))
        text = CONFIG.replace("PASSWORD", json.dumps(password)).replace("LEASE", str(lease))
        text = text.replace("SPEAKER", speaker)
        self.config.write_text(text)
        self.node: subprocess.Popen[bytes] | None = None
        self.bird: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        for name in (NODE, ROUTER):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", "eth0", "netns", NODE, "type", "veth", "peer", "eth0", "netns", ROUTER)
        for name, last in ((NODE, 2), (ROUTER, 1)):
            run("ip", "-n", name, "address", "add", f"10.0.2.{last}/24", "dev", "eth0")
            run("ip", "-n", name, "address", "add", f"fd00:2::{last}/64", "dev", "eth0", "nodad")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        command = ("bird", "-f", "-c", "bird.conf", "-s", "bird.ctl")
        self.bird = subprocess.Popen(inside(ROUTER, *command), cwd=self.directory)
        while not (self.directory / "bird.ctl").exists():
            assert self.bird.poll() is None, "BIRD did not start"
            time.sleep(0.01)

    def down(self) -> None:
        for pid in (self.run_dir.running(), self.pid("forwarder"), self.pid("speaker"), self.pid("bird")):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        for process in (self.node, self.bird):
            if process:
                process.kill()
                process.wait()
        for name in (NODE, ROUTER):
            subprocess.run(("ip", "netns", "delete", name), capture_output=True, check=False)

    def start(self) -> None:
        environment = {**os.environ, "MAGLEV_RUN_DIR": str(self.directory), "PYTHONPATH": str(ROOT)}
        command = inside(NODE, sys.executable, str(RUN_NODE), str(self.config))
        with self.log.open("ab") as log:
            self.node = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def pid(self, name: str) -> int | None:
        from controller.pid_file import holder

        return holder(self.run_dir.path / f"{name}.pid")

    def helper(self) -> int:
        speaker = self.pid("speaker")
        found = run("pgrep", "-P", str(speaker), "-f", "lease_helper")
        return int(found.split()[0])

    def kill_controller(self) -> float:
        pid = self.run_dir.running()
        assert pid
        os.kill(pid, signal.SIGKILL)
        assert self.node
        self.node.wait()
        return time.monotonic()

    def status(self) -> dict[str, Any]:
        return ask(self.run_dir.controller_socket, "GET", "/status")

    def metrics(self) -> str:
        return of_socket(self.run_dir.controller_socket)

    def routes(self) -> set[str]:
        answer = run("birdc", "-s", str(self.directory / "bird.ctl"), "show", "route")
        return {line.split()[0] for line in answer.splitlines() if "unicast [node" in line}

    def updates(self) -> str:
        """BIRD's counters of what the node has sent."""
        answer = run("birdc", "-s", str(self.directory / "bird.ctl"), "show", "protocols", "all", "node")
        counters = [line for line in answer.splitlines() if "Import updates" in line]
        assert counters
        return "".join(counters)

    def wait(self, expected: set[str], seconds: float) -> float:
        """The time at which the router has exactly these routes."""
        deadline = time.monotonic() + seconds
        routes = None
        while time.monotonic() < deadline:
            routes = self.routes()
            if routes == expected:
                return time.monotonic()
            time.sleep(0.01)
        raise AssertionError(f"routes {routes} instead of {expected}\n{self.log.read_text()}")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inside(namespace: str, *command: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", namespace, *command)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    settings: dict[str, Any] = getattr(request, "param", {})
    directory = Path(tempfile.mkdtemp(prefix="mg-"))
    lab = Lab(directory, **settings)
    try:
        lab.up()
        lab.start()
        lab.wait(BOTH, 15)
        yield lab
    finally:
        lab.down()
        shutil.rmtree(directory)


@pytest.mark.parametrize("lab", [{"password": "S3cr#t{%}=!"}], indirect=True)
def test_a_password_of_any_characters_and_a_clean_end(lab: Lab) -> None:
    assert lab.node
    assert lab.run_dir.exabgp_configuration.stat().st_mode & 0o777 == 0o640
    began = time.monotonic()
    lab.node.send_signal(signal.SIGTERM)
    assert lab.wait(set(), 2) - began < 0.4  # withdrawn well before the drain time is over
    assert lab.pid("forwarder")
    assert lab.node.wait(10) == 0
    assert [path.name for path in lab.run_dir.path.iterdir()] == ["fake.states"]


def test_status_and_metrics_tell_whether_the_session_is_up(lab: Lab) -> None:
    neighbor = "10.0.2.1"
    assert lab.status()["speaker"]["sessions"] == {neighbor: "up"}
    assert f'maglev_bgp_session_up{{neighbor="{neighbor}"}} 1.0' in lab.metrics()
    assert lab.bird
    lab.bird.kill()
    lab.bird.wait()
    deadline = time.monotonic() + 15
    while not lab.status()["speaker"]["sessions"][neighbor].startswith("down - "):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert f'maglev_bgp_session_up{{neighbor="{neighbor}"}} 0.0' in lab.metrics()


def test_a_dead_controller_is_withdrawn_when_its_lease_ends(lab: Lab) -> None:
    died = lab.kill_controller()
    gone = lab.wait(set(), 5) - died
    assert LEASE * 0.7 < gone < LEASE + 0.5
    lab.start()
    lab.wait(BOTH, 5)


@pytest.mark.parametrize("lab", [{"lease": 3.0}], indirect=True)
def test_a_controller_restarted_within_the_lease_changes_nothing(lab: Lab) -> None:
    forwarder, speaker, sent = lab.pid("forwarder"), lab.pid("speaker"), lab.updates()
    lab.kill_controller()
    lab.start()
    for _ in range(40):
        assert lab.routes() == BOTH
        time.sleep(0.1)
    assert (lab.pid("forwarder"), lab.pid("speaker")) == (forwarder, speaker)
    assert lab.updates() == sent


def test_a_dead_helper_keeps_the_routes_and_its_successor_follows(lab: Lab) -> None:
    sent = lab.updates()
    first = lab.helper()
    os.kill(first, signal.SIGKILL)
    time.sleep(1.0)
    assert lab.routes() == BOTH
    assert lab.helper() != first
    assert lab.updates() == sent
    (lab.run_dir.path / "fake.json").write_text('{"link": false}')
    lab.wait(set(), 2)


def test_a_new_helper_first_withdraws_what_is_no_longer_wanted(lab: Lab) -> None:
    deaf = lab.helper()
    os.kill(deaf, signal.SIGSTOP)
    (lab.run_dir.path / "fake.json").write_text('{"link": false}')
    time.sleep(0.5)
    assert lab.routes() == BOTH
    os.kill(deaf, signal.SIGKILL)
    lab.wait(set(), 2)
    assert lab.run_dir.speaker_log.read_text() == ""


def test_what_a_dead_helper_announced_is_withdrawn_when_nobody_wants_it(lab: Lab) -> None:
    lab.kill_controller()
    os.kill(lab.helper(), signal.SIGKILL)
    died = time.monotonic()
    assert lab.routes() == BOTH
    assert lab.wait(set(), 5) - died < LEASE + 1.0


def test_a_dead_exabgp_is_withdrawn_at_once_and_comes_back(lab: Lab) -> None:
    speaker = lab.pid("speaker")
    assert speaker
    os.kill(speaker, signal.SIGKILL)
    died = time.monotonic()
    assert lab.wait(set(), 2) - died < 0.5
    lab.wait(BOTH, 10)


def test_a_dead_forwarder_is_withdrawn_at_once_and_comes_back(lab: Lab) -> None:
    forwarder = lab.pid("forwarder")
    assert forwarder
    os.kill(forwarder, signal.SIGKILL)
    died = time.monotonic()
    assert lab.wait(set(), 2) - died < LEASE / 2
    lab.wait(BOTH, 10)
    assert lab.pid("forwarder") != forwarder


def test_a_reload_tells_the_router_only_what_changed(lab: Lab) -> None:
    pid = lab.run_dir.running()
    assert pid
    before = lab.updates()
    os.kill(pid, signal.SIGHUP)
    time.sleep(0.5)
    assert lab.updates() == before
    text = lab.config.read_text()
    lab.config.write_text(text + "  - {name: api, address: 192.0.2.2, port: 80, pools: [web]}\n")
    os.kill(pid, signal.SIGHUP)
    lab.wait(BOTH | {"192.0.2.2/32"}, 2)
    lab.config.write_text(text)
    os.kill(pid, signal.SIGHUP)
    lab.wait(BOTH, 2)


def test_a_router_that_vanishes_and_returns_gets_everything_again(lab: Lab) -> None:
    """The path is cut in both directions without either side seeing its link go down."""
    nowhere = "02:00:00:00:00:99"
    for name, last in ((NODE, 1), (ROUTER, 2)):
        run(*neighbor(name, last, "replace"), "lladdr", nowhere, "nud", "permanent")
    lab.wait(set(), 6)
    time.sleep(5)
    for name, last in ((NODE, 1), (ROUTER, 2)):
        run(*neighbor(name, last, "delete"))
    lab.wait(BOTH, 15)


def neighbor(namespace: str, last: int, verb: str) -> tuple[str, ...]:
    return ("ip", "-n", namespace, "neighbor", verb, f"10.0.2.{last}", "dev", "eth0")


@pytest.mark.parametrize("which", ["speaker", "helper"])
def test_a_speaker_that_hangs_is_started_anew(lab: Lab, which: str) -> None:
    """ExaBGP itself or its helper: nothing but the renewals that nobody confirms tells."""
    speaker = lab.pid("speaker")
    assert speaker
    os.kill(speaker if which == "speaker" else lab.helper(), signal.SIGSTOP)
    deadline = time.monotonic() + 12
    while lab.pid("speaker") in (None, speaker):
        assert time.monotonic() < deadline, "it was not started anew"
        time.sleep(0.2)
    lab.wait(BOTH, 10)


BY_BIRD = pytest.mark.parametrize("lab", [{"speaker": "bird"}], indirect=True)


@BY_BIRD
def test_bird_announces_what_exabgp_tells_it_and_a_clean_end_withdraws(lab: Lab) -> None:
    wait_for(lambda: lab.status()["speaker"]["sessions"] == {"10.0.2.1": "up"})
    assert lab.status()["speaker"]["kind"] == "bird"
    wait_for(lambda: lab.status()["speaker"]["connected"])
    (lab.run_dir.path / "fake.json").write_text('{"link": false}')
    lab.wait(set(), 2)
    (lab.run_dir.path / "fake.json").write_text("{}")
    lab.wait(BOTH, 5)
    assert lab.node
    lab.node.send_signal(signal.SIGTERM)
    lab.wait(set(), 2)
    assert lab.node.wait(10) == 0
    assert {path.name for path in lab.run_dir.path.iterdir()} == {"fake.states", "fake.json"}


@BY_BIRD
def test_bfd_finds_a_silent_node_long_before_its_hold_time(lab: Lab) -> None:
    wait_for(lambda: lab.status()["speaker"]["sessions"] == {"10.0.2.1": "up"})
    time.sleep(1.0)  # BFD needs its own handshake
    bird = lab.pid("bird")
    assert bird
    os.kill(bird, signal.SIGSTOP)
    began = time.monotonic()
    assert lab.wait(set(), 5) - began < 1.5
    os.kill(bird, signal.SIGCONT)
    lab.wait(BOTH, 15)


@BY_BIRD
def test_the_next_controller_adopts_bird_and_changes_nothing(lab: Lab) -> None:
    bird, speaker, sent = lab.pid("bird"), lab.pid("speaker"), lab.updates()
    lab.kill_controller()
    lab.start()
    wait_for(lambda: lab.run_dir.running() is not None and lab.status()["state"] == "running")
    assert lab.routes() == BOTH
    assert (lab.pid("bird"), lab.pid("speaker")) == (bird, speaker)
    assert lab.updates() == sent


@BY_BIRD
def test_a_dead_controller_s_routes_go_by_bird_too_when_its_lease_ends(lab: Lab) -> None:
    died = lab.kill_controller()
    assert lab.wait(set(), 5) - died < LEASE + 1.0
    lab.start()
    lab.wait(BOTH, 10)


@BY_BIRD
def test_a_dead_bird_comes_back_with_all_routes(lab: Lab) -> None:
    bird = lab.pid("bird")
    assert bird
    os.kill(bird, signal.SIGKILL)
    lab.wait(set(), 2)
    lab.wait(BOTH, 15)
    assert lab.pid("bird") != bird


@BY_BIRD
def test_a_node_without_bird_in_its_configuration_ends_the_one_that_was_left(lab: Lab) -> None:
    lab.kill_controller()
    lab.config.write_text(lab.config.read_text().replace("speaker: bird", "speaker: exabgp"))
    lab.start()
    wait_for(lambda: lab.pid("bird") is None)
    lab.wait(BOTH, 20)


def wait_for(holds: Callable[[], bool], seconds: float = 15) -> None:
    """Wait until it does; a node that does not answer yet does not hold it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except ApiError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)
