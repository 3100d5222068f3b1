"""A forwarder process on a veth in a namespace of its own; tests send and listen at the other end of the wire."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from packets.pieces import lengths, reassemble, sized
from packets.world import BACKENDS, VIP, backend_address, ether, state, vip
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import GRE

from forwarder import table_memory

ROOT = Path(__file__).parents[2]
NODE, PEER = "tD-node", "tD-peer"
NODE_MAC = "02:00:00:00:00:02"  # the one that the packet tests' frames are sent to
NODE_ADDRESS, PEER_ADDRESS = "10.0.2.2", "10.0.2.1"
NODE_PORT, PEER_PORT = "eth1", "r1"
TOOLS = ("ip", "ethtool", "sysctl")
CLONE_NEWNET, ALL_FRAMES = 0x40000000, 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_RCVBUFFORCE = 33
PATIENCE = 20.0
TWO = {name: BACKENDS[name] for name in ("web1", "dns1")}
SERVICE = state(TWO, vip("www", VIP, TWO, table_size=65537))
ONE_SERVICE = state(TWO, vip("www", VIP, ["web1"]))


def wait_until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> float:
    """Return the seconds it took until it holds; fails when it does not in time."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.005)
    return time.monotonic() - began


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def inside(namespace: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *words]


def packet_sockets() -> list[str]:
    """Packet sockets of the node's namespace: one per af_packet queue."""
    shown = subprocess.run(inside(NODE, "cat", "/proc/net/packet"), capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()[1:]


def remove_namespaces() -> None:
    for namespace in (NODE, PEER):
        subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def packet_socket(namespace: str, interface: str) -> socket.socket:
    """A raw socket on an interface of another namespace, which receives what comes in there and nothing else."""
    made: list[socket.socket] = []

    def make() -> None:  # a namespace is a thread's; the socket stays where it was made
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{namespace}") as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"enter {namespace}")
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
        raw.bind((interface, ALL_FRAMES))
        made.append(raw)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    (raw,) = made
    raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    raw.settimeout(0.3)
    return raw


class Wire:
    """Two namespaces joined by a veth. IPv6 is off, so that nothing moves that a test did not send."""

    def __init__(self) -> None:
        remove_namespaces()
        for namespace in (NODE, PEER):
            ip("netns", "add", namespace)
            for name in ("all", "default"):
                setting = f"net.ipv6.conf.{name}.disable_ipv6=1"
                subprocess.run(inside(namespace, "sysctl", "-qw", setting), check=True)
        ip("link", "add", NODE_PORT, "netns", NODE, "type", "veth", "peer", "name", PEER_PORT, "netns", PEER)
        for namespace, port, address in ((NODE, NODE_PORT, NODE_ADDRESS), (PEER, PEER_PORT, PEER_ADDRESS)):
            off = inside(namespace, "ethtool", "-K", port, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
            subprocess.run(off, check=True, capture_output=True)
            ip("-n", namespace, "addr", "add", f"{address}/24", "dev", port)
            ip("-n", namespace, "link", "set", port, "mtu", "1600", "up")
        ip("-n", NODE, "link", "set", NODE_PORT, "address", NODE_MAC)
        ip("-n", NODE, "route", "add", "default", "via", PEER_ADDRESS)
        wait_until(lambda: "state UP" in self.show(PEER, PEER_PORT), "the link is up")
        self.end = packet_socket(PEER, PEER_PORT)

    def listen_again(self) -> None:
        """After the link was down."""
        self.end.close()
        self.end = packet_socket(PEER, PEER_PORT)

    @staticmethod
    def show(namespace: str, port: str) -> str:
        shown = ["ip", "-n", namespace, "link", "show", port]
        return subprocess.run(shown, capture_output=True, text=True, check=True).stdout

    @property
    def peer_mac(self) -> str:
        return self.show(PEER, PEER_PORT).split("link/ether ")[1].split()[0]

    def neighbor(self, address: str, mac: str, state: str = "permanent") -> None:
        """What the node's kernel knows of a neighbor."""
        ip("-n", NODE, "neigh", "replace", address, "lladdr", mac, "dev", NODE_PORT, "nud", state)

    def send(self, frames: Iterable[bytes]) -> int:
        """Send frames from the peer's end, no faster than a small machine takes them."""
        sent = 0
        for frame in frames:
            self.end.send(frame)
            sent += 1
            if sent % 64 == 0:
                time.sleep(0.002)
        return sent

    def tunneled(self) -> Iterator[bytes]:
        """GRE frames that come out, until none came for a while."""
        with contextlib.suppress(TimeoutError):
            while True:
                frame = self.end.recv(65536)
                if frame[12:14] == b"\x08\x00" and frame[23] == 47:
                    yield frame

    def close(self) -> None:
        self.end.close()
        remove_namespaces()


def settings(**changes: Any) -> dict[str, Any]:
    """forwarder.json for the node's end of the wire."""
    cpus = sorted(os.sched_getaffinity(0))
    no_gateway = {"ipv4": None, "ipv6": None, "mac": None}
    return {
        "node": "tD",
        "hash_key": bytes(range(16)).hex(),
        "tunnel_source": {"ipv4": NODE_ADDRESS, "ipv6": None},
        "ports": [{"device": NODE_PORT, "driver": "af_packet", "gateway": no_gateway, "mtu": 1600}],
        "steering": "software",
        "lcores": {"steering": cpus[0], "workers": [cpus[-1]], "muxing": cpus[0]},
        "idle": "sleep",
        "packet_pool": 4096,
        "ring_size": 1024,
        "connection_table": {
            "entries": 16384,
            "tcp_half_open": 10.0,
            "tcp_established": 7200.0,
            "tcp_closing": 10.0,
            "udp": 60.0,
        },
        "hugepages": False,
    } | changes


class Asker:
    """One connection to a forwarder's control socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self.socket.sendall(frame({"op": op, **fields}))
        return self.answer()

    def answer(self) -> dict[str, Any]:
        (length,) = struct.unpack("!I", self.socket.recv(4, socket.MSG_WAITALL))
        return json.loads(self.socket.recv(length, socket.MSG_WAITALL))

    def close(self) -> None:
        self.socket.close()


def frame(request: Any) -> bytes:
    body = json.dumps(request).encode()
    return struct.pack("!I", len(body)) + body


class Forwarder:
    """A forwarder process in the node's namespace, with a run directory of its own."""

    def __init__(self) -> None:
        self.run_dir = Path(tempfile.mkdtemp(prefix="tD-"))
        self.process: subprocess.Popen[str] | None = None

    @property
    def socket(self) -> Path:
        return self.run_dir / "forwarder.sock"

    before: tuple[str, ...] = ()
    """A command that the process is started by."""

    def launch(self, config: dict[str, Any] | str | None = None) -> subprocess.Popen[str]:
        """Start a process; None leaves forwarder.json as it is."""
        if config is not None:
            text = config if isinstance(config, str) else json.dumps(config)
            (self.run_dir / "forwarder.json").write_text(text)
        return subprocess.Popen(
            inside(NODE, *self.before, sys.executable, "-m", "forwarder", str(self.run_dir)),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, **changes: Any) -> None:
        """Start and wait until the control socket answers."""
        self.process = self.launch(settings(**changes))
        wait_until(self._answers, "the forwarder answers")

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            assert self.process.stderr is not None
            raise AssertionError(f"the forwarder ended: {self.process.stderr.read()}")
        try:
            return bool(self.ask("ping")["ok"]) and self.ask("ping")["pid"] == self.process.pid
        except (OSError, struct.error):
            return False

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        asker = Asker(self.socket)
        try:
            return asker.ask(op, **fields)
        finally:
            asker.close()

    def serve(self, service: dict[str, Any] = SERVICE) -> None:
        """Give it a state, and wait until its next hops are known."""
        assert self.ask("state", state=service)["ok"]
        wait_until(lambda: all(hop["mac"] for hop in self.ask("stats")["next_hops"]), "next hops are known")

    def fates(self) -> dict[str, int]:
        return {fate: n for fate, n in self.ask("stats")["fates"].items() if n}

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End the process by a signal; returns its exit status and what it said."""
        assert self.process is not None
        process, self.process = self.process, None
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
        return process.returncode, said

    def refused(self, config: dict[str, Any] | str | None = None) -> tuple[int, str]:
        """Start a process that ends by itself: its exit status and what it said."""
        process = self.launch(config)
        try:
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.communicate()
        return process.returncode, said

    def tables(self, hugepages: bool = False) -> Path:
        """Where its connection tables are."""
        return table_memory.place(self.run_dir, hugepages).directory

    def close(self) -> None:
        if self.process is not None:
            self.stop(signal.SIGKILL)
        table_memory.remove(self.run_dir)
        shutil.rmtree(self.run_dir, ignore_errors=True)


def sent_in_pieces_and_told_of_less(wire: Wire, forwarder: Forwarder) -> str:
    """A packet too long for the tunnel leaves in pieces, a router says that 1400 bytes are the most, and the next one
    leaves in smaller pieces. Returns the backend's address.
    """
    packet = sized(1590)
    wire.send([bytes(ether(packet))])
    pieces = list(wire.tunneled())
    assert lengths(pieces) == [1596, 38]
    assert reassemble(pieces)[14 + 24 :] == bytes(packet)
    backend = backend_address(pieces[0])
    about = IP(src=NODE_ADDRESS, dst=backend, flags="DF", proto=47) / GRE(proto=0x0800) / bytes(4)
    report = IP(src=PEER_ADDRESS, dst=NODE_ADDRESS) / ICMP(type=3, code=4, nexthopmtu=1400) / about
    wire.send([bytes(ether(report))])
    wait_until(lambda: forwarder.fates().get("path_mtu"), "the report has a fate")
    wire.send([bytes(ether(packet))])
    assert lengths(list(wire.tunneled())) == [1396, 238]
    return backend
