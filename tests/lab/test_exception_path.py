"""A port that the kernel does not see: traffic, BGP, ARP and whatever else is the node's own come by one wire.

A tap of DPDK's stands for the NIC. Its other end is joined to the wire of node lb1, whose kernel has no address on
it: all it has is the interface beside the port. Node lb2 is as the lab makes it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from needs import LAB
from whole_lab import whole_lab

from lab import laboratory, nodes, topology, traffic
from lab.laboratory import wait_until
from lab.namespaces import LabError
from lab.nodes import MAGLEV, WORK
from lab.topology import DEVICE, NODES, ROUTER, VIP
from lab.traffic import Traffic

NODE, _ = NODES
NIC, TAP = "wire0", "maglev0"
CABLE = Path(__file__).with_name("cable.py")
NIC_MAC = "02:00:00:00:0b:01"
OTHER_MACS = ("02:00:00:00:77:01", "02:00:00:00:77:02", "02:00:00:00:77:03")
ADDRESS6 = "fd00:2::2/64"
MTU = 1500  # more DPDK's tap does not take
REQUESTS = 300
PATIENCE = 20.0

pytestmark = LAB


def ip(*words: str) -> str:
    return NODE.namespace.ip(*words)


def link(device: str) -> dict[str, Any]:
    (shown,) = NODE.namespace.show("link", "show", device)
    return shown


def has_carrier() -> bool:
    return "LOWER_UP" in link(TAP)["flags"]


def hide_the_wire() -> subprocess.Popen[str]:
    """Join the wire to what stands for a NIC; the node's kernel has nothing to say on either."""
    ip("address", "flush", "dev", DEVICE)
    ip("tuntap", "add", NIC, "mode", "tap", "multi_queue")
    for device in (DEVICE, NIC):
        NODE.namespace.run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
        ip("link", "set", device, "mtu", str(MTU), "arp", "off", "up")
    return NODE.namespace.start([sys.executable, str(CABLE), DEVICE, NIC], WORK / "cable.log")


def use_the_nic() -> None:
    path = nodes.config_path(NODE)
    config = yaml.safe_load(path.read_text())
    device = f"net_tap0,iface={NIC},mac={NIC_MAC}"
    config["forwarder"]["ports"] = [{"device": device, "mtu": MTU, "tap": TAP}]
    path.write_text(yaml.safe_dump(config))


def give_addresses() -> None:
    """What a distribution's network configuration does when the interface appears."""
    ip("link", "set", TAP, "up")
    ip("address", "add", str(NODE.interface), "dev", TAP)
    ip("address", "add", ADDRESS6, "dev", TAP, "nodad")
    ip("route", "add", "default", "via", str(NODE.gateway))


def is_there(device: str) -> bool:
    with suppress(LabError):
        return bool(link(device))
    return False


def serves() -> bool:
    return has_carrier() and laboratory.all_announced() and laboratory.settled({"b1", "b2", "b3"})


def start_the_node() -> subprocess.Popen[str]:
    return NODE.namespace.start(
        [*MAGLEV, "run", str(nodes.config_path(NODE))], nodes.log_path(NODE), nodes.ENVIRONMENT
    )


def stop_the_node(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(nodes.status(NODE)["pid"], number)
    wait_until(lambda: not nodes.runs(NODE), PATIENCE, "the node has ended")


@pytest.fixture(scope="module")
def lab() -> Iterator[list[subprocess.Popen[str]]]:
    """The lab, up; and the processes that were started in it."""
    with whole_lab() as started:
        stop_the_node()
        started.append(hide_the_wire())
        use_the_nic()
        started.append(start_the_node())
        wait_until(lambda: is_there(TAP), PATIENCE, "there is an interface beside the port")
        give_addresses()
        wait_until(serves, PATIENCE * 4, "both nodes serve")
        yield started


def fates() -> dict[str, int]:
    return dict(nodes.status(NODE)["stats"]["fates"])


def since(before: dict[str, int]) -> dict[str, int]:
    return {fate: n - before[fate] for fate, n in fates().items() if n != before[fate]}


def test_the_interface_is_the_ports_twin(lab: object) -> None:
    shown = link(TAP)
    assert (shown["address"], shown["mtu"]) == (NIC_MAC, MTU)
    assert has_carrier()


def test_traffic_and_bgp_share_the_wire(lab: object) -> None:
    before = fates()
    results = traffic.burst(REQUESTS)
    assert (results.answered, results.failed) == (REQUESTS, 0)
    seen = since(before)
    assert seen["hash_new"] + seen["conn_hit"] > REQUESTS, "about half of the requests, of several packets each"
    wait_until(lambda: since(before).get("punt", 0) > 0, PATIENCE, "the router's keepalives reach the kernel")
    wait_until(lambda: since(before).get("from_kernel", 0) > 0, PATIENCE, "the kernel answers them")


@pytest.mark.parametrize("size", ["56", "1472"], ids=["small", "as large as the wire takes"])
def test_the_node_answers_pings_of_the_router(lab: object, size: str) -> None:
    ROUTER.run("ping", "-c", "3", "-i", "0.2", "-W", "2", "-M", "do", "-s", size, str(NODE.address))


def test_tcp_with_the_node_itself_carries_megabytes_both_ways(lab: object) -> None:
    """As SSH or a scrape of the metrics would."""
    size = 4 << 20
    serve = (
        "import socket; s = socket.create_server(('', 2222)); print('ready', flush=True); c, _ = s.accept()\n"
        "c.settimeout(20); n = 0\n"
        f"while n < {size}: n += len(c.recv(65536))\n"
        f"c.sendall(bytes({size})); c.close()"
    )
    ask = (
        f"import socket; s = socket.create_connection(('{NODE.address}', 2222), 10); s.sendall(bytes({size}))\n"
        "n = 0\n"
        "while part := s.recv(65536): n += len(part)\n"
        "print(n)"
    )
    with NODE.namespace.start([sys.executable, "-c", serve], WORK / "server.log", stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        assert int(ROUTER.run(sys.executable, "-c", ask)) == size
        server.wait(timeout=PATIENCE)


def test_a_new_mac_of_the_router_is_followed_within_a_second(lab: object) -> None:
    """The router tells, as routers do when they fail over; established connections go on."""
    ROUTER.run("sysctl", "-qw", f"net.ipv4.conf.{NODE.name}.arp_notify=1")
    with Traffic(connections=50, period=0.2) as load:
        for mac in OTHER_MACS:
            began = time.monotonic()
            ROUTER.ip("link", "set", NODE.name, "address", mac)
            wait_until(lambda mac=mac: follows(mac), PATIENCE, f"frames go to {mac}")  # type: ignore[misc]
            assert time.monotonic() - began < 1.0
            time.sleep(0.5)
        results = load.finish()
    assert [c.broken for c in results.connections if c.broken] == []


def follows(mac: str) -> bool:
    return {hop["mac"] for hop in nodes.status(NODE)["stats"]["next_hops"]} == {mac}


def test_what_a_switch_floods_is_not_this_nodes(lab: object) -> None:
    frames = f"Ether(dst={OTHER_MACS[0]!r}) / IP(dst={str(VIP)!r}) / TCP(sport=(1, 100), dport=80)"
    before = fates()
    ROUTER.run(sys.executable, "-c", f"from scapy.all import *; sendp({frames}, iface={NODE.name!r}, verbose=False)")
    wait_until(lambda: since(before).get("not_vip", 0) >= 100, PATIENCE, "all of them have come")
    assert nodes.status(NODE)["stats"]["reasons"]["other_station"]["packets"] >= 100
    assert since(before).get("hash_new") is None


def test_without_a_link_the_interface_has_no_carrier(lab: object) -> None:
    ip("link", "set", NIC, "down")
    wait_until(lambda: not has_carrier(), PATIENCE, "the interface has lost its carrier")
    wait_until(lambda: "link down" in nodes.status(NODE)["forwarder"]["reason"], PATIENCE, "the node knows")
    ip("link", "set", NIC, "up")
    wait_until(has_carrier, PATIENCE, "the interface has its carrier again")
    wait_until(serves, PATIENCE * 2, "both nodes serve")


def addresses() -> list[Any]:
    (shown,) = NODE.namespace.show("address", "show", TAP)
    return sorted((a["family"], a["local"], a["scope"]) for a in shown["addr_info"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_addresses_routes_and_the_session_outlive_a_forwarder(lab: object, number: signal.Signals) -> None:
    before = addresses(), NODE.namespace.show("route", "show"), session()
    down = verdicts_of_down()
    pid = nodes.status(NODE)["forwarder"]["pid"]
    os.kill(pid, number)
    wait_until(lambda: nodes.status(NODE)["forwarder"]["pid"] not in (None, pid), PATIENCE, "there is another one")
    wait_until(serves, PATIENCE * 2, "both nodes serve")
    routes = [{k: v for k, v in route.items() if k != "flags"} for route in NODE.namespace.show("route", "show")]
    expected = [{k: v for k, v in route.items() if k != "flags"} for route in before[1]]
    assert (addresses(), routes) == (before[0], expected)
    assert session() == before[2], "the router has not noticed"
    assert verdicts_of_down() == down, "probes that could not leave are held against no backend"
    assert traffic.burst(REQUESTS).failed == 0


def test_another_forwarder_does_not_get_an_interface_that_is_in_use(lab: object) -> None:
    take = f"from forwarder.taps import Tap; Tap({TAP!r})"
    with pytest.raises(LabError, match="maglev0 is beside a port of another forwarder"):
        NODE.namespace.run(sys.executable, "-c", take)
    assert has_carrier()


def test_the_neighbors_outlive_a_forwarder(lab: object) -> None:
    ip("neighbor", "replace", "10.0.2.77", "lladdr", OTHER_MACS[0], "dev", TAP, "nud", "permanent")
    pid = nodes.status(NODE)["forwarder"]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: nodes.status(NODE)["forwarder"]["pid"] not in (None, pid), PATIENCE, "there is another one")
    wait_until(serves, PATIENCE * 2, "both nodes serve")
    assert "PERMANENT" in ip("neighbor", "show", "10.0.2.77", "dev", TAP)


def test_an_interface_that_was_removed_is_told_and_made_anew(lab: object) -> None:
    ip("link", "del", TAP)
    said = f"the interface {TAP} beside a port was removed or renamed"
    wait_until(lambda: said in nodes.log_path(NODE).read_text(), PATIENCE, "the forwarder has said so")
    wait_until(lambda: is_there(TAP), PATIENCE, "there is another one")
    give_addresses()
    wait_until(serves, PATIENCE * 4, "both nodes serve")
    assert traffic.burst(REQUESTS).failed == 0


def verdicts_of_down() -> int:
    return nodes.log_path(NODE).read_text().count('"verdict": "down"')


def session() -> str:
    """Since when the router has its session with the node."""
    shown = ROUTER.run("birdc", "-s", str(WORK / "bird.ctl"), "show", "protocols", "all")
    lines = [line.split() for line in shown.splitlines()]
    at = next(
        i for i, line in enumerate(lines) if line[:2] == ["Neighbor", "address:"] and line[2] == str(NODE.address)
    )
    head = next(line for line in reversed(lines[:at]) if line[1:2] == ["BGP"])
    assert head[3] == "up", head
    return head[4]


def test_a_node_that_stops_gives_everything_back_and_leaves_the_interface(lab: list[subprocess.Popen[str]]) -> None:
    stop_the_node()
    wait_until(lambda: not has_carrier(), PATIENCE, "nobody is at the interface")
    assert (str(NODE.interface.ip), "global") in {(local, scope) for _, local, scope in addresses()}
    lab[-1].wait(timeout=PATIENCE)
    assert "not ended well" not in nodes.log_path(NODE).read_text()
    lab.append(start_the_node())
    wait_until(serves, PATIENCE * 4, "both nodes serve")
    assert topology.next_hops() == {str(node.address) for node in NODES}
    assert traffic.burst(REQUESTS).failed == 0
