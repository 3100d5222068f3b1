"""Tagged frames: read through one or two tags, and sent with the tags they came with."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Dot1AD, Dot1Q
from scapy.packet import Packet

from packets.road import Road
from packets.table import Row
from packets.world import CLIENT, VIP, VIP6, ether, outer, tcp

WEB1, SIX1 = "10.0.3.2", "fd00:3::2"
MACS = 12


def tag(vlan: int, kind: int = 0x8100) -> bytes:
    """A tag as it stands in a frame; `vlan` is its whole 16 bits, priority included."""
    return kind.to_bytes(2, "big") + vlan.to_bytes(2, "big")


def tagged(tags: bytes, inner: Packet, backend: str) -> bytes:
    """What must leave: the untagged frame with the tags put in behind the MACs."""
    plain = bytes(outer(inner, backend))
    return plain[:MACS] + tags + plain[MACS:]


ROWS = [
    Row(
        "one tag stays on the frame",
        send=ether(Dot1Q(vlan=5) / tcp()),
        fate="hash_new",
        out=tagged(tag(5), tcp(), WEB1),
        vip="www",
        backend="web1",
    ),
    Row(
        "priority and drop bits of the tag stay",
        send=ether(Dot1Q(vlan=4095, prio=7, dei=1) / tcp()),
        fate="hash_new",
        out=tagged(tag(0xFFFF), tcp(), WEB1),
        vip="www",
        backend="web1",
    ),
    Row(
        "a service tag and a customer tag stay in order",
        send=ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / tcp()),
        fate="hash_new",
        out=tagged(tag(5, 0x88A8) + tag(6), tcp(), WEB1),
        vip="www",
        backend="web1",
    ),
    Row(
        "a tag before IPv6, over an IPv6 tunnel",
        send=ether(Dot1Q(vlan=9) / tcp(VIP6)),
        fate="hash_new",
        out=tagged(tag(9), tcp(VIP6), SIX1),
        vip="www6",
        backend="six1",
    ),
    Row(
        "padding behind a tagged packet is cut off",
        send=bytes(ether(Dot1Q(vlan=5) / tcp())) + bytes(6),
        fate="hash_new",
        out=tagged(tag(5), tcp(), WEB1),
        vip="www",
        backend="web1",
    ),
    Row("a frame that ends inside its tag", send=ether(b"\0\5", type=0x8100), fate="malformed"),
    Row("a frame that ends inside its second tag", send=ether(Dot1Q(vlan=5, type=0x8100) / b"\0"), fate="malformed"),
    Row("a tag and nothing behind it", send=ether(Dot1Q(vlan=5, type=0x0800)), fate="malformed"),
    Row(
        "a broken packet behind a tag",
        send=ether(Dot1Q(vlan=5) / IP(src=CLIENT, dst=VIP, version=5) / TCP(dport=80)),
        fate="malformed",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_vlan(road: Road, row: Row) -> None:
    row.check(road)


def test_the_same_flow_with_and_without_a_tag_is_one_flow(road: Road) -> None:
    assert road.fates_of(ether(tcp()), ether(Dot1Q(vlan=5) / tcp())) == {"hash_new": 1, "conn_hit": 1}
