"""docker-compose.yml: everything it names is there. A schema sees the shape of a file, not what its names lead to."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.config import load

SOURCE = Path(__file__).resolve().parents[2]
NODES = ("lb1", "lb2")
BACKENDS = ("b1", "b2", "b3")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?!/)")
Compose = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> Compose:
    return dict(yaml.safe_load((SOURCE / "docker-compose.yml").read_text()))


def subnets(compose: Compose) -> dict[str, IPv4Network]:
    found = {}
    for name, network in compose["networks"].items():
        (pool,) = network["ipam"]["config"]
        found[name] = IPv4Network(pool["subnet"])
    return found


def gateway(compose: Compose, network: str) -> IPv4Address:
    """What the machine itself has on a network."""
    return IPv4Address(compose["networks"][network]["ipam"]["config"][0]["gateway"])


def attachments(compose: Compose) -> Iterator[tuple[str, str, IPv4Address]]:
    """Every (service, network, address)."""
    for service, wishes in compose["services"].items():
        for network, options in wishes["networks"].items():
            yield service, network, IPv4Address(options["ipv4_address"])


def address(compose: Compose, service: str) -> str:
    """The one address of a service with one network."""
    (found,) = (str(at) for name, _, at in attachments(compose) if name == service)
    return found


def router(compose: Compose, service: str) -> str:
    """The router's address on the network of a service with one network."""
    (network,) = compose["services"][service]["networks"]
    return str(compose["services"]["router"]["networks"][network]["ipv4_address"])


def volumes(compose: Compose) -> Iterator[tuple[str, str, str]]:
    """Every (service, source, target)."""
    for service, wishes in compose["services"].items():
        for volume in wishes.get("volumes", []):
            source, target, *_ = volume.split(":")
            yield service, source, target


def mounted(compose: Compose, service: str, target: str) -> Path:
    """The file of the repository that a service sees at `target`."""
    (source,) = (source for name, source, at in volumes(compose) if (name, at) == (service, target))
    return SOURCE / source


def problems(compose: Compose) -> list[str]:
    """Every name and address in the file that leads nowhere, or to two places."""
    found: list[str] = []
    services, networks = compose["services"], compose["networks"]
    used = {network for wishes in services.values() for network in wishes["networks"]}
    found += [f"network {name} is used but not defined" for name in sorted(used - set(networks))]
    found += [f"network {name} is defined but not used" for name in sorted(set(networks) - used)]
    ranges = subnets(compose)
    names = sorted(ranges)
    found += [
        f"networks {one} and {other} overlap"
        for i, one in enumerate(names)
        for other in names[i + 1 :]
        if ranges[one].overlaps(ranges[other])
    ]
    taken = [(network, gateway(compose, network)) for network in names]
    taken += [(network, at) for _, network, at in attachments(compose) if network in ranges]
    found += [
        f"{at} is not an address of network {name}" for name, at in taken if at not in set(ranges[name].hosts())
    ]
    found += [f"{at} is given twice" for at, count in Counter(at for _, at in taken).items() if count > 1]
    for service, source, _ in volumes(compose):
        if source.startswith((".", "/")):
            if not (SOURCE / source).is_file():
                found.append(f"{service}: {source} is not a file of the repository")
        elif source not in compose["volumes"]:
            found.append(f"{service}: volume {source} is not defined")
    mentioned = {source for _, source, _ in volumes(compose)}
    found += [f"volume {name} is defined but not used" for name in compose["volumes"] if name not in mentioned]
    for service, wishes in services.items():
        for other in wishes.get("depends_on", []):
            if other not in services:
                found.append(f"{service} depends on {other}, which is not a service")
        found += [f"{service}: {what}" for what in build_problems(wishes["build"])]
    return found


def build_problems(build: dict[str, Any]) -> list[str]:
    path = SOURCE / build["context"] / build.get("dockerfile", "Dockerfile")
    if not path.is_file():
        return [f"{path} is not there"]
    stages = re.findall(r"^FROM \S+ AS (\S+)$", path.read_text(), re.MULTILINE)
    target = build.get("target")
    return [f"{path.name} has no stage {target}"] if target is not None and target not in stages else []


def test_every_name_and_address_resolves(compose: Compose) -> None:
    assert problems(compose) == []


def set_address(service: str, network: str, at: str) -> Callable[[Compose], None]:
    return lambda compose: compose["services"][service]["networks"].update({network: {"ipv4_address": at}})


MISTAKES: dict[str, Callable[[Compose], Any]] = {
    "network spare is used but not defined": set_address("b1", "spare", "203.0.113.2"),
    "network spare is defined but not used": lambda compose: compose["networks"].update(
        {"spare": {"ipam": {"config": [{"subnet": "203.0.113.0/24", "gateway": "203.0.113.254"}]}}}
    ),
    "networks b1 and lb1 overlap": lambda compose: compose["networks"]["b1"]["ipam"]["config"][0].update(
        {"subnet": "198.18.0.0/20"}
    ),
    "198.18.12.9 is not an address of network b1": set_address("b1", "b1", "198.18.12.9"),
    "198.18.11.255 is not an address of network b1": set_address("b1", "b1", "198.18.11.255"),
    "198.18.11.1 is given twice": set_address("b1", "b1", "198.18.11.1"),
    "198.18.11.254 is given twice": set_address("b1", "b1", "198.18.11.254"),
    "client: ./docker/none is not a file of the repository": lambda compose: compose["services"]["client"].update(
        {"volumes": ["./docker/none:/none:ro"]}
    ),
    "client: volume spare is not defined": lambda compose: compose["services"]["client"].update(
        {"volumes": ["spare:/spare"]}
    ),
    "volume spare is defined but not used": lambda compose: compose["volumes"].update({"spare": {}}),
    "lb1 depends on gateway, which is not a service": lambda compose: compose["services"]["lb1"].update(
        {"depends_on": ["gateway"]}
    ),
    "client: Dockerfile has no stage customer": lambda compose: compose["services"]["client"]["build"].update(
        {"target": "customer"}
    ),
}


@pytest.mark.parametrize("told", MISTAKES)
def test_a_mistake_is_found(compose: Compose, told: str) -> None:
    """Each of the checks above finds what it is for."""
    changed = copy.deepcopy(compose)
    MISTAKES[told](changed)
    assert told in problems(changed)


def test_the_router_is_on_every_wire_and_nobody_else_is_on_two(compose: Compose) -> None:
    wires = Counter(service for service, _, _ in attachments(compose))
    assert wires.pop("router") == len(compose["networks"])
    assert set(wires.values()) == {1}


def test_what_a_container_is_told_of_the_router_and_the_vip_is_so(compose: Compose) -> None:
    (vip,) = {str(vip.address) for node in NODES for vip in load(SOURCE / f"docker/{node}.yaml").vips}
    for service, wishes in compose["services"].items():
        told = {name.removeprefix("MAGLEV_"): value for name, value in wishes.get("environment", {}).items()}
        known = {"VIP": vip} if service == "router" else {"VIP": vip, "ROUTER": router(compose, service)}
        assert told.get("ROUTER") == known.get("ROUTER"), service
        assert {name: value for name, value in told.items() if name != "METRICS"}.items() <= known.items(), service
    assert not any(ip_address(vip) in subnet for subnet in subnets(compose).values())


@pytest.mark.parametrize("node", NODES)
def test_the_addresses_in_a_nodes_file_are_those_of_the_containers(compose: Compose, node: str) -> None:
    path = mounted(compose, node, "/etc/maglev/maglev.yaml")
    load(path)  # it is a valid file
    config = yaml.safe_load(path.read_text())
    own = address(compose, node)
    assert config["node"]["name"] == node
    assert config["node"]["tunnel_source"] == {"ipv4": own}
    assert (config["bgp"]["router_id"], config["bgp"]["next_hop"]) == (own, {"ipv4": own})
    assert [neighbor["address"] for neighbor in config["bgp"]["neighbors"]] == [router(compose, node)]
    backends = {backend["name"]: backend["address"] for backend in config["backend_pools"]["web"]["backends"]}
    assert backends == {name: address(compose, name) for name in BACKENDS}
    (port,) = config["forwarder"]["ports"]
    (network,) = compose["services"][node]["networks"]
    assert str(port["mtu"]) == compose["networks"][network]["driver_opts"]["com.docker.network.driver.mtu"]


def test_the_nodes_files_differ_in_nothing_but_names_addresses_and_cpus(compose: Compose) -> None:
    texts, cpus = [], []
    for node in NODES:
        config = yaml.safe_load(mounted(compose, node, "/etc/maglev/maglev.yaml").read_text())
        lcores = config["forwarder"].pop("lcores")
        cpus.append({lcores["steering"], *lcores["workers"], lcores["muxing"]})
        text = yaml.safe_dump(config)
        for word in (node, address(compose, node), router(compose, node)):
            text = text.replace(word, "*")
        texts.append(text)
    assert texts[0] == texts[1]
    assert cpus == [{0}, {1}]  # a laptop has two; one node keeps serving when something takes the other's


def test_the_routers_file_has_the_nodes_and_the_vips_prefix(compose: Compose) -> None:
    text = mounted(compose, "router", "/etc/maglev/bird.conf").read_text()
    neighbors = dict(re.findall(r"^protocol bgp (\w+) from node \{ neighbor (\S+) as 65002; \}$", text, re.MULTILINE))
    assert neighbors == {node: address(compose, node) for node in NODES}
    own = {str(at) for service, _, at in attachments(compose) if service == "router"}
    (router_id,) = re.findall(r"^router id (\S+);$", text, re.MULTILINE)
    assert router_id in own
    (prefix,) = re.findall(r"net ~ \[ (\S+)\{32,32\} \]", text)
    for node in NODES:
        vips = load(mounted(compose, node, "/etc/maglev/maglev.yaml")).vips
        assert all(ip_address(str(vip.address)) in ip_network(prefix) for vip in vips)


def test_prometheus_asks_each_node_where_its_metrics_are_carried_to(compose: Compose) -> None:
    config = yaml.safe_load(mounted(compose, "monitor", "/etc/maglev/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    asked = {group["labels"]["node"]: group["targets"] for group in job["static_configs"]}
    for node in NODES:
        carried = compose["services"][node]["environment"]["MAGLEV_METRICS"]
        assert asked.pop(node) == [carried]
        listen = yaml.safe_load(mounted(compose, node, "/etc/maglev/maglev.yaml").read_text())["metrics"]["listen"]
        at, _, port = carried.rpartition(":")
        assert (at, f"127.0.0.1:{port}") == (address(compose, node), listen)
    assert asked == {}


def test_no_mounted_file_has_an_address_that_no_container_has(compose: Compose) -> None:
    known = {str(at) for _, _, at in attachments(compose)} | {"127.0.0.1"}
    known |= {str(vip.address) for vip in load(SOURCE / "docker/lb1.yaml").vips}
    for service, source, _ in volumes(compose):
        if source.startswith("."):
            assert set(ADDRESS.findall((SOURCE / source).read_text())) <= known, (service, source)


def test_the_builder_is_sent_whatever_the_dockerfiles_copy() -> None:
    """.dockerignore names what is sent; a COPY of anything else fails only once somebody builds."""
    lines = (SOURCE / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    for dockerfile in (SOURCE / "Dockerfile", SOURCE / "docker/Dockerfile"):
        for words in re.findall(r"^COPY (?!--from)(.+)$", dockerfile.read_text(), re.MULTILINE):
            for source in words.split()[:-1]:
                assert (SOURCE / source).exists(), (dockerfile.name, source)
                assert source == "." or source.split("/")[0] in sent, (dockerfile.name, source)
