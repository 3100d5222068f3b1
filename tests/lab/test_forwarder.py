"""The forwarder process on a veth under af_packet: its counts, its next hops, its starts and ends, its refusals."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import WIRE
from packets.pieces import lengths, reassemble, sized
from packets.world import BACKENDS, VIP, backend_address, ether, flow, member, state, vip
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import GRE
from wire import (
    NODE,
    NODE_ADDRESS,
    NODE_PORT,
    PATIENCE,
    PEER,
    PEER_ADDRESS,
    PEER_PORT,
    ROOT,
    Asker,
    Forwarder,
    Wire,
    frame,
    inside,
    ip,
    settings,
    wait_until,
)

pytestmark = WIRE

HUGEPAGES = Path("/proc/sys/vm/nr_hugepages")
TWO = {name: BACKENDS[name] for name in ("web1", "dns1")}
SERVICE = state(TWO, vip("www", VIP, TWO, table_size=65537))
ONE_SERVICE = state(TWO, vip("www", VIP, ["web1"]))
OTHER_MAC = "02:00:00:00:77:77"

# The node's kernel sends datagrams; a socket at the other end takes them, so that no ICMP error comes back.
SEND = f"""
import socket
sender = socket.socket(type=socket.SOCK_DGRAM)
for _ in range(200):
    sender.sendto(b"x", ("{PEER_ADDRESS}", 9))
"""
CONNECT = """
import socket
socket.create_connection(("10.0.2.2", 9), 5)
"""
SWALLOW = """
import socket, time
taker = socket.socket(type=socket.SOCK_DGRAM)
taker.bind(("", 9))
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def serving(wire: Wire, forwarder: Forwarder) -> Forwarder:
    """Started, with a vip of two backends, and a next hop that the kernel knows for ever."""
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start()
    assert forwarder.ask("state", state=SERVICE)["ok"]
    wait_until(lambda: all(hop["mac"] for hop in forwarder.ask("stats")["next_hops"]), "next hops are known")
    return forwarder


def forwarded_macs(wire: Wire, number: int) -> Counter[str]:
    """Send one packet of a flow; where it was sent to."""
    wire.send([flow(number, flags="A")])
    return Counter(f[:6].hex(":") for f in wire.tunneled())


# -- packets


def test_1000_in_are_exactly_1000_in_and_1000_out(wire: Wire, serving: Forwarder) -> None:
    """What the forwarder sends by the same interface is not received again."""
    before = serving.ask("stats")
    assert wire.send(flow(i) for i in range(1000)) == 1000
    out = list(wire.tunneled())
    after = serving.ask("stats")
    assert len(out) == 1000
    assert after["received"] - before["received"] == 1000
    assert after["fates"]["hash_new"] - before["fates"]["hash_new"] == 1000
    assert sum(after["fates"].values()) == after["received"]
    assert {backend_address(f) for f in out} == set(TWO.values())
    transmit = after["ports"][0]["transmit"]
    assert transmit["ready"] == transmit["sent"] == transmit["recycled"] == 1000
    assert after["vips"]["www"]["packets"] == 1000 == sum(b["packets"] for b in after["backends"].values())


def test_reasons_are_told_with_their_fates_and_in_words(wire: Wire, serving: Forwarder) -> None:
    wire.send([flow(1), *(flow(i, dport=81) for i in range(5))])
    wait_until(lambda: serving.fates().get("not_vip") == 5, "the packets are dropped")
    stats = serving.ask("stats")
    text = "the address is a vip's, but no vip has this protocol and port"
    assert stats["reasons"]["other_port"] == {"fate": "not_vip", "kind": "dropped", "packets": 5, "text": text}
    assert stats["reasons"]["new_flow"]["kind"] == "forwarded"
    assert all(reason["packets"] for reason in stats["reasons"].values()), "only those that occurred"


def test_new_flows_leave_a_backend_within_seconds_of_its_being_over(wire: Wire, serving: Forwarder) -> None:
    bounded = {**SERVICE["vips"][0], "load_bound": 1.25}
    assert serving.ask("state", state={**SERVICE, "vips": [bounded]})["ok"]
    wire.send(flow(i) for i in range(100))
    assert {backend_address(f) for f in wire.tunneled()} == set(TWO.values())
    assert serving.ask("stats")["load_bounds"] == {"www": {"bound": 1.25, "over": []}}
    assert serving.ask("flush", backend="dns1")["ok"]
    wait_until(lambda: serving.ask("stats")["load_bounds"]["www"]["over"] == ["web1"], "it is seen")
    wire.send(flow(i) for i in range(100, 140))
    assert {backend_address(f) for f in wire.tunneled()} == {TWO["dns1"]}
    assert serving.ask("stats")["reasons"]["new_deflected"]["fate"] == "hash_new"


def test_pieces_leave_by_a_kernel_interface_and_what_a_router_says_is_learned(wire: Wire, serving: Forwarder) -> None:
    """The link carries 1600 bytes, so the packet of 1590 comes whole and cannot leave so."""
    packet = sized(1590)
    wire.send([bytes(ether(packet))])
    pieces = list(wire.tunneled())
    assert lengths(pieces) == [1596, 38]
    assert reassemble(pieces)[14 + 24 :] == bytes(packet)
    backend = backend_address(pieces[0])
    about = IP(src=NODE_ADDRESS, dst=backend, flags="DF", proto=47) / GRE(proto=0x0800) / bytes(4)
    report = IP(src=PEER_ADDRESS, dst=NODE_ADDRESS) / ICMP(type=3, code=4, nexthopmtu=1400) / about
    wire.send([bytes(ether(report))])
    wait_until(lambda: serving.fates().get("path_mtu"), "the report has a fate")
    stats = serving.ask("stats")
    (way,) = stats["path_mtus"]
    assert (TWO[way["backend"]], way["address"], way["mtu"]) == (backend, backend, 1400)
    assert 595 <= way["seconds"] <= 600
    assert stats["own"]["pieces"] == 1
    assert stats["backends"][way["backend"]]["bytes"] == 1590
    assert stats["pool"]["pieces"] == {"size": 1025, "free": 1025}
    wire.send([bytes(ether(packet))])
    assert lengths(list(wire.tunneled())) == [1396, 238]


def test_what_a_switch_floods_for_another_mac_is_not_received(wire: Wire, serving: Forwarder) -> None:
    """Else every node behind that switch would forward it."""
    before = serving.ask("stats")["received"]
    wire.send(bytes.fromhex(OTHER_MAC.replace(":", "")) + flow(i)[6:] for i in range(50))
    assert list(wire.tunneled()) == []
    assert serving.ask("stats")["received"] == before


def test_what_the_nodes_kernel_sends_is_not_received(wire: Wire, serving: Forwarder) -> None:
    """BGP and ARP of the node itself leave by the same interface."""
    before = serving.ask("stats")["received"]
    with subprocess.Popen(inside(PEER, sys.executable, "-c", SWALLOW), stdout=subprocess.PIPE) as swallow:
        assert swallow.stdout is not None
        swallow.stdout.readline()
        subprocess.run(inside(NODE, sys.executable, "-c", SEND), check=True)
        time.sleep(0.2)
        after = serving.ask("stats")["received"]
        swallow.kill()
    assert after == before


def test_what_is_not_ours_is_the_kernels(wire: Wire, serving: Forwarder) -> None:
    """The kernel refuses a connection to the node's own address; the forwarder only counts its packets."""
    before = serving.fates().get("punt", 0)
    done = subprocess.run(inside(PEER, sys.executable, "-c", CONNECT), capture_output=True, text=True, check=False)
    assert "ConnectionRefusedError" in done.stderr
    fates = serving.fates()
    assert fates["punt"] > before
    assert set(fates) == {"punt"}


def test_a_stream_of_packets_keeps_the_pool_whole(wire: Wire, serving: Forwarder) -> None:
    sent = 0
    for _ in range(20):
        sent += wire.send(flow(i % 400) for i in range(500))
    assert len(list(wire.tunneled())) == sent
    pool = serving.ask("stats")["pool"]
    status, said = serving.stop()
    assert status == 0
    assert "did not return" not in said
    assert pool["free"] > pool["size"] - 700, "only what devices and caches may hold is out"


def test_the_canary_flies_and_is_not_sent(wire: Wire, serving: Forwarder) -> None:
    for _ in range(5):
        answer = serving.ask("canary")
        assert answer["passed"], answer
    assert serving.ask("stats")["own"]["canaries"] == 5
    assert list(wire.tunneled()) == []
    assert set(serving.fates()) <= {"punt"}


# -- next hops


def test_the_next_hop_is_learned_from_the_kernel(wire: Wire, forwarder: Forwarder) -> None:
    """Nobody told the kernel; it asks since the forwarder needs the neighbor."""
    forwarder.start()
    assert forwarder.ask("state", state=ONE_SERVICE)["ok"]
    wait_until(lambda: forwarder.ask("stats")["next_hops"][0]["mac"] == wire.peer_mac, "the neighbor is learned", 5)
    assert forwarded_macs(wire, 1) == {wire.peer_mac: 1}
    hop = forwarder.ask("stats")["next_hops"][0]
    assert (hop["address"], hop["device"]) == (PEER_ADDRESS, NODE_PORT)
    assert forwarder.ask("canary")["passed"]


def test_a_neighbors_new_mac_is_followed_within_a_second(wire: Wire, serving: Forwarder) -> None:
    assert forwarded_macs(wire, 1) == {wire.peer_mac: 1}
    for state_, mac in (("permanent", OTHER_MAC), ("reachable", "02:00:00:00:77:78"), ("stale", OTHER_MAC)):
        wire.neighbor(PEER_ADDRESS, mac, state_)
        took = wait_until(
            lambda wanted=mac: serving.ask("stats")["next_hops"][0]["mac"] == wanted, "the new MAC is known", 1.0
        )
        assert took < 1.0
        assert forwarded_macs(wire, 1) == {mac: 1}


def test_a_new_route_is_followed(wire: Wire, serving: Forwarder) -> None:
    assert forwarded_macs(wire, 1) == {wire.peer_mac: 1}
    wire.neighbor("10.0.2.9", OTHER_MAC)
    ip("-n", NODE, "route", "replace", "default", "via", "10.0.2.9")
    wait_until(lambda: any(h["address"] == "10.0.2.9" for h in serving.ask("stats")["next_hops"]), "the route", 2.0)
    assert forwarded_macs(wire, 1) == {OTHER_MAC: 1}


def test_an_unresolved_next_hop_is_no_neighbor_until_it_answers(wire: Wire, forwarder: Forwarder) -> None:
    ip("-n", NODE, "route", "replace", "default", "via", "10.0.2.77")
    forwarder.start()
    assert forwarder.ask("state", state=ONE_SERVICE)["ok"]
    wire.send(flow(i) for i in range(10))
    wait_until(lambda: forwarder.fates().get("no_neighbor") == 10, "no neighbor")
    assert forwarder.ask("stats")["next_hops"][0]["state"] == "unresolved"
    canary = forwarder.ask("canary")
    assert not canary["passed"]
    assert "not resolved" in canary["reason"]
    ip("-n", PEER, "addr", "add", "10.0.2.77/24", "dev", PEER_PORT)
    wait_until(lambda: forwarder.ask("stats")["next_hops"][0]["mac"] == wire.peer_mac, "it answers now", 5)
    assert forwarded_macs(wire, 1) == {wire.peer_mac: 1}


def test_no_route_is_no_neighbor(wire: Wire, forwarder: Forwarder) -> None:
    ip("-n", NODE, "route", "del", "default")
    forwarder.start()
    assert forwarder.ask("state", state=ONE_SERVICE)["ok"]
    wire.send(flow(i) for i in range(10))
    wait_until(lambda: forwarder.fates().get("no_neighbor") == 10, "no neighbor")
    ip("-n", NODE, "route", "add", "default", "via", PEER_ADDRESS)
    wait_until(lambda: any(h["mac"] for h in forwarder.ask("stats")["next_hops"]), "the route", 5)


def test_a_kernel_that_changes_all_the_time_does_not_hurt(wire: Wire, serving: Forwarder) -> None:
    """Routes and neighbors come and go by the thousand while packets pass."""
    batch = "".join(
        f"route add 10.{64 + i // 250}.{i % 250}.0/24 via {PEER_ADDRESS}\n"
        f"neigh replace 10.0.2.{10 + i % 200} lladdr {OTHER_MAC} dev {NODE_PORT} nud stale\n"
        for i in range(2000)
    )
    undo = "".join(f"route del 10.{64 + i // 250}.{i % 250}.0/24\n" for i in range(2000))
    ended = threading.Event()

    def churn() -> None:
        for text in (batch, undo) * 3:
            subprocess.run(["ip", "-n", NODE, "-batch", "-"], input=text, text=True, check=True, capture_output=True)
        ended.set()

    thread = threading.Thread(target=churn)
    thread.start()
    sent = came = 0
    while not ended.is_set():
        sent += wire.send(flow(i) for i in range(100))
        came += len(list(wire.tunneled()))
    thread.join()
    came += len(list(wire.tunneled()))
    assert came == sent
    assert serving.ask("ping")["ok"]


def test_link_down_and_up_again(wire: Wire, serving: Forwarder) -> None:
    """Back within two seconds, nothing leaked."""
    assert serving.ask("ping")["ports"] == [{"device": NODE_PORT, "link": True}]
    ip("-n", PEER, "link", "set", PEER_PORT, "down")
    wait_until(lambda: not serving.ask("ping")["ports"][0]["link"], "the link is seen to be down", 2)
    time.sleep(1.0)
    ip("-n", PEER, "link", "set", PEER_PORT, "up")
    wire.listen_again()
    took = wait_until(lambda: forwarded_macs(wire, 1), "packets go through", 2)
    assert took < 2.0
    assert serving.ask("ping")["ports"][0]["link"]
    assert serving.stop()[0] == 0


# -- starts and ends


def kernel_state() -> list[str]:
    """Packet sockets of the node's namespace: one per af_packet queue."""
    shown = subprocess.run(inside(NODE, "cat", "/proc/net/packet"), capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()[1:]


def test_sigterm_leaves_nothing_but_what_the_next_one_needs(wire: Wire, serving: Forwarder) -> None:
    wire.send(flow(i) for i in range(200))
    stays = ["forwarder.json", "tables.json"]
    assert sorted(p.name for p in serving.run_dir.iterdir()) == [
        *("forwarder.json", "forwarder.pid", "forwarder.sock", "tables.json")
    ]
    assert len(kernel_state()) >= 1
    status, said = serving.stop()
    assert status == 0, said
    assert sorted(p.name for p in serving.run_dir.iterdir()) == stays
    assert [p.name for p in serving.tables().iterdir()] == ["table-0"]
    assert kernel_state() == []
    assert not [line for line in said.splitlines() if '"error"' in line or "Traceback" in line]


def test_sigint_ends_it_too(serving: Forwarder) -> None:
    assert serving.stop(signal.SIGINT)[0] == 0


def test_files_are_not_for_everybody(serving: Forwarder) -> None:
    for name, most in (("forwarder.sock", 0o660), ("forwarder.pid", 0o660), ("tables.json", 0o600)):
        assert (serving.run_dir / name).stat().st_mode & 0o777 & ~most == 0, name
    assert serving.tables().stat().st_mode & 0o777 == 0o700
    assert (serving.tables() / "table-0").stat().st_mode & 0o777 == 0o600
    assert settings()["hash_key"] not in (serving.run_dir / "tables.json").read_text()


def meminfo(name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields[name].split()[0])


def used_hugepages() -> int:
    return meminfo("HugePages_Total") - meminfo("HugePages_Free")


def hugepages_beside(tables: Path) -> int:
    """Those in use but for a node's tables, which outlive the process where the machine has a hugetlbfs."""
    kept = 0 if tables.is_relative_to("/dev/shm") else allocated(tables) // (2 << 20)
    return used_hugepages() - kept


@pytest.fixture
def hugepages() -> Iterator[None]:
    """Enough hugepages for one forwarder, beside what is there."""
    if not HUGEPAGES.exists():
        pytest.skip("this kernel has no hugepages")
    before = int(HUGEPAGES.read_text())
    wanted = before + max(0, 48 - meminfo("HugePages_Free"))
    HUGEPAGES.write_text(str(wanted))
    try:
        if meminfo("HugePages_Free") < 48:
            pytest.skip("there is no memory for 48 hugepages")
        yield
    finally:
        if int(HUGEPAGES.read_text()) == wanted:
            HUGEPAGES.write_text(str(before))


def allocated(directory: Path) -> int:
    """Bytes of shared memory that a node's tables take."""
    return sum(path.stat().st_blocks * 512 for path in directory.iterdir()) if directory.is_dir() else 0


def test_20_starts_under_load_and_kills(wire: Wire, forwarder: Forwarder, hugepages: None) -> None:
    """Each start works, whatever the one before left behind, and no hugepage and no shared memory is lost."""
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    tables = forwarder.tables(hugepages=True)
    taken = set()
    for number in range(20):
        used = hugepages_beside(tables)
        forwarder.start(hugepages=True)
        assert hugepages_beside(tables) > used
        taken.add(allocated(tables))
        connections = forwarder.ask("stats")["connections"]
        assert (connections["kept"], bool(connections["started_empty"])) == (
            (200, False) if number in (1, 2) else (0, True)
        ), "the first begins empty, and those that follow three crashes in a minute"
        assert forwarder.ask("state", state=SERVICE)["generation"] == 1
        wait_until(lambda: all(h["mac"] for h in forwarder.ask("stats")["next_hops"]), "next hops are known")
        assert wire.send(flow(i) for i in range(200)) == 200
        if number % 4 == 0:
            assert len(list(wire.tunneled())) == 200, forwarder.ask("stats")
        assert forwarder.stop(signal.SIGKILL)[0] == -signal.SIGKILL
        wait_until(lambda was=used: hugepages_beside(tables) == was, "hugepages are free again")
        for _ in wire.tunneled():
            pass
        taken.add(allocated(tables))
    assert len(taken) == 1
    assert len(list(tables.parent.glob(f"{tables.name[:-8]}*"))) == 1
    used = hugepages_beside(tables)
    forwarder.start(hugepages=True)
    assert forwarder.stop()[0] == 0
    wait_until(lambda: hugepages_beside(tables) == used, "hugepages are free again")


@pytest.fixture
def hugetlbfs(hugepages: None, tmp_path: Path) -> Iterator[Path]:
    """There is a mount: this one, where the machine has none of its own."""
    mount = ["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("hugetlbfs cannot be mounted")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_tables_in_hugepages_are_kept_too(wire: Wire, forwarder: Forwarder, hugetlbfs: Path) -> None:
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    tables = forwarder.tables(hugepages=True)
    assert not tables.is_relative_to("/dev/shm")
    free, used = meminfo("HugePages_Free"), used_hugepages()
    for kept in (0, 200, 200):
        forwarder.start(hugepages=True)
        assert [path.stat().st_size for path in tables.iterdir()] == [2 << 20]
        assert forwarder.ask("stats")["connections"]["kept"] == kept
        forwarder.ask("state", state=SERVICE)
        wait_until(lambda: all(h["mac"] for h in forwarder.ask("stats")["next_hops"]), "next hops are known")
        wire.send(flow(i) for i in range(200))
        assert len(list(wire.tunneled())) == 200
        forwarder.stop(signal.SIGKILL)
        wait_until(lambda: used_hugepages() == used + 1, "all but the table's hugepage are free again")
    status, said = forwarder.refused(
        settings(hugepages=True, connection_table=settings()["connection_table"] | {"entries": free << 18})
    )
    assert (status, len(said.splitlines())) == (2, 1), said
    assert "of hugepages are needed" in said
    assert used_hugepages() == used, "tables that do not fit any more are gone"


SMALL_SHARED_MEMORY = f"mount -t tmpfs -o size=8M tmpfs /dev/shm && exec {sys.executable} -m forwarder $0"


def test_too_little_shared_memory_is_said_in_one_sentence(wire: Wire, forwarder: Forwarder) -> None:
    """In a mount namespace with a small one; nothing is left in it either, or the second start would say so."""
    table = settings()["connection_table"] | {"entries": 1 << 20}
    (forwarder.run_dir / "forwarder.json").write_text(json.dumps(settings(connection_table=table)))
    words = ["unshare", "-m", "sh", "-c", SMALL_SHARED_MEMORY, str(forwarder.run_dir)]
    done = subprocess.run(
        inside(NODE, *words), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "the connection tables need 14 MB of shared memory, which /dev/shm has no room for: make it with "
        "`mount -o remount,size=14M /dev/shm`, or write fewer connection_table.entries in the forwarder section."
    )
    assert sorted(path.name for path in forwarder.run_dir.iterdir()) == ["forwarder.json"]


# -- refusals


def port(**changes: Any) -> list[dict[str, Any]]:
    return [settings()["ports"][0] | changes]


def cpus() -> dict[str, Any]:
    return settings()["lcores"]


REFUSALS: dict[str, tuple[dict[str, Any] | str, str]] = {
    "no such interface": ({"ports": port(device="eth9")}, "there is no network interface eth9"),
    "no hugepages": ({"hugepages": True, "packet_pool": 10_000_000}, "of hugepages are needed and"),
    "no such CPU": ({"lcores": cpus() | {"workers": [999]}}, "CPU 999 in forwarder.lcores cannot be used here"),
    "a pool too small": ({"packet_pool": 1024}, "a packet pool of 1024 is too small"),
    "a pool of nothing": ({"packet_pool": 0}, ""),
    "a ring of 1000 slots": ({"ring_size": 1000}, ""),
    "a device that DPDK has not": ({"ports": port(device="net_nothing0", driver="vdev")}, "port net_nothing0 could"),
    "a key of 3 bytes": ({"hash_key": "010203"}, ""),
    "a connection table of nothing": ({"connection_table": settings()["connection_table"] | {"entries": 0}}, ""),
    "no ports": ({"ports": []}, ""),
    "not JSON": ("{broken", "cannot read the forwarder's settings"),
    "not an object": ("[]", "not complete or not valid"),
    "an empty file": ("", "cannot read the forwarder's settings"),
    "a key missing": (json.dumps({k: v for k, v in settings().items() if k != "ring_size"}), "ring_size"),
    "a port that is no object": ({"ports": ["eth1"]}, "not complete or not valid"),
}


@pytest.mark.parametrize(("asked", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_refused_in_one_sentence(forwarder: Forwarder, asked: dict[str, Any] | str, expected: str) -> None:
    """Exit status 2 and what to do about it; no traceback, nothing left behind but the pid file."""
    config = asked if isinstance(asked, str) else settings(**asked)
    status, said = forwarder.refused(config)
    assert status == 2, said
    *above, sentence = said.splitlines()
    assert all(line.startswith(("EAL:", "MBUF:", "RING:")) for line in above), said  # DPDK's own, where it says more
    assert expected in sentence
    assert not forwarder.socket.exists()
    assert not forwarder.tables().exists()
    assert kernel_state() == []


def test_no_settings_at_all(forwarder: Forwarder) -> None:
    status, said = forwarder.refused()
    assert (status, len(said.splitlines())) == (2, 1)


def test_a_second_forwarder_of_the_same_run_directory_is_refused(wire: Wire, serving: Forwarder) -> None:
    """And the first one goes on, with its socket and its pid file."""
    digest = serving.ask("ping")["digest"]
    status, said = serving.refused()
    assert (status, len(said.splitlines())) == (1, 1), said
    assert "a forwarder runs already" in said
    ping = serving.ask("ping")
    assert ping["digest"] == digest
    assert (serving.run_dir / "forwarder.pid").read_text() == f"{ping['pid']}\n"
    wire.send(flow(i) for i in range(50))
    assert len(list(wire.tunneled())) == 50


# -- the control socket


def test_a_push_that_is_cut_anywhere_leaves_the_old_state_or_the_new(serving: Forwarder) -> None:
    """200 controllers that die while they push, some of them after the last byte."""
    dice = random.Random(200)
    states = [
        state(TWO, *(vip(f"v{i}", f"192.0.2.{i}", [member("web1", w), "dns1"]) for i in range(1, 20)))
        for w in (1, 50)
    ]
    digests = [serving.ask("state", state=one)["digest"] for one in states]
    now = 1
    for number in range(200):
        target = 1 - now
        message = frame({"op": "state", "state": states[target]})
        cut = len(message) if number % 10 == 0 else dice.randrange(len(message))
        asker = Asker(serving.socket)
        asker.socket.sendall(message[:cut])
        if number % 20 == 0:
            assert asker.answer()["digest"] == digests[target]
        asker.close()
        if cut == len(message):
            wait_until(lambda wanted=target: serving.ask("ping")["digest"] == digests[wanted], "it was whole", 2)
            now = target
        assert serving.ask("ping")["digest"] == digests[now]


def test_a_refused_state_changes_nothing(serving: Forwarder) -> None:
    before = serving.ask("ping")
    for wrong in (
        None,
        [],
        {"version": 2},
        SERVICE | {"version": 2},
        SERVICE | {"backends": {}},
        SERVICE | {"vips": [vip("www", VIP, ["web1"], table_size=65536)]},
        SERVICE | {"vips": [vip("www", VIP, ["web1"]), vip("www", "192.0.2.2", ["web1"])]},
        SERVICE | {"backends": {"web1": "fd00:3::2", "dns1": "10.0.4.2"}},
    ):
        answer = serving.ask("state", state=wrong)
        assert not answer["ok"], wrong
        assert answer["error"]
    after = serving.ask("ping")
    assert (after["digest"], after["generation"]) == (before["digest"], before["generation"])


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\xff" + bytes(100),
        b"\0\0\0\0",
        b"\0\0\0\x04nope",
        b"\0\0\0\x02[]",
        b"\0\0\0\x02{}",
        b"\0\0\0\x04null",
        frame({"op": "reboot"}),
        frame({"op": ["ping"]}),
        frame({"op": "lookup"}),
        frame({"op": "flush", "backend": "nobody"}),
        b"\0\0\0\x04\xff\xfe\xfd\xfc",
    ],
    ids=range(11),
)
def test_what_is_not_a_request_is_answered_with_an_error(serving: Forwarder, raw: bytes) -> None:
    asker = Asker(serving.socket)
    asker.socket.sendall(raw)
    answer = asker.answer()
    assert not answer["ok"]
    assert isinstance(answer["error"], str)
    asker.close()
    assert serving.ask("ping")["ok"]


def test_every_lcore_turns_while_nothing_comes(serving: Forwarder) -> None:
    before = serving.ask("ping")["lcores"]
    time.sleep(1.0)
    for was, now in zip(before, serving.ask("ping")["lcores"], strict=True):
        assert now["turns"] > was["turns"], now
