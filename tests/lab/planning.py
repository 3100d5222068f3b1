"""The lab with four vips and flows that only a test makes: what a plan says, and what then happens, counted apart.

All packets come by one node. The other one has no flows, so what it answers of a flow is what the routers would find
if they rehashed.
"""

from __future__ import annotations

import copy
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import yaml
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from wire import PATIENCE, Asker, packet_socket, wait_until

from controller import offline
from controller.api_client import ask
from controller.config import loads
from forwarder.hashing.digest import state_digest
from lab import nodes
from lab.nodes import ENVIRONMENT, MAGLEV, WORK
from lab.topology import BACKENDS, CLIENT, DEVICE, NODES, ROUTER, Host

Json = dict[str, Any]
Service = tuple[str, str, int]
NODE, OTHER = NODES
SERVICES = {
    "www": {"address": "192.0.2.1", "protocol": "tcp", "port": 80, "pools": ["web"]},
    "dns": {"address": "192.0.2.1", "protocol": "udp", "port": 53, "pools": ["web"], "table_size": 4099},
    "api": {"address": "192.0.2.2", "protocol": "tcp", "port": 443, "pools": ["api"]},
    "game": {"address": "192.0.2.2", "protocol": "udp", "port": 5000, "pools": ["web"], "affinity": "client"},
}
ADDRESS = {backend.name: str(backend.address) for backend in BACKENDS}


@dataclass(frozen=True)
class Flow:
    service: Service
    source_port: int

    def question(self) -> Json:
        address, protocol, port = self.service
        source = {"source": str(CLIENT.address), "source_port": self.source_port}
        return {"protocol": protocol, "destination": address, "destination_port": port, **source}

    def frame(self) -> bytes:
        """One packet of it; never a SYN, so that no backend answers with one."""
        address, protocol, port = self.service
        ports = {"sport": self.source_port, "dport": port}
        transport = TCP(flags="A", **ports) if protocol == "tcp" else UDP(**ports) / b"datagram"
        return bytes(IP(src=str(CLIENT.address), dst=address) / transport)


@dataclass(frozen=True)
class Seen:
    """Where each flow goes at a moment: at the node that has it, and where a node without it would send it."""

    here: dict[Flow, str | None]
    elsewhere: dict[Flow, str | None]


def maglev(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["env", *(f"{key}={value}" for key, value in ENVIRONMENT.items()), *MAGLEV, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def api(node: Host, resource: str, body: Json) -> Json:
    return ask(WORK / "run" / node.name / "controller.sock", "POST", resource, body)


def service(name: str, config: Json) -> Service:
    (vip,) = (vip for vip in config["vips"] if vip["name"] == name)
    return vip["address"], vip["protocol"], vip["port"]


class Planning:
    """Two nodes of the lab, their configuration, and the flows."""

    def __init__(self) -> None:
        self.config = {node.name: yaml.safe_load(nodes.config_path(node).read_text()) for node in NODES}
        for config in self.config.values():
            config["health_checks"]["web-http"] |= {"interval": "100ms", "timeout": "100ms", "rise": 1}
            config["backend_pools"] = {
                name: {
                    "health_checks": ["web-http"],
                    "backends": [{"name": n, "address": ADDRESS[n]} for n in members],
                }
                for name, members in {"web": ("b1", "b2", "b3"), "api": ("b1", "b2")}.items()
            }
            config["vips"] = [{"name": name, **copy.deepcopy(vip)} for name, vip in SERVICES.items()]
        self.flows: list[Flow] = []
        self._ports = iter(range(20000, 65000))
        self._socket = packet_socket(CLIENT.namespace.full_name, DEVICE)
        (own,), (router,) = CLIENT.namespace.show("link", "show", DEVICE), ROUTER.show("link", "show", CLIENT.name)
        self._ether = bytes(Ether(src=own["address"], dst=router["address"], type=0x0800))
        self._askers: dict[str, Asker] = {}

    def begin(self) -> None:
        """Have both nodes serve the four vips, and all traffic come by one of them."""
        for node in NODES:
            self.write(node, self.config[node.name])
            api(node, "/reload", {})
        self.until_in_force()
        api(OTHER, "/drain-self", {"drain": True})
        wait_until(lambda: len(nodes.status(NODE)["announced"]) == 2, "both addresses are announced")
        wait_until(lambda: all(route == [str(NODE.address)] for route in self._routes()), "all goes by one node")
        self._askers = {node.name: Asker(WORK / "run" / node.name / "forwarder.sock") for node in NODES}

    @staticmethod
    def _routes() -> list[list[str]]:
        """The next hops of each address."""
        shown = [ROUTER.show("route", "show", f"{address}/32") for address in ("192.0.2.1", "192.0.2.2")]
        return [[hop["gateway"] for route in routes for hop in route.get("nexthops", [route])] for routes in shown]

    @staticmethod
    def write(node: Host, config: Json) -> None:
        nodes.config_path(node).write_text(yaml.safe_dump(config, sort_keys=False))

    def loaded(self, node: Host = NODE) -> Any:
        return loads(yaml.safe_dump(self.config[node.name]))

    def by_client(self) -> set[Service]:
        """The vips with affinity of the client."""
        vips = self.loaded().all_services
        return {(str(vip.address), vip.protocol, vip.port) for vip in vips if vip.affinity == "client"}

    def until_in_force(self) -> None:
        """Both forwarders have the state of the configuration in which every backend is healthy, and its tables."""
        digest = state_digest(offline.replay_request(self.loaded())["state"])
        wait_until(lambda: all(nodes.status(node)["digest"] == digest for node in NODES), "the state is in force")

    def updates(self) -> int:
        """BGP updates that the router has had of the node."""
        shown = ROUTER.run("birdc", "-s", str(WORK / "bird.ctl"), "show", "protocols", "all", NODE.name)
        (line,) = (line for line in shown.splitlines() if line.split()[:2] == ["Import", "updates:"])
        return int(line.split()[2])

    # -- flows

    def open(self, count: int) -> None:
        """So many new flows of each vip there is, and a packet more of those that there are, so that none expires.

        Returns once the node knows all of them.
        """
        services = [service(vip["name"], self.config[NODE.name]) for vip in self.config[NODE.name]["vips"]]
        fresh = [Flow(of, next(self._ports)) for of in services for _ in range(count)]
        self._send(self.flows + fresh)
        deadline = time.monotonic() + PATIENCE
        while missing := [flow for flow in fresh if self._ask(NODE, flow)["source"] != "connection"]:
            assert time.monotonic() < deadline, f"{len(missing)} flows are not known to the node"
            self._send(missing)
            time.sleep(0.05)
        self.flows += fresh

    def _send(self, flows: Iterable[Flow]) -> None:
        for number, flow in enumerate(flows):
            self._socket.send(self._ether + flow.frame())
            if number % 32 == 31:
                time.sleep(0.002)

    def _ask(self, node: Host, flow: Flow) -> Json:
        return self._askers[node.name].ask("lookup", **flow.question())

    def seen(self) -> Seen:
        """What both nodes say now."""
        here = {flow: self._ask(NODE, flow) for flow in self.flows}
        elsewhere = {flow: self._ask(OTHER, flow) for flow in self.flows}
        assert all(answer["source"] == "table" for answer in elsewhere.values())
        return Seen(*({flow: answer["backend"] for flow, answer in answers.items()} for answers in (here, elsewhere)))

    def forget_ended(self) -> None:
        """Leave flows that have lost their backend, or whose vip is gone, out of what follows."""
        self.flows = [flow for flow in self.flows if self._ask(NODE, flow)["source"] == "connection"]

    # -- a change

    def change(self, edit: Callable[[Json], object]) -> tuple[Json, Json]:
        """What the node says that the change would do, with the change made afterwards; and what has happened."""
        before, tables = self.seen(), self._tables()
        old = self.loaded()
        for node in NODES:
            edit(self.config[node.name])
            self.write(node, self.config[node.name])
        told = maglev("reload", "--dry-run", "--json", "--node", NODE.name)
        assert told.returncode == 0, told.stderr
        planned = json.loads(told.stdout)
        self._send(self.flows)  # the flows go on meanwhile
        slots = [{key: value for key, value in vip.items() if key != "flows"} for vip in planned["vips"]]
        assert slots == offline.plan(old, self.loaded())["vips"], "the plan of the two files is the same"
        done = maglev("reload", "--json", "--node", NODE.name)
        assert json.loads(done.stdout) == {"applied": True, "changes": planned["changes"]}
        api(OTHER, "/reload", {})
        self.until_in_force()
        happened = self._happened(before, self.seen())
        for of, vip in self._moved(tables, self._tables()).items():
            happened.setdefault(of, {})["slots"] = vip
        return {(vip["address"], vip["protocol"], vip["port"]): vip for vip in planned["vips"]}, happened

    def _tables(self) -> dict[Service, list[tuple[str, str]]]:
        """The owner of each slot: name and address."""
        config = self.loaded()
        of = {m.backend.name: str(m.backend.address) for vip in config.all_services for m in vip.members}
        return {
            (str(vip.address), vip.protocol, vip.port): [(n, of[n]) for n in offline.table(config, vip.name)["slots"]]
            for vip in config.all_services
        }

    @staticmethod
    def _happened(before: Seen, after: Seen) -> Json:
        flows: dict[Service, Counter[str]] = {}
        for flow, backend in before.here.items():
            lost, at_risk = after.here[flow] != backend, after.elsewhere[flow] != backend
            moved = at_risk and (lost or before.elsewhere[flow] == backend)
            flows.setdefault(flow.service, Counter()).update(live=1, at_risk=at_risk, moved=moved, lost=lost)
        return {of: {"flows": dict(counts)} for of, counts in flows.items()}

    @staticmethod
    def _moved(old: Json, new: Json) -> Json:
        """Per vip the slots whose owner differs, by why; nothing for tables of different sizes."""
        moved: Json = {}
        for of in old.keys() & new.keys():
            if len(old[of]) != len(new[of]):
                continue
            had, have = set(old[of]), set(new[of])
            pairs = [pair for pair in zip(old[of], new[of], strict=True) if pair[0] != pair[1]]
            left = sum(was not in have for was, _ in pairs)
            joined = sum(was in have and owner not in had for was, owner in pairs)
            moved[of] = {"moved": len(pairs), "left": left, "joined": joined, "besides": len(pairs) - left - joined}
        return moved

    def close(self) -> None:
        self._socket.close()
        for asker in self._askers.values():
            asker.close()


def backends(pool: str, *members: str | Json) -> Callable[[Json], None]:
    """Give a pool other members, by their names or as they stand in the file."""

    def edit(config: Json) -> None:
        listed = [{"name": m} if isinstance(m, str) else m for m in members]
        config["backend_pools"][pool]["backends"] = [{"address": ADDRESS[m["name"]], **m} for m in listed]

    return edit


def vip(name: str, **changes: Any) -> Callable[[Json], None]:
    """Change keys of a vip."""

    def edit(config: Json) -> None:
        (found,) = (vip for vip in config["vips"] if vip["name"] == name)
        found |= changes

    return edit


def added(name: str, **keys: Any) -> Callable[[Json], None]:
    return lambda config: config["vips"].append({"name": name, **keys})


def removed(name: str) -> Callable[[Json], None]:
    def edit(config: Json) -> None:
        config["vips"] = [vip for vip in config["vips"] if vip["name"] != name]

    return edit


def all_of(*edits: Callable[[Json], None]) -> Callable[[Json], None]:
    def edit(config: Json) -> None:
        for one in edits:
            one(config)

    return edit
