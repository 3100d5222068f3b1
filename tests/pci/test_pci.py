"""`make test-pci`: a NIC on PCI as a port, in a machine of its own. The tests build on each other."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest
from conftest import say
from guest import ADDRESS, Guest
from outside import NICS, NODE, Nic, Site, configuration

from lab import traffic
from lab.laboratory import wait_until
from lab.topology import CLIENT, CLIENT_MTU, PORT, ROUTER, TUNNEL_MTU, VIP

CONFIG = "/etc/maglev/maglev.yaml"
SHARE = "/opt/maglev/share/maglev/packaging"
START = 120.0  # seconds until a node that was started is announced
REQUESTS = 100
# As docs/pci.md has it.
NETWORK = f"""
[Match]
Name=maglev0
[Network]
Address={NODE.interface}
Gateway={NODE.gateway}
ConfigureWithoutCarrier=yes
"""
BULK = 2 << 20
FLOWS = 16
TARGET = {"protocol": "tcp", "destination": str(VIP), "destination_port": PORT}
# `maglev lookup --live` for many flows, in one process: to start one takes seconds there.
LOOKUPS = """
import json, pathlib, sys
from controller.api_client import ask
path = pathlib.Path("/run/maglev/lb1/controller.sock")
print(json.dumps([ask(path, "POST", "/lookup", flow) for flow in json.load(sys.stdin)]))
"""
# What does not depend on the kind of NIC is tried with the first; pytest keeps its tests together by the position.
IN_FULL = pytest.mark.parametrize("nic", NICS[:1], ids=lambda nic: nic.name, indirect=True, scope="session")
TRANSFER = (sys.executable, "-m", "lab.bulk")


def status(guest: Guest) -> dict[str, Any]:
    return dict(json.loads(guest.run("maglev status --json")))


def findings(guest: Guest) -> list[dict[str, str]]:
    """What the doctor says of what a NIC on PCI needs."""
    _, told = guest.attempt(f"maglev doctor {CONFIG} --json")
    return [f for f in json.loads(told)["findings"] if f["subject"] in ("hugepages", "IOMMU", "NICs")]


def serves(guest: Guest, site: Site) -> None:
    """The vip is announced, and requests to it are answered, all at the first attempt, over all backends."""
    seconds = wait_until(site.announced, START, "the router has a route to the node")
    before = status(guest)["stats"]["fates"]["hash_new"]
    results = traffic.burst(REQUESTS)
    say(f"announced after {seconds:.0f} s; {results.answered} of {REQUESTS} requests answered, {results.per_backend}")
    assert (results.answered, results.failed, results.retries) == (REQUESTS, 0, [])
    assert sorted(results.per_backend) == ["b1", "b2", "b3"]
    stats = status(guest)["stats"]
    assert stats["fates"]["hash_new"] - before == REQUESTS
    assert stats["received"] == sum(stats["fates"].values())


def each_flow_is_with_the_worker_that_we_expect(guest: Guest) -> None:
    """A lookup asks the worker to which the NIC should have given the flow, as we compute its hash."""
    with traffic.Traffic(connections=FLOWS, requests=0):
        lines = CLIENT.namespace.run("ss", "-Htn", "state", "established", "dst", str(VIP)).splitlines()
        clients = [line.split()[2].rpartition(":") for line in lines]
        flows = [{"source": address, "source_port": int(port), **TARGET} for address, _, port in clients]
        guest.write("/run/flows", json.dumps(flows))
        answers = json.loads(guest.run(f"python3 -c {shlex.quote(LOOKUPS)} < /run/flows"))
    assert [answer["source"] for answer in answers] == ["connection"] * FLOWS


def test_the_machine_has_an_iommu_and_the_kernel_has_the_nic(guest: Guest, nic: Nic) -> None:
    guest.write(CONFIG, configuration(nic, ADDRESS))
    assert "DMAR: IOMMU enabled" in guest.run("dmesg")
    assert guest.run(f"basename $(readlink /sys/bus/pci/devices/{ADDRESS}/driver)").strip() != "vfio-pci"


@IN_FULL
def test_a_node_is_refused_while_the_kernel_has_the_nic(guest: Guest) -> None:
    guest.run("sysctl -w vm.nr_hugepages=41")
    exit_status, told = guest.attempt(f"maglev run {CONFIG}")
    assert exit_status == 2
    assert "can only have a NIC that is bound to vfio-pci: `maglev doctor CONFIG` gives the commands." in told
    assert guest.attempt("ip link show maglev0")[0] != 0
    guest.run("sysctl -w vm.nr_hugepages=0")


def test_the_doctor_says_what_is_missing_and_its_commands_mend_it(guest: Guest, nic: Nic) -> None:
    errors = [finding for finding in findings(guest) if finding["level"] == "error"]
    assert {finding["subject"] for finding in errors} == {"hugepages", "IOMMU", "NICs"}
    for finding in errors:
        say(f"{finding['says']}: {finding['mend'].partition('#')[0]}")
        guest.run(finding["mend"])
    after = findings(guest)
    assert [finding for finding in after if finding["level"] != "ok"] == []
    assert any("the IOMMU is on" in finding["says"] for finding in after)
    assert any(nic.driver in finding["says"] for finding in after)


def test_the_unit_runs_a_node_that_serves(guest: Guest, site: Site) -> None:
    guest.run(f"cp {SHARE}/systemd/maglev.service /etc/systemd/system/ && systemctl daemon-reload")
    guest.write("/etc/systemd/network/50-maglev0.network", NETWORK)
    guest.run("systemctl start systemd-networkd maglev")
    serves(guest, site)


def test_the_layout_is_the_one_that_was_asked_for(guest: Guest, nic: Nic) -> None:
    found = status(guest)
    wanted = str(nic.forwarder.get("steering", "software"))
    assert found["forwarder"]["steering"] == {"layout": wanted, "instead": None}
    inserted = [worker["inserted"] for worker in found["stats"]["workers"]]
    assert len(inserted) == nic.queues
    assert all(inserted), inserted
    if nic.queues > 1:
        each_flow_is_with_the_worker_that_we_expect(guest)


@IN_FULL
def test_full_packets_go_by_the_kernel_and_the_interface_beside_the_nic(guest: Guest) -> None:
    guest.run("cd / && (python3 -m lab.backend node 8000 > /dev/null 2>&1 &); until ss -ltn | grep :8000; do :; done")
    for direction in ("up", "down"):
        transfer = json.loads(ROUTER.run(*TRANSFER, str(NODE.address), "8000", direction, str(BULK)))
        assert (transfer["backend"], transfer["bytes"], transfer["mtu"]) == ("node", BULK, TUNNEL_MTU)
        say(f"{direction}load of {BULK >> 20} MB to the node itself: {BULK * 8e-6 / transfer['seconds']:.0f} Mbit/s")
    guest.run("pkill -f lab.backend")


@IN_FULL
def test_full_packets_go_through_the_tunnel(guest: Guest) -> None:
    transfer = json.loads(CLIENT.namespace.run(*TRANSFER, str(VIP), str(PORT), "up", str(BULK)))
    assert (transfer["bytes"], transfer["mtu"]) == (BULK, CLIENT_MTU)
    say(f"upload of {BULK >> 20} MB through the vip: {BULK * 8e-6 / transfer['seconds']:.0f} Mbit/s")


@IN_FULL
def test_a_forwarder_that_was_killed_has_the_nic_again(guest: Guest, site: Site) -> None:
    before = status(guest)["forwarder"]["pid"]
    guest.run(f"kill -KILL {before}")
    wait_until(lambda: status(guest)["forwarder"]["pid"] not in (before, None), START, "another forwarder runs")
    wait_until(lambda: status(guest)["forwarder"]["healthy"], START, "it is healthy")
    serves(guest, site)


def test_a_node_that_is_stopped_gives_every_packet_back(guest: Guest, site: Site) -> None:
    guest.run("systemctl stop maglev")
    assert not site.announced()
    told = guest.run("journalctl -u maglev --no-pager")
    assert "draining" in told
    assert "did not return to the pool" not in told
    assert "not ended well" not in told


@IN_FULL
def test_it_starts_again_on_the_same_nic_and_the_interface_has_kept_its_address(guest: Guest, site: Site) -> None:
    guest.run("systemctl start maglev")
    serves(guest, site)
    assert str(NODE.interface) in guest.run("ip address show maglev0")
