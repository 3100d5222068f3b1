"""The forwarder process on a veth under af_packet: what it does with packets, and what it counts."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from needs import WIRE
from packets.world import backend_address, flow
from wire import (
    NODE,
    PEER,
    PEER_ADDRESS,
    SERVICE,
    TWO,
    Forwarder,
    Wire,
    inside,
    sent_in_pieces_and_told_of_less,
    wait_until,
)

pytestmark = WIRE


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
    backend = sent_in_pieces_and_told_of_less(wire, serving)
    stats = serving.ask("stats")
    (way,) = stats["path_mtus"]
    assert (TWO[way["backend"]], way["address"], way["mtu"]) == (backend, backend, 1400)
    assert 590 <= way["seconds"] <= 600
    assert stats["own"]["pieces"] == 2
    assert stats["backends"][way["backend"]]["bytes"] == 2 * 1590
    assert stats["pool"]["pieces"] == {"size": 1025, "free": 1025}


@pytest.mark.parametrize("mac", ["02:00:00:00:77:77", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"])
def test_what_a_switch_floods_or_is_for_many_is_not_received(wire: Wire, serving: Forwarder, mac: str) -> None:
    """Else every node behind that switch would forward it."""
    before = serving.ask("stats")["received"]
    wire.send(bytes.fromhex(mac.replace(":", "")) + flow(i)[6:] for i in range(50))
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
