"""Health checks through the tunnel: what a backend cannot decapsulate counts, whatever its server answers."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from needs import LAB
from whole_lab import maglev, whole_lab

from lab import nodes, topology
from lab.laboratory import settled, wait_until
from lab.nodes import MAGLEV
from lab.topology import BACKENDS, DECAP_DEVICE, NODES, VIP
from lab.traffic import Traffic

pytestmark = LAB
ALL = {backend.name for backend in BACKENDS[:3]}
NODE, BROKEN = NODES[0], BACKENDS[1]


def change(edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the configuration of every node, and have it followed."""
    for node in NODES:
        path = nodes.config_path(node)
        config = yaml.safe_load(path.read_text())
        edit(config)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        maglev("reload", "--node", node.name)


@pytest.fixture
def lab() -> Iterator[None]:
    with whole_lab():
        yield


def through_tunnel(config: dict[str, Any]) -> None:
    config["health_checks"]["web-http"]["via"] = "tunnel"


def set_decapsulation(on: bool) -> None:
    """Of one backend; its server and its address are as they were."""
    if topology.decapsulates_itself(BROKEN):
        BROKEN.namespace.ip("link", "set", DECAP_DEVICE, "up" if on else "down")
        return
    pid = BROKEN.namespace.find("lab.decap")
    assert pid is not None
    os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)


def rules() -> str:
    return NODE.namespace.run("ip", "rule")


def direct_answer() -> str:
    """What the broken backend's server says to the node that asks it directly."""
    ask = f"import urllib.request as r; print(r.urlopen('http://{BROKEN.address}/healthz', timeout=2).status)"
    return NODE.namespace.run(sys.executable, "-c", ask).strip()


def passing(vip: str | None) -> bool:
    """Whether every backend has just passed, by the vip, or directly."""
    return all((h["vip"], h["reason"]) == (vip, "status 200") for h in nodes.status(NODE)["health"])


def test_a_backend_that_does_not_decapsulate_is_down_while_its_server_answers(lab: None) -> None:
    change(through_tunnel)
    wait_until(lambda: passing(str(VIP)), 10, "all pass")
    assert "19788" in rules()

    set_decapsulation(on=False)
    try:
        wait_until(lambda: settled(ALL - {BROKEN.name}), 10, "it is out on all nodes")
        assert direct_answer() == "200"
        with Traffic(requests=300) as traffic:
            assert traffic.completed().answered == 300
    finally:
        set_decapsulation(on=True)
    wait_until(lambda: settled(ALL), 10, "it is back on all nodes")


def test_a_backend_without_the_vip_is_down(lab: None) -> None:
    change(through_tunnel)
    wait_until(lambda: passing(str(VIP)), 10, "all pass")
    BROKEN.namespace.ip("address", "del", f"{VIP}/32", "dev", "lo")
    wait_until(lambda: settled(ALL - {BROKEN.name}), 10, "it is out on all nodes")
    BROKEN.namespace.ip("address", "add", f"{VIP}/32", "dev", "lo")
    wait_until(lambda: settled(ALL), 10, "it is back on all nodes")


def test_reloads_bring_the_tunnel_and_take_it_away_and_a_killed_controller_finds_it(lab: None) -> None:
    assert "19788" not in rules()
    change(through_tunnel)
    wait_until(lambda: passing(str(VIP)), 10, "all pass")
    pid = nodes.status(NODE)["pid"]
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    assert "19788" in rules(), "the killed one has left its rule"
    words = [*MAGLEV, "run", str(nodes.config_path(NODE))]
    with NODE.namespace.start(words, nodes.log_path(NODE), nodes.ENVIRONMENT) as again:
        try:
            goes_on_and_takes_it_away()
        finally:
            again.terminate()


def goes_on_and_takes_it_away() -> None:
    wait_until(lambda: nodes.runs(NODE) and passing(str(VIP)), 20, "all pass again")
    change(lambda config: config["health_checks"]["web-http"].update(via="direct"))
    wait_until(lambda: passing(None), 10, "all pass directly")
    assert "19788" not in rules()
    assert "maglev-probe" not in NODE.namespace.run("ip", "link")
