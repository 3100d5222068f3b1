"""The laboratory with both nodes' ports under af_xdp: BGP and health checks go by the interface that forwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import yaml
from needs import LAB, XDP
from whole_lab import requests, routed

from forwarder import xdp
from lab import laboratory, namespaces, nodes
from lab.laboratory import wait_until
from lab.nodes import MAGLEV, WORK
from lab.topology import BACKENDS, DEVICE, NODES, ROUTER, VIP, Host

MORE = VIP + 1
REQUESTS = 1000
UP = """
import sys
from pathlib import Path
from lab import laboratory, nodes
nodes.TEMPLATE = Path(sys.argv[1])
laboratory.up(print)
"""

pytestmark = [*LAB, XDP]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """It is up."""
    config = yaml.safe_load(nodes.TEMPLATE.read_text())
    config["forwarder"]["ports"][0]["driver"] = "af_xdp"
    template: Path = tmp_path_factory.mktemp("lab") / "lb.yaml"
    template.write_text(yaml.safe_dump(config, sort_keys=False))
    try:
        subprocess.run([sys.executable, "-c", UP, str(template)], check=True, timeout=120)
        for backend in BACKENDS:
            backend.namespace.ip("address", "add", f"{MORE}/32", "dev", "lo")
        yield
    finally:
        laboratory.down()
    assert namespaces.existing() == []


def reload(*vips: dict[str, Any]) -> None:
    """Every node has its vip and these."""
    for node in NODES:
        path = nodes.config_path(node)
        config = yaml.safe_load(path.read_text())
        config["vips"] = [*config["vips"][:1], *vips]
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        words = [*MAGLEV, "reload", "--node", node.name]
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, **nodes.ENVIRONMENT})


def another(node: Host, was: int) -> bool:
    """Whether the node has another forwarder than it had."""
    return nodes.status(node)["forwarder"]["pid"] not in (None, was)


def program(node: Host) -> str | None:
    """The name of the XDP program at the node's interface."""
    (link,) = node.namespace.show("link", "show", DEVICE)
    return str(link["xdp"]["prog"]["name"]) if "xdp" in link else None


def assert_answered(address: IPv4Address) -> None:
    seen = requests(address, REQUESTS)
    assert (seen["answered"], seen["failed"], seen["retries"]) == (REQUESTS, 0, [])


def test_every_request_is_answered_and_nodes_received_nothing_else(lab: None) -> None:
    """BGP, ARP and health checks of the nodes are not among what their forwarders received."""
    assert_answered(VIP)
    for node in NODES:
        fates = {fate: n for fate, n in nodes.fates(node).items() if n}
        assert set(fates) == {"hash_new", "conn_hit"}, node.name
        assert nodes.status(node)["stats"]["ports"][0]["missed"] == 0


def test_a_vip_of_a_reload_is_served_while_it_is_there(lab: None) -> None:
    reload({"name": "more", "address": str(MORE), "protocol": "tcp", "port": 80, "pools": ["web"]})
    wait_until(lambda: routed(MORE), 20, "the vip is announced by every node")
    assert_answered(MORE)
    reload()
    wait_until(lambda: not ROUTER.show("route", "show", f"{MORE}/32"), 20, "it is withdrawn")
    assert_answered(VIP)


def test_a_forwarder_that_was_killed_comes_back_under_af_xdp(lab: None) -> None:
    for node in NODES:
        was = nodes.forwarder_pid(node)
        os.kill(was, signal.SIGKILL)
        wait_until(lambda node=node, was=was: another(node, was), 20, "it is started again")  # type: ignore[misc]
        wait_until(laboratory.all_announced, 20, "it is announced again")
    assert_answered(VIP)


def test_no_program_is_left_when_a_node_ends(lab: None) -> None:
    assert program(NODES[0]) == xdp.NAME
    os.kill(nodes.status(NODES[0])["pid"], signal.SIGTERM)
    wait_until(lambda: program(NODES[0]) is None, 20, "the forwarder has ended")
    assert "did not return" not in (WORK / "run" / NODES[0].name / "forwarder.log").read_text()
    assert_answered(VIP)
