"""The forwarder process follows the kernel's routes, neighbors and links."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter

from needs import WIRE
from packets.world import flow
from wire import (
    NODE,
    NODE_PORT,
    ONE_SERVICE,
    PEER,
    PEER_ADDRESS,
    PEER_PORT,
    Forwarder,
    Wire,
    ip,
    wait_until,
)

pytestmark = WIRE

OTHER_MAC = "02:00:00:00:77:77"


def forwarded_macs(wire: Wire, number: int) -> Counter[str]:
    """Send one packet of a flow; where it was sent to."""
    wire.send([flow(number, flags="A")])
    return Counter(f[:6].hex(":") for f in wire.tunneled())


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
