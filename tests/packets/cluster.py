"""A cluster of two nodes for packet tests: whose fragments are whose, and the frames between the nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import GRE
from scapy.packet import Packet

from forwarder.forwarding import CLUSTER_SLOTS
from forwarder.hashing import twin
from packets.road import Road
from packets.world import CLIENT, CLIENT6, HASH_KEY, TUNNEL, TUNNEL6, VIP, VIP6, backend_address, ether, outer

LB2, LB2_6 = "10.0.2.6", "fd00:2::6"
NODES = {"lb1": TUNNEL, "lb2": LB2}
NODES6 = {"lb1": TUNNEL6, "lb2": LB2_6}
FRAGMENT_HEADER = 44


def in_cluster(state: Mapping[str, Any], nodes: Mapping[str, str] = NODES) -> dict[str, Any]:
    return {**state, "cluster": dict(nodes)}


@cache
def _slots(names: tuple[str, ...]) -> list[str]:
    return twin.table(dict.fromkeys(names, 1), CLUSTER_SLOTS)


def owner(source: str, destination: str, protocol: int, names: Sequence[str] = ("lb1", "lb2")) -> str:
    """Which node has the fragments between two hosts, found out apart from the forwarder; IPv6 has no protocol."""
    addresses = ip_address(source).packed, ip_address(destination).packed
    number = FRAGMENT_HEADER if ":" in source else protocol
    return _slots(tuple(sorted(names)))[(twin.flow_hash(HASH_KEY, *addresses, 0, 0, number) >> 32) % CLUSTER_SLOTS]


@cache
def client_of(node: str, destination: str = VIP, protocol: int = 17) -> str:
    """A client whose fragments to this vip are this node's."""
    pattern = "2001:db8:c::{:x}" if ":" in destination else "198.51.100.{}"
    clients = (pattern.format(number) for number in range(1, 255))
    return next(client for client in clients if owner(client, destination, protocol) == node)


def pieces(sport: int = 5000, size: int = 3000, number: int = 1, dport: int = 80, **ip: Any) -> list[Packet]:
    """A UDP datagram to the vip, in fragments of at most 1400 bytes."""
    payload = random.Random(number).randbytes(size)
    whole = IP(**{"src": CLIENT, "dst": VIP, "id": number, **ip}) / UDP(sport=sport, dport=dport) / payload
    return fragment(whole, fragsize=1400)


def pieces6(sport: int = 5000, size: int = 3000, number: int = 1, **ip: Any) -> list[Packet]:
    payload = random.Random(number).randbytes(size)
    header = IPv6(**{"src": CLIENT6, "dst": VIP6, **ip}) / IPv6ExtHdrFragment(id=number)
    return fragment6(header / UDP(sport=sport, dport=53) / payload, 1400)


def no_ports(inner: Packet) -> Packet:
    """A packet whose flow hash is that of a fragment on its way to another node: ports do not count."""
    return (IPv6 if inner.version == 6 else IP)(src=inner.src, dst=inner.dst) / UDP(sport=0, dport=0)


def sent_on(inner: Packet, to: str = LB2, **fields: Any) -> bytes:
    """The frame that must leave for a fragment that another node matches."""
    return outer(inner, to, recursion=1, of=no_ports(inner), **fields)


def from_node(inner: Packet | bytes, source: str = LB2, to: str = TUNNEL, **gre: Any) -> Packet:
    """The packet in which another node sends a fragment here; `gre` are fields of its GRE header."""
    raw = bytes(inner)
    fields = {"recursion_control": 1, "proto": 0x0800 if raw[:1] < b"\x60" else 0x86DD, **gre}
    header = IPv6(src=source, dst=to, nh=47) if ":" in source else IP(src=source, dst=to, proto=47)
    return header / GRE(**fields) / raw


class Pair:
    """Two nodes that send to each other by way of a router that loses nothing, in an order of its own."""

    def __init__(self, make_road: Callable[..., Road], state: Mapping[str, Any], **options: Any) -> None:
        self.roads = {
            "lb1": make_road(node="lb1", **options),
            "lb2": make_road(node="lb2", sources={4: LB2, 6: LB2_6}, **options),
        }
        self.between = 0  # frames that one node has sent to the other
        self.apply(state)

    def apply(self, state: Mapping[str, Any]) -> None:
        for road in self.roads.values():
            road.apply(dict(state))

    def send(self, frames: Sequence[tuple[str, bytes]], dice: random.Random, burst: int = 40) -> list[bytes]:
        """Let frames arrive at the node that stands with each; returns what left for backends."""
        waiting, out = list(frames), []
        nodes = {address: name for table in (NODES, NODES6) for name, address in table.items()}
        while waiting:
            now, waiting = waiting[:burst], waiting[burst:]
            for name, road in self.roads.items():
                for frame in road.send(*(frame for node, frame in now if node == name)):
                    to = nodes.get(backend_address(frame))
                    if to is None:
                        out.append(frame)
                        continue
                    self.between += 1
                    waiting.insert(dice.randrange(min(len(waiting), 2 * burst) + 1), (to, frame))
        return out

    def reasons(self) -> dict[str, int]:
        """Reasons that happened at either node."""
        counts = [road.dataplane.reasons() for road in self.roads.values()]
        return {reason: n for reason in counts[0] if (n := sum(count[reason] for count in counts))}


def spread(packets: Sequence[Packet], dice: random.Random) -> list[tuple[str, bytes]]:
    """The frames of these packets in any order, each at any of the two nodes."""
    frames = [(dice.choice(("lb1", "lb2")), bytes(ether(packet))) for packet in packets]
    dice.shuffle(frames)
    return frames
