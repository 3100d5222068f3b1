"""Everything at once, at random: what no row thinks of. Each packet has one record in the trace, and the laws hold.

Fragments, in order and not, some from another node; packets that must be cut or answered; reports of path MTUs;
states and clusters that change, flows that are flushed; small rings, pools and tables; stepped, or on lcores.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet

from forwarder._dataplane import DataplaneError
from packets.cluster import LB2, NODES6, client_of, from_node, in_cluster, pieces, pieces6
from packets.road import Road, port_settings, wait_until
from packets.test_path_mtu import quoted, report, report6
from packets.world import BACKENDS, CLIENT, CLIENT6, TUNNEL, VIP, VIP6, WORLD, ether, state, tcp, vip

SEEDS, TURNS = 3, 200
MOST_IDS = 64
STATES = [
    WORLD,
    in_cluster(WORLD),
    in_cluster(WORLD, {"lb1": TUNNEL, "zz": "10.0.2.7", "aa": "10.0.2.8"}),
    in_cluster({"version": 1, "backends": {}, "vips": []}),
    state(BACKENDS, vip("dns", VIP, [["dns1", 100, "drain"]], "udp", 80)),
    in_cluster(state({"new": "10.9.9.9"}, vip("dns", VIP, ["new"], "udp", 80)), NODES6),
]


def packets(dice: random.Random) -> list[Packet]:
    """Some of each kind."""
    clients = [client_of("lb1"), client_of("lb2"), CLIENT]
    made: list[Packet] = []
    for number in range(1, 60):
        size, port = dice.choice([100, 1500, 3000, 9000]), dice.choice([80, 81])
        parts = pieces(number=number, src=dice.choice(clients), size=size, dport=port)
        made += [*parts, *(from_node(part) for part in parts if dice.random() < 0.2)]
    for number in range(1, 20):
        parts = pieces6(number=number, size=dice.choice([100, 3000]))
        made += parts + [from_node(part, source=LB2) for part in parts if dice.random() < 0.3]
    for port in range(100):
        flags, size = dice.choice(["S", "A", "R", "FA"]), dice.choice([0, 100, 1450, 2500, 9000])
        header = IP(src=CLIENT, dst=VIP, flags=dice.choice([0, "DF"]))
        made.append(header / TCP(sport=port, dport=80, flags=flags) / bytes(size))
        header6 = IPv6(src=CLIENT6, dst=VIP6)
        made.append(header6 / TCP(sport=port, dport=80) / bytes(dice.choice([0, 1200, 1300, 5000])))
    for mtu in (0, 600, 700, 900, 1300, 1400):
        made += [report(mtu), report6(mtu), report(mtu, quoted(BACKENDS["dns1"]))]
    return [*made, IP(src=CLIENT, dst=VIP) / ICMP() / b"x"]


class Chaos:
    """One road, what befalls it in a turn, and what was told of its packets."""

    def __init__(self, make_road: Callable[..., Road], seed: int, running: bool) -> None:
        self.dice = random.Random(seed)
        self.frames = [bytes(ether(packet)) for packet in packets(self.dice)] + [b"\x02"]
        self.running = running
        self.told: dict[int, str] = {}
        self.road = make_road(
            workers=self.dice.choice([1, 2, 3]),
            ring_size=self.dice.choice([64, 64, 128, 1024]),
            pool=self.dice.choice([512, 900, 4096]),
            connections=self.dice.choice([8, 64, 1024]),
            seconds=(1, 3, 1, 2),
            trace=True,
            ports=[port_settings(self.dice.choice([600, 1400, 1500])), port_settings(self.dice.choice([576, 1500]))],
        )
        self.road.apply(self.dice.choice(STATES[:3]))
        if running:
            self.road.start()

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def give(self) -> None:
        port = self.dice.randrange(2)
        for _ in range(self.dice.randrange(1, 60)):
            frame, tag = self.dice.choice(self.frames), self.dice.choice([None, None, 0x2005])
            try:
                self.road.ports[port].give(frame, stripped=tag)
            except DataplaneError:
                return
            self.road.given += 1

    def change(self) -> None:
        if self.chance(0.1):
            self.road.apply(self.dice.choice(STATES))
        if self.chance(0.05):
            self.road.forwarding.reap()
        if self.chance(0.03):
            self.road.forwarding.flush("dns1")
        if self.chance(0.2):
            with contextlib.suppress(DataplaneError):  # no room for it
                self.road.dataplane.inject(bytes(ether(tcp())), self.dice.randrange(self.road.workers))
        if self.running and self.chance(0.05):
            self.road.stop()
            self.road.start()

    def turn(self) -> None:
        self.give()
        self.change()
        if not self.running:
            for _ in range(self.dice.randrange(4)):
                self.road.dataplane.step(self.road.now)
            self.road.now += self.dice.choice([0, 0, 0, 0, 1, 700]) if self.chance(0.3) else 0
        for port in range(2):
            if self.chance(0.7):
                self.road.take(port)
        self.read()

    def read(self) -> None:
        self.road.dataplane.collect()
        for number, reason, *ids in self.road.dataplane.traces():
            assert number not in self.told
            assert all(id is None or id < MOST_IDS for id in ids), "a vip and a backend that there are, or were"
            self.told[number] = reason

    def settled(self) -> bool:
        for port in range(2):
            self.road.take(port)
        self.read()
        if not self.running:
            self.road.now += 1
            self.road.step()
        return self.road.settled()


@pytest.mark.parametrize("running", [False, True], ids=["stepped", "on lcores"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_chaos(make_road: Callable[..., Road], seed: int, running: bool) -> None:
    chaos = Chaos(make_road, seed, running)
    for _ in range(TURNS):
        chaos.turn()
    wait_until(chaos.settled, "every packet has a fate")
    chaos.read()
    assert sorted(chaos.told) == list(range(chaos.road.given))
    counted = {reason: n for reason, n in chaos.road.dataplane.reasons().items() if n}
    assert Counter(chaos.told.values()) == counted
    assert len(counted) > 15, "many things happened"
