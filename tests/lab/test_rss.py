"""Layout rss in a forwarder process: one worker carries an interface's packets; several fall back and say why."""

from __future__ import annotations

import os

import pytest
from needs import WIRE
from packets.world import BACKENDS, VIP, backend_address, flow, state, vip
from wire import PEER_ADDRESS, Forwarder, Wire, settings, wait_until

pytestmark = WIRE

CPUS = sorted(os.sched_getaffinity(0))
TWO = {name: BACKENDS[name] for name in ("web1", "dns1")}
SERVICE = state(TWO, vip("www", VIP, TWO, table_size=65537))
NOBODYS = 1023  # a CPU that is not there


def serve(wire: Wire, forwarder: Forwarder, workers: list[int], beside: int, idle: str = "sleep") -> None:
    lcores = {"steering": beside, "workers": workers, "muxing": beside}
    wire.neighbor(PEER_ADDRESS, wire.peer_mac)
    forwarder.start(steering="rss", lcores=lcores, idle=idle)
    assert forwarder.ask("state", state=SERVICE)["ok"]
    wait_until(lambda: all(hop["mac"] for hop in forwarder.ask("stats")["next_hops"]), "next hops are known")


def forwards(wire: Wire, forwarder: Forwarder) -> None:
    """Connections of TCP, a SYN and what follows it, each to the backend of its flow."""
    before = forwarder.fates()
    assert wire.send(flow(i) for i in range(500)) == 500
    homes = {bytes(frame[58:60]): backend_address(frame) for frame in wire.tunneled()}
    assert len(homes) == 500
    assert set(homes.values()) == set(TWO.values())
    wire.send(flow(i, flags="A") for i in range(500))
    assert {bytes(frame[58:60]): backend_address(frame) for frame in wire.tunneled()} == homes
    after = forwarder.ask("stats")
    assert after["fates"]["conn_hit"] - before.get("conn_hit", 0) == 500
    assert sum(after["fates"].values()) == after["received"]
    port = after["ports"][0]
    assert port["receive"]["received"] == port["receive"]["processed"]
    assert port["transmit"]["ready"] == port["transmit"]["sent"] == port["transmit"]["recycled"]


def test_one_worker_carries_packets_from_nic_to_nic(wire: Wire, forwarder: Forwarder) -> None:
    """Steering and muxing have no thread, so it does not matter what CPU was written for them."""
    serve(wire, forwarder, [CPUS[-1]], beside=NOBODYS)
    ping = forwarder.ask("ping")
    assert ping["steering"] == {"layout": "rss", "instead": None}
    assert [(lcore["stage"], lcore["cpu"]) for lcore in ping["lcores"]] == [("worker", CPUS[-1])]
    forwards(wire, forwarder)
    assert forwarder.ask("canary")["passed"]
    turns = ping["lcores"][0]["turns"]
    assert forwarder.ask("ping")["lcores"][0]["turns"] > turns
    assert forwarder.stop()[0] == 0


def test_connections_are_kept_when_one_worker_goes_over_to_rss(wire: Wire, forwarder: Forwarder) -> None:
    serve(wire, forwarder, [CPUS[-1]], beside=CPUS[0])
    forwards(wire, forwarder)
    assert forwarder.stop()[0] == 0
    forwarder.start()
    stats = forwarder.ask("stats")
    assert forwarder.ask("ping")["steering"]["layout"] == "software"
    assert stats["connections"] == {"kept": 500, "started_empty": None}


@pytest.mark.parametrize("idle", ["sleep", "yield"])
def test_two_workers_over_a_kernel_interface_fall_back_and_say_why(
    wire: Wire, forwarder: Forwarder, idle: str
) -> None:
    serve(wire, forwarder, [CPUS[0], CPUS[-1]], beside=CPUS[0], idle=idle)
    ping = forwarder.ask("ping")
    assert ping["steering"]["layout"] == "software"
    why = "steering: software in place of rss: port eth1 has only one queue; 2 workers need RSS over as many queues"
    assert ping["steering"]["instead"].startswith(why)
    assert ("And idle: sleep in place of yield" in ping["steering"]["instead"]) == (idle == "yield")
    stages = [lcore["stage"] for lcore in ping["lcores"]]
    assert stages == ["steering", "worker", "worker", "muxing"]
    forwards(wire, forwarder)
    status, said = forwarder.stop()
    assert status == 0
    assert why in said


def test_a_fallback_that_has_no_cpu_is_refused(wire: Wire, forwarder: Forwarder) -> None:
    lcores = {"steering": NOBODYS, "workers": [CPUS[0], CPUS[-1]], "muxing": CPUS[0]}
    status, said = forwarder.refused(settings(steering="rss", lcores=lcores))
    assert status == 2
    assert f"CPU {NOBODYS} in forwarder.lcores cannot be used here" in said.splitlines()[-1]
