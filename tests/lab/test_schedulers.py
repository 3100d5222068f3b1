"""A vip for every scheduler, for real: TCP through two nodes that were told all of it in different orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
import yaml
from needs import LAB
from whole_lab import maglev, requests, routed, whole_lab

from controller import offline
from controller.api_client import ask
from controller.config import Config, load
from forwarder.hashing import slot_table, twin
from forwarder.hashing.digest import state_digest
from forwarder.hashing.slot_table import SCHEDULERS
from lab import nodes
from lab.laboratory import settled, wait_until
from lab.nodes import WORK
from lab.topology import BACKENDS, NODES, VIP, Host

REQUESTS = 400  # to each vip, each on a connection of its own
WEIGHTS = {"b1": 100, "b2": 100, "b3": 200, "b4": 0}
VIPS = {scheduler: VIP + 10 + number for number, scheduler in enumerate(SCHEDULERS)}
HASH_KEY = bytes(range(16))  # of configs/lab/lb.yaml

pytestmark = LAB


def configure(node: Host, backwards: bool) -> Config:
    """The lab's config with a vip for every scheduler beside its own; `backwards` lists vips and backends so."""
    step = -1 if backwards else 1
    path = nodes.config_path(node)
    config = yaml.safe_load(path.read_text())
    config["backend_pools"]["web"]["backends"] = [
        {"name": backend.name, "address": str(backend.address), "weight": WEIGHTS[backend.name]}
        for backend in BACKENDS[::step]
    ]
    config["vips"] += [
        {"name": name, "address": str(address), "protocol": "tcp", "port": 80, "pools": ["web"], "scheduler": name}
        for name, address in list(VIPS.items())[::step]
    ]
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return load(path)


@pytest.fixture(scope="module")
def configs() -> Iterator[dict[str, Config]]:
    """The lab is up, and both nodes serve every vip of their configs."""
    with whole_lab():
        for backend in BACKENDS:
            for address in VIPS.values():
                backend.namespace.ip("address", "add", f"{address}/32", "dev", "lo")
        made = {node.name: configure(node, backwards=node is NODES[1]) for node in NODES}
        for node in NODES:
            maglev("reload", "--node", node.name)
        for address in VIPS.values():
            wait_until(lambda address=address: routed(address), 20, f"{address} is announced by every node")  # type: ignore[misc]
        serve = {backend.name for backend in BACKENDS if WEIGHTS[backend.name]}
        wait_until(lambda: settled(serve), 20, "both nodes forward by the same state")
        yield made


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_request_is_answered_and_backends_share_them(configs: dict[str, Config], scheduler: str) -> None:
    seen = requests(VIPS[scheduler], REQUESTS)
    assert (seen["answered"], seen["failed"], seen["retries"]) == (REQUESTS, 0, [])
    assert sum(seen["per_backend"].values()) == REQUESTS
    shares = {name: WEIGHTS[name] / 400 * REQUESTS for name in ("b1", "b2", "b3")}
    assert set(seen["per_backend"]) == set(shares)
    # Chance, and on a circle of 160 points and of 1024 gateways a few shares that are off by a third.
    assert all(0.4 < seen["per_backend"][name] / share < 1.7 for name, share in shares.items()), seen


def test_both_nodes_have_the_state_that_anybody_can_compute(configs: dict[str, Config]) -> None:
    """Its digest is over every vip's scheduler and table."""
    expected = {state_digest(offline.replay_request(config)["state"]) for config in configs.values()}
    assert {nodes.status(node)["digest"] for node in NODES} == expected
    assert len(expected) == 1


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_both_nodes_build_the_same_table(configs: dict[str, Config], scheduler: str) -> None:
    tables = [offline.table(config, scheduler) for config in configs.values()]
    assert tables[0]["digest"] == tables[1]["digest"] == slot_table.build(WEIGHTS, 65537, scheduler).digest
    for node in NODES:
        (vip,) = (vip for vip in nodes.status(node)["vips"] if vip["name"] == scheduler)
        assert {member["name"]: member["slots"] for member in vip["members"]} == tables[0]["backends"]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_both_forwarders_send_a_flow_where_the_table_says(configs: dict[str, Config], scheduler: str) -> None:
    """Asked what they would do with flows that nobody has sent."""
    table = slot_table.build(WEIGHTS, 65537, scheduler)
    source, destination = ip_address("198.51.100.99"), VIPS[scheduler]
    chosen = Counter[str]()
    for port in range(2000, 2040):
        hashed = twin.flow_hash(HASH_KEY, source.packed, destination.packed, port, 80, 6)
        expected = table.names[table.slots[(hashed >> 32) % 65537]]
        flow = {"source": str(source), "source_port": port, "destination": str(destination), "destination_port": 80}
        for node in NODES:
            told = ask(WORK / "run" / node.name / "controller.sock", "POST", "/lookup", {"protocol": "tcp", **flow})
            assert (told["vip"], told["backend"], told["fate"]) == (scheduler, expected, "hash_new")
        chosen[expected] += 1
    assert set(chosen) == {"b1", "b2", "b3"}
