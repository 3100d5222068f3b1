"""The nodes of the lab, driven as an operator would: a config file, `maglev run`, `maglev reload`, a signal.

They run under a base directory of the lab's own and so never meet a real node of this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from controller.api_client import ApiError, ask
from lab.namespaces import SOURCE, LabError, command
from lab.topology import DEVICE, NODES, TUNNEL_MTU, Host

WORK: Final = Path("/run/maglev-lab")  # everything the lab leaves on disk
TEMPLATE: Final = SOURCE / "configs/lab/lb.yaml"
ENVIRONMENT: Final = {"MAGLEV_RUN_DIR": str(WORK / "run")}
MAGLEV: Final = (sys.executable, "-m", "controller.cli")  # `maglev`, installed or not


def config_path(node: Host) -> Path:
    """The config file of a node."""
    return WORK / f"{node.name}.yaml"


def configure(node: Host, pool: Sequence[Host], hugepages: bool, mtu: int = TUNNEL_MTU) -> None:
    """Write a node's config: the template with the node's own addresses and these backends."""
    config = yaml.safe_load(TEMPLATE.read_text())
    own, gateway = str(node.address), str(node.gateway)
    config["node"] |= {"name": node.name, "tunnel_source": {"ipv4": own}}
    config["forwarder"]["hugepages"] = hugepages
    config["forwarder"]["ports"][0] |= {"device": DEVICE, "mtu": mtu}
    config["bgp"] |= {"router_id": own, "next_hop": {"ipv4": own}}
    config["bgp"]["neighbors"][0]["address"] = gateway
    config["backend_pools"]["web"]["backends"] = [
        {"name": backend.name, "address": str(backend.address)} for backend in pool
    ]
    config_path(node).write_text(yaml.safe_dump(config, sort_keys=False))


def reconfigure(node: Host, pool: Sequence[Host]) -> None:
    """Write a node's config with other backends; what the lab came up with stays."""
    forwarder = yaml.safe_load(config_path(node).read_text())["forwarder"]
    configure(node, pool, bool(forwarder["hugepages"]), int(forwarder["ports"][0]["mtu"]))


def change_pool(pool: Sequence[Host]) -> None:
    """Edit the config of every node so that the pool has these backends, and have it read anew."""
    for node in NODES:
        reconfigure(node, pool)
    for node in NODES:
        command("env", *(f"{k}={v}" for k, v in ENVIRONMENT.items()), *MAGLEV, "reload", "--node", node.name)


def log_path(node: Host) -> Path:
    """Where a node's controller writes."""
    return WORK / f"{node.name}.log"


def last_words(node: Host) -> str:
    """The last line a node's controller wrote, for an error message."""
    lines = log_path(node).read_text().splitlines() if log_path(node).exists() else []
    return f"{node.name} said: {lines[-1]}" if lines else ""


def start(node: Host) -> None:
    """Start `maglev run` inside a node's namespace."""
    node.namespace.start([*MAGLEV, "run", str(config_path(node))], log_path(node), ENVIRONMENT)


def status(node: Host) -> dict[str, Any]:
    """What a node says of itself, see `maglev status`."""
    try:
        return ask(WORK / "run" / node.name / "controller.sock", "GET", "/status")
    except ApiError as error:
        raise LabError(f"{node.name} does not tell its status: {error}.") from error


def runs(node: Host) -> bool:
    """Whether a node's controller is alive and answers."""
    try:
        return bool(status(node)["pid"])
    except LabError:
        return False


def slots(node: Host) -> dict[str, int]:
    """Slots of the Maglev table by backend, those that own none left out."""
    members = [member for vip in status(node)["vips"] for member in vip["members"]]
    return {member["name"]: member["slots"] for member in members if member["slots"]}


def fates(node: Host) -> dict[str, int]:
    """Packets by fate since the node's forwarder was started."""
    stats = status(node)["stats"]
    if stats is None:
        raise LabError(f"the forwarder of {node.name} has no counters.")
    return dict(stats["fates"])


def forwarder_pid(node: Host) -> int:
    """The process that forwards."""
    return int(status(node)["forwarder"]["pid"])
