"""A forwarder's port under af_xdp: which packets are ours and which the kernel's, starts and ends, refusals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import WIRE, XDP
from packets.cluster import LB2, from_node, pieces
from packets.pieces import sized
from packets.world import VIP, backend_address, ether, flow, left_to_a_nic, state, tcp, vip
from scapy.layers.inet import IP
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q
from wire import (
    NODE,
    NODE_ADDRESS,
    NODE_PORT,
    PEER,
    PEER_ADDRESS,
    PEER_PORT,
    ROOT,
    SERVICE,
    TWO,
    Forwarder,
    Wire,
    inside,
    ip,
    sent_in_pieces_and_told_of_less,
    settings,
    wait_until,
)

from forwarder import xdp

pytestmark = [*WIRE, XDP]

OTHER_VIP = "192.0.2.2"
WWW = SERVICE["vips"][0]
PORTS = [settings()["ports"][0] | {"driver": "af_xdp"}]
POOL = 16384  # the driver's rings alone may take 6144
PING = ("ping", "-q", "-c", "3", "-i", "0.05", "-W", "1")


class XdpForwarder(Forwarder):
    """One whose port is under af_xdp."""

    def start(self, **changes: Any) -> None:
        super().start(**{"ports": PORTS, "packet_pool": POOL} | changes)


@pytest.fixture
def forwarder(wire: Wire) -> Iterator[XdpForwarder]:
    made = XdpForwarder()
    yield made
    made.close()


def has_program() -> bool:
    return "xdp" in Wire.show(NODE, NODE_PORT)


def pinged(address: str = NODE_ADDRESS) -> bool:
    return subprocess.run(inside(PEER, *PING, address), capture_output=True, check=False).returncode == 0


def stopped_clean(forwarder: Forwarder) -> None:
    status, said = forwarder.stop()
    assert (status, "did not return" in said) == (0, False), said
    assert not has_program()


# -- packets


def test_1000_in_are_exactly_1000_in_and_1000_out(wire: Wire, serving: Forwarder) -> None:
    for _ in range(3):
        before = serving.ask("stats")
        assert wire.send(flow(i) for i in range(1000)) == 1000
        out = list(wire.tunneled())
        after = serving.ask("stats")
        assert len(out) == after["received"] - before["received"] == 1000
        assert {backend_address(frame) for frame in out} == set(TWO.values())
    assert after["fates"]["hash_new"] == 1000
    assert after["fates"]["conn_hit"] == 2000
    assert sum(after["fates"].values()) == after["received"] == 3000
    assert after["ports"][0]["transmit"] == {"ready": 3000, "sent": 3000, "recycled": None}
    stopped_clean(serving)


def test_the_kernel_keeps_what_is_not_ours(wire: Wire, serving: Forwarder) -> None:
    """It answers ARP, pings and connections of its own address, and nothing of that is received."""
    ip("-n", PEER, "neigh", "flush", "all")
    assert pinged()
    refused = "import socket; socket.create_connection(('10.0.2.2', 9), 5)"
    done = subprocess.run(inside(PEER, sys.executable, "-c", refused), capture_output=True, text=True, check=False)
    assert "ConnectionRefusedError" in done.stderr
    wire.send([bytes(ether(tcp("10.0.2.2", flags="A"))), bytes(ether(tcp("203.0.113.9")))])
    wire.send([bytes(ether(IP(src=PEER_ADDRESS, dst=NODE_ADDRESS, proto=47) / GRE(proto=0x0800) / IP(dst=VIP)))])
    stats = serving.ask("stats")
    assert (stats["received"], stats["fates"]["punt"]) == (0, 0)
    stopped_clean(serving)


def test_what_is_for_a_vip_but_none_has_the_port_is_dropped_with_its_fate(wire: Wire, serving: Forwarder) -> None:
    wire.send([*(flow(i, dport=81) for i in range(5))])
    wait_until(lambda: serving.fates() == {"not_vip": 5}, "the packets are dropped")


def test_tags_are_looked_through(wire: Wire, serving: Forwarder) -> None:
    inner = tcp()
    one = ether() / Dot1Q(vlan=7) / inner
    two = ether() / Dot1AD(vlan=8) / Dot1Q(vlan=7) / inner
    three = ether() / Dot1AD(vlan=8) / Dot1Q(vlan=7) / Dot1Q(vlan=6) / inner
    wire.send([bytes(frame) for frame in (one, two, three)])
    wait_until(lambda: serving.ask("stats")["received"] == 2, "those with up to two tags come")
    time.sleep(0.1)
    assert serving.ask("stats")["received"] == 2


@pytest.mark.parametrize("mac", ["020000007777", "ffffffffffff", "01005e000001"])
def test_what_a_switch_floods_or_is_for_many_is_not_received(wire: Wire, serving: Forwarder, mac: str) -> None:
    wire.send(bytes.fromhex(mac) + flow(i)[6:] for i in range(50))
    assert list(wire.tunneled()) == []
    assert serving.ask("stats")["received"] == 0


def test_checksums_that_the_sender_left_to_its_nic_are_finished(wire: Wire, serving: Forwarder) -> None:
    left, whole = (ether(left_to_a_nic(tcp())), ether(tcp()))
    wire.send([bytes(left)])
    (out,) = wire.tunneled()
    assert out[14 + 24 :] == bytes(whole)[14:]


def test_fragments_come_as_they_are(wire: Wire, forwarder: XdpForwarder) -> None:
    """Under af_packet the kernel would have put them together."""
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start()
    forwarder.serve(state(TWO, vip("dns", VIP, TWO, "udp", 80)))
    parts = pieces()
    wire.send(bytes(ether(part)) for part in reversed(parts))
    assert len(list(wire.tunneled())) == len(parts)
    assert forwarder.fates() == {"fragment": len(parts)}
    stopped_clean(forwarder)


def test_pieces_leave_whole_and_what_a_router_says_is_learned(wire: Wire, serving: Forwarder) -> None:
    """A piece lies in two buffers, which the driver cannot send."""
    sent_in_pieces_and_told_of_less(wire, serving)
    assert [way["mtu"] for way in serving.ask("stats")["path_mtus"]] == [1400]
    assert serving.ask("stats")["pool"]["pieces"] == {"size": POOL // 4 + 1, "free": POOL // 4 + 1}
    stopped_clean(serving)


def test_another_node_of_the_cluster_may_send_gre_and_nobody_else(wire: Wire, forwarder: XdpForwarder) -> None:
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    wire.neighbor(LB2, "02:00:00:00:00:06")
    forwarder.start()
    service = state(TWO, vip("dns", VIP, TWO, "udp", 80))
    forwarder.serve({**service, "cluster": {"tD": NODE_ADDRESS, "lb2": LB2}})
    parts = pieces()
    for source, received in ((LB2, len(parts)), (PEER_ADDRESS, 0)):
        before = forwarder.ask("stats")["received"]
        wire.send(bytes(ether(from_node(part, source=source))) for part in parts)
        assert len(list(wire.tunneled())) == received
        assert forwarder.ask("stats")["received"] - before == received
    assert forwarder.fates() == {"fragment": len(parts)}


def test_the_largest_packet_that_the_interface_carries(wire: Wire, forwarder: XdpForwarder) -> None:
    for namespace, port in ((NODE, NODE_PORT), (PEER, PEER_PORT)):
        ip("-n", namespace, "link", "set", port, "mtu", "1900")
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start(ports=[PORTS[0] | {"mtu": 1900}])
    forwarder.serve()
    wire.send([bytes(ether() / Dot1AD(vlan=8) / Dot1Q(vlan=7) / sized(1876)), bytes(ether(sized(1876)))])
    wait_until(lambda: sum(forwarder.fates().values()) == 2, "both have a fate")
    assert forwarder.fates() == {"hash_new": 1, "conn_hit": 1}
    stopped_clean(forwarder)


def test_in_by_one_port_and_out_by_another(wire: Wire, forwarder: XdpForwarder) -> None:
    """Each has the whole pool for its own, as the driver sees it; a packet goes back by the port that sent it."""
    ip("link", "add", "eth2", "netns", NODE, "type", "veth", "peer", "name", "r2", "netns", PEER)
    for namespace, port, address in ((NODE, "eth2", "10.0.9.2"), (PEER, "r2", "10.0.9.1")):
        subprocess.run(inside(namespace, "ethtool", "-K", port, "gro", "off"), check=True, capture_output=True)
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", port)
        ip("-n", namespace, "link", "set", port, "mtu", "1600", "up")
    ip("-n", NODE, "route", "replace", "default", "via", "10.0.9.1")
    ip("-n", NODE, "neigh", "replace", "10.0.9.1", "lladdr", "02:00:00:00:00:09", "dev", "eth2", "nud", "permanent")
    forwarder.start(ports=[PORTS[0], PORTS[0] | {"device": "eth2"}], packet_pool=2 * POOL)
    forwarder.serve()
    for number in range(1, 7):
        wire.send(flow(i) for i in range(1000))
        wait_until(
            lambda sent=number * 1000: forwarder.ask("stats")["ports"][1]["transmit"]["sent"] == sent, "all left"
        )
    assert list(wire.tunneled()) == []
    assert forwarder.fates() == {"hash_new": 1000, "conn_hit": 5000}
    stopped_clean(forwarder)


def test_a_stream_keeps_the_pool_whole(wire: Wire, serving: Forwarder) -> None:
    """More packets than the pool and all rings of the socket have."""
    sent = 0
    for _ in range(40):
        sent += wire.send(flow(i % 400) for i in range(500))
    assert len(list(wire.tunneled())) == sent == 20000
    assert serving.ask("canary")["passed"]
    stopped_clean(serving)


def test_what_nobody_takes_in_time_is_counted_as_missed(wire: Wire, serving: Forwarder) -> None:
    """The socket's ring has 2048 places; the driver does not tell of packets that found none."""
    process = serving.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
    wait_until(lambda: all(" T " in (task / "stat").read_text() for task in tasks), "every thread stands")
    try:
        assert wire.send(flow(i % 400) for i in range(3000)) == 3000
    finally:
        process.send_signal(signal.SIGCONT)
    wait_until(lambda: serving.ask("stats")["received"] == 2048, "what found room is received")
    assert serving.ask("stats")["ports"][0]["missed"] == 952
    wire.send(flow(i) for i in range(200))
    wait_until(lambda: serving.ask("stats")["received"] == 2248, "it goes on")
    assert serving.ask("stats")["ports"][0]["missed"] == 952
    stopped_clean(serving)


# -- vips that come and go


def test_a_vip_is_ours_from_the_state_that_brings_it_to_the_one_that_lacks_it(wire: Wire, serving: Forwarder) -> None:
    """Otherwise its packets are the kernel's, which here has the address too and answers."""
    ip("-n", NODE, "addr", "add", f"{OTHER_VIP}/32", "dev", "lo")
    ip("-n", NODE, "link", "set", "lo", "up")
    ip("-n", PEER, "route", "add", f"{OTHER_VIP}/32", "via", NODE_ADDRESS)
    frames = [flow(i, dst=OTHER_VIP) for i in range(20)]
    more = state(TWO, WWW, vip("more", OTHER_VIP, ["web1"]))
    for service, ours in ((SERVICE, False), (more, True), (SERVICE, False)):
        assert serving.ask("state", state=service)["ok"]
        before = serving.ask("stats")["received"]
        wire.send(frames)
        assert len(list(wire.tunneled())) == (20 if ours else 0)
        assert serving.ask("stats")["received"] - before == (20 if ours else 0)
    assert pinged(OTHER_VIP), "by the kernel"
    wire.send([flow(1)])
    assert len(list(wire.tunneled())) == 1


def test_a_refused_state_leaves_the_addresses_as_they_were(wire: Wire, serving: Forwarder) -> None:
    wrong = state(TWO, vip("more", OTHER_VIP, ["web1"], table_size=65536))
    assert not serving.ask("state", state=wrong)["ok"]
    wire.send([flow(1), flow(1, dst=OTHER_VIP)])
    assert len(list(wire.tunneled())) == 1
    assert serving.ask("stats")["received"] == 1


# -- starts and ends


def test_kill_9_gives_the_interface_back_and_the_next_start_takes_it(wire: Wire, serving: Forwarder) -> None:
    for _ in range(3):
        assert has_program()
        serving.stop(signal.SIGKILL)
        wait_until(lambda: not has_program(), "the link ended with its process")
        assert pinged()
        serving.start()
        serving.serve()
        wire.send(flow(i) for i in range(200))
        assert len(list(wire.tunneled())) == 200
    stopped_clean(serving)
    assert pinged()


def test_a_program_that_a_start_left_half_way_is_taken_off(wire: Wire, forwarder: XdpForwarder) -> None:
    ip("-n", NODE, "link", "set", NODE_PORT, "xdp", "object", str(xdp.OBJECT), "section", "xdp")
    assert has_program()
    forwarder.start()
    stopped_clean(forwarder)


def test_the_capabilities_of_the_unit_are_enough(wire: Wire, forwarder: XdpForwarder) -> None:
    unit = (ROOT / "packaging/systemd/maglev.service").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    names = [f"+{name.removeprefix('CAP_').lower()}" for name in line.partition("=")[2].split()]
    forwarder.before = ("setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *names])}")
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start()
    forwarder.serve()
    wire.send([flow(1)])
    assert len(list(wire.tunneled())) == 1
    stopped_clean(forwarder)


def test_one_interface_has_one_forwarder(wire: Wire, serving: Forwarder) -> None:
    other = XdpForwarder()
    try:
        status, said = other.refused(settings(ports=PORTS, packet_pool=POOL))
    finally:
        other.close()
    assert status == 2
    assert "eth1 is the port of another forwarder that runs" in said
    wire.send([flow(1)])
    assert len(list(wire.tunneled())) == 1


def test_several_receive_queues_are_refused_with_the_command(wire: Wire, forwarder: XdpForwarder) -> None:
    subprocess.run(inside(NODE, "ethtool", "-L", NODE_PORT, "rx", "2"), check=True, capture_output=True)
    status, said = forwarder.refused(settings(ports=PORTS, packet_pool=POOL))
    assert status == 2
    assert "eth1 has 2 receive queues" in said
    command = said.split("`")[1]
    assert command == "ethtool -L eth1 rx 1"
    subprocess.run(inside(NODE, *command.split()), check=True, capture_output=True)
    forwarder.start()
    stopped_clean(forwarder)


def test_a_pool_that_the_rings_would_empty_is_refused_and_the_interface_free(
    wire: Wire, forwarder: XdpForwarder
) -> None:
    status, said = forwarder.refused(settings(ports=PORTS, packet_pool=4096))
    assert (status, "a packet pool of 4096 is too small" in said) == (2, True), said
    assert not has_program()
    status, said = forwarder.refused(settings(ports=PORTS, packet_pool=1024))
    assert (status, "port eth1 could not be opened" in said) == (2, True), said
    assert not has_program()


def test_with_more_workers_rss_falls_back_and_says_why(wire: Wire, forwarder: XdpForwarder) -> None:
    cpus = settings()["lcores"]
    forwarder.start(steering="rss", lcores=cpus | {"workers": cpus["workers"] * 2})
    assert forwarder.ask("ping")["steering"]["layout"] == "software"
    assert "port eth1 has only one queue" in forwarder.ask("ping")["steering"]["instead"]
    stopped_clean(forwarder)
    forwarder.start(steering="rss")
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.serve()
    assert forwarder.ask("ping")["steering"] == {"layout": "rss", "instead": None}
    wire.send(flow(i) for i in range(100))
    assert Counter(map(backend_address, wire.tunneled())).total() == 100
    stopped_clean(forwarder)


def test_link_state_is_the_kernels(wire: Wire, serving: Forwarder) -> None:
    assert [port["link"] for port in serving.ask("ping")["ports"]] == [True]
    ip("-n", PEER, "link", "set", PEER_PORT, "down")
    wait_until(lambda: not serving.ask("ping")["ports"][0]["link"], "the link is down")
    ip("-n", PEER, "link", "set", PEER_PORT, "up")
    wait_until(lambda: serving.ask("ping")["ports"][0]["link"], "the link is up")
    wire.listen_again()
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    wait_until(lambda: all(hop["mac"] for hop in serving.ask("stats")["next_hops"]), "next hops are known")
    wire.send([flow(1)])
    assert len(list(wire.tunneled())) == 1
