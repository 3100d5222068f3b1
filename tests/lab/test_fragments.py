"""Fragmented datagrams over two nodes of two workers each, to kernels that put them together and sockets that say so.

Real are the nodes (`maglev run`), what they get and send, the router between them, decapsulation, reassembly and UDP
at the backends. The router's choice is not: a kernel sends all fragments between two hosts one way, so the test puts
each fragment on the wire to the one node or the other by itself. The ports are net_pcap's: under af_packet the kernel
reassembles first, as the last test shows.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from needs import LAB
from packets.cluster import owner, pieces, pieces6
from packets.world import BACKENDS as SERVERS
from packets.world import HASH_KEY, VIP6, ether, state, vip
from wire import PEER_ADDRESS, Forwarder, Wire, packet_socket, wait_until

from controller.api_client import ApiError, ask
from lab import namespaces, topology
from lab.nodes import MAGLEV
from lab.topology import BACKENDS, CLIENT, CLIENT_ADDRESSES, DEVICE, NODES, PORT, ROUTER, VIP, Host

PREFIX = "maglev-tF-"  # beside the lab, not in its way
COUNT, SIZE = 500, 3000
FIRST_PORT = 20000
TUNNEL_MTU = 1600
OTHER_MAC = "02:00:00:00:77:77"

# A backend's server: one line for each datagram that arrives whole.
RECEIVE = f"""
import hashlib, socket, sys
server = socket.socket(type=socket.SOCK_DGRAM)
server.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
server.bind(("{VIP}", {PORT}))
while True:
    payload, (source, port) = server.recvfrom(65536)
    print(source, port, len(payload), hashlib.sha256(payload).hexdigest(), flush=True)
"""
# The client's kernel sends a small datagram of each flow; the router spreads them as it likes.
SEND = f"""
import socket, sys, time
for number, line in enumerate(sys.stdin):
    source, port = line.split()
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.bind((source, int(port)))
        sender.sendto(b"small", ("{VIP}", {PORT}))
    if number % 32 == 31:
        time.sleep(0.005)
"""

pytestmark = LAB


def link(namespace: str, device: str) -> dict[str, Any]:
    (shown,) = namespaces.Namespace(namespace).show("link", "show", device)
    return shown


def config(node: Host) -> dict[str, Any]:
    """Both nodes alike, but for what is their own."""
    cpus = sorted(os.sched_getaffinity(0))
    gateway = {"ipv4": str(node.gateway), "mac": link("router", node.name)["address"]}
    device = f"net_pcap0,rx_iface_in={DEVICE},tx_iface={DEVICE}"
    return {
        "node": {
            "name": node.name,
            "tunnel_source": {"ipv4": str(node.address)},
            "hash_key": HASH_KEY.hex(),
            "drain_time": "0s",
        },
        "forwarder": {
            "ports": [{"device": device, "mtu": TUNNEL_MTU, "gateway": gateway}],
            "lcores": {"steering": cpus[0], "workers": [cpus[0], cpus[-1]], "muxing": cpus[-1]},
            "hugepages": False,
            "connection_table": {"entries": 16384},
        },
        "cluster": {"nodes": [{"name": other.name, "address": str(other.address)} for other in NODES]},
        "backend_pools": {"dns": {"backends": [{"name": b.name, "address": str(b.address)} for b in BACKENDS]}},
        "vips": [{"name": "dns", "address": str(VIP), "protocol": "udp", "port": PORT, "pools": ["dns"]}],
    }


class Laboratory:
    """The lab's topology with static routes, both nodes, and a UDP server at each backend."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.servers: list[subprocess.Popen[str]] = []
        self.nodes: dict[str, subprocess.Popen[str]] = {}
        self.wires: dict[str, socket.socket] = {}

    def build(self) -> None:
        topology.build()
        hops = [word for node in NODES for word in ("nexthop", "via", str(node.address))]
        ROUTER.ip("route", "add", f"{VIP}/32", *hops)
        for backend in BACKENDS:
            # The fragments of a datagram may have any number of others between them here, on no real way so many.
            backend.namespace.run("sysctl", "-qw", "net.ipv4.ipfrag_max_dist=0")
            self._serve(backend, self.report_path(backend), "-c", RECEIVE)
            if not topology.decapsulates_itself(backend):
                self._serve(backend, self.work / "decap.log", "-m", "lab.decap", topology.DECAP_DEVICE)
        for node in NODES:
            self.nodes[node.name] = self._start(node)
            self.wires[node.name] = packet_socket(ROUTER.full_name, node.name)
        self.macs = {
            node.name: (link(node.name, DEVICE)["address"], link("router", node.name)["address"]) for node in NODES
        }
        wait_until(lambda: all(map(self._serves, NODES)), "both nodes serve")

    def _serve(self, backend: Host, log: Path, *words: str) -> None:
        self.servers.append(backend.namespace.start([sys.executable, *words], log))

    def _start(self, node: Host) -> subprocess.Popen[str]:
        path = self.work / f"{node.name}.yaml"
        path.write_text(yaml.safe_dump(config(node)))
        environment = {"MAGLEV_RUN_DIR": str(self.work / "run")}
        return node.namespace.start([*MAGLEV, "run", str(path)], self.log_path(node.name), environment)

    def log_path(self, node: str) -> Path:
        return self.work / f"{node}.log"

    def report_path(self, backend: Host) -> Path:
        return self.work / f"{backend.name}.txt"

    def status(self, node: Host) -> dict[str, Any]:
        return ask(self.work / "run" / node.name / "controller.sock", "GET", "/status")

    def _serves(self, node: Host) -> bool:
        with suppress(ApiError):
            status = self.status(node)
            return bool(status["forwarder"]["healthy"] and status["generation"])
        return False

    def put(self, node: str, packet: bytes, mac: str | None = None) -> None:
        """One IPv4 packet on the wire from the router to a node, or to another MAC there."""
        own, source = self.macs[node]
        addresses = (bytes.fromhex(text.replace(":", "")) for text in (mac or own, source))
        self.wires[node].send(b"".join(addresses) + b"\x08\x00" + packet)

    def left(self, node: str) -> list[bytes]:
        """The GRE packets that a node has sent since it was asked last."""
        packets = []
        with suppress(TimeoutError):
            while True:
                frame = self.wires[node].recv(65536)
                if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_GRE:
                    packets.append(frame[14:])
        return packets

    def reports(self) -> dict[tuple[str, int, int], list[tuple[str, str]]]:
        """What arrived, by source, port and length: (backend, SHA-256) of each."""
        found: dict[tuple[str, int, int], list[tuple[str, str]]] = {}
        for backend in BACKENDS:
            # A write that crosses a page shows in two parts, so the last line may still be half of one.
            whole, _, _ = self.report_path(backend).read_text().rpartition("\n")
            for line in whole.splitlines():
                source, port, length, digest = line.split()
                found.setdefault((source, int(port), int(length)), []).append((backend.name, digest))
        return found

    def close(self) -> None:
        """Whatever stands of it."""
        for wire in self.wires.values():
            wire.close()
        namespaces.remove_all()
        for process in [*self.servers, *self.nodes.values()]:
            process.wait()


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    monkeypatch.setattr(namespaces, "PREFIX", PREFIX)
    namespaces.remove_all()
    made = Laboratory(tmp_path)
    try:
        made.build()
        yield made
    finally:
        made.close()


def test_500_shuffled_datagrams_over_two_nodes_arrive_whole_at_the_backend_of_their_flow(
    laboratory: Laboratory,
) -> None:
    dice = random.Random(4)
    flows = {n: (str(CLIENT_ADDRESSES[n % len(CLIENT_ADDRESSES)]), FIRST_PORT + n) for n in range(COUNT)}
    datagrams = {n: pieces(port, SIZE, n, PORT, src=source, dst=str(VIP)) for n, (source, port) in flows.items()}
    payloads = {n: hashlib.sha256(random.Random(n).randbytes(SIZE)).hexdigest() for n in flows}
    sent = [(dice.choice(NODES).name, bytes(part)) for parts in datagrams.values() for part in parts]
    dice.shuffle(sent)
    before = {node.name: laboratory.status(node)["stats"] for node in NODES}
    for number, (node, packet) in enumerate(sent, 1):
        laboratory.put(node, packet)
        laboratory.put(node, packet, OTHER_MAC)  # as a switch may flood it: none of the node's business
        if number % 32 == 0:
            time.sleep(0.005)
    wait_until(lambda: len(laboratory.reports()) >= COUNT, "500 datagrams have arrived")
    between = check_the_nodes(laboratory, sent, before)
    send_whole_ones(flows.values())
    wait_until(lambda: len(laboratory.reports()) >= 2 * COUNT, "a small one of each flow has arrived")
    went = Counter[str]()
    reports = laboratory.reports()
    assert len(reports) == 2 * COUNT
    for number, (source, port) in flows.items():
        ((backend, digest),) = reports[source, port, SIZE]
        assert digest == payloads[number]
        ((backend_of_the_flow, _),) = reports[source, port, len(b"small")]
        assert backend == backend_of_the_flow
        went[backend] += 1
    assert set(went) == {backend.name for backend in BACKENDS}
    print(f"{between} of {len(sent)} fragments went from node to node; at the backends {dict(went)}")
    end_the_nodes(laboratory)


def check_the_nodes(laboratory: Laboratory, sent: list[tuple[str, bytes]], before: dict[str, Any]) -> int:
    """Each fragment left once for a backend, and was sent on once where the other node has it; all are counted."""

    def settled() -> bool:
        return all(stats["received"] == sum(stats["fates"].values()) for stats in map(stats_of, NODES))

    def stats_of(node: Host) -> dict[str, Any]:
        return laboratory.status(node)["stats"]

    wait_until(settled, "every packet has a fate")
    left = {node.name: laboratory.left(node.name) for node in NODES}
    sent_on = {
        name: [packet[24:] for packet in packets if packet[20:24] == b"\1\0\x08\0"] for name, packets in left.items()
    }
    to_backends = [packet[24:] for packets in left.values() for packet in packets if packet[20:24] == b"\0\0\x08\0"]
    assert sorted(to_backends) == sorted(packet for _, packet in sent)
    for node in NODES:
        at_the_wrong_one = [packet for name, packet in sent if name == node.name != owner_of(packet)]
        assert sorted(sent_on[node.name]) == sorted(at_the_wrong_one)
        after = stats_of(node)
        assert after["held"] == 0
        fates = {f: n - before[node.name]["fates"][f] for f, n in after["fates"].items()}
        assert fates["fragment"] == len(left[node.name])
        assert fates["fragment_unmatched"] == 0
    between = sum(map(len, sent_on.values()))
    assert between > len(sent) // 3
    return between


def owner_of(packet: bytes) -> str:
    source, destination = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
    return owner(source, destination, packet[9], [node.name for node in NODES])


def send_whole_ones(flows: Any) -> None:
    lines = "".join(f"{source} {port}\n" for source, port in flows)
    command = ["ip", "netns", "exec", CLIENT.namespace.full_name, sys.executable, "-c", SEND]
    subprocess.run(command, input=lines, text=True, check=True)


def end_the_nodes(laboratory: Laboratory) -> None:
    """Nothing is left behind, and no packet is missing from the pool."""
    for process in laboratory.nodes.values():
        process.terminate()
    for name, process in laboratory.nodes.items():
        assert process.wait(20) == 0, name
        assert "not ended well" not in laboratory.log_path(name).read_text()


# -- under af_packet


@pytest.fixture
def serving() -> Iterator[tuple[Wire, Forwarder]]:
    """One forwarder under af_packet, with a UDP vip of one backend in each family."""
    wire, forwarder = Wire(), Forwarder()
    try:
        wire.neighbor(PEER_ADDRESS, wire.peer_mac)
        forwarder.start()
        servers = {"web1": SERVERS["web1"]}
        vips = vip("dns", str(VIP), servers, "udp", PORT), vip("dns6", VIP6, servers, "udp", 53)
        assert forwarder.ask("state", state=state(servers, *vips))["ok"]
        wait_until(lambda: all(hop["mac"] for hop in forwarder.ask("stats")["next_hops"]), "next hops are known")
        yield wire, forwarder
    finally:
        forwarder.close()
        wire.close()


def test_under_af_packet_the_kernel_reassembles_ipv4_before_the_forwarder_sees_it(
    serving: tuple[Wire, Forwarder],
) -> None:
    """What the README says of this: one packet in, or none; IPv6 comes as it is."""
    wire, forwarder = serving
    for size, fates, sent in (
        (1500, {"hash_new": 1}, 1),  # fits the tunnel
        (1700, {"conn_hit": 1}, 2),  # fits a slot of the kernel's ring, and is cut anew
        (3000, {"malformed": 1}, 0),
    ):
        before = Counter(forwarder.fates())
        wire.send(bytes(ether(part)) for part in pieces(size=size, number=size))
        assert len(list(wire.tunneled())) == sent
        assert Counter(forwarder.fates()) - before == fates
    before = Counter(forwarder.fates())
    wire.send([bytes(ether(pieces(number=7)[1]))])
    parts = pieces6()
    wire.send(bytes(ether(part)) for part in reversed(parts))
    assert len(list(wire.tunneled())) == len(parts)
    assert Counter(forwarder.fates()) - before == {"fragment": len(parts)}
