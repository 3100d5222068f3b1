"""What is not for a vip: passed to the kernel where the port has a kernel side, else dropped as `not_vip`.

ICMP to a vip's address is here when it is neither an echo request (test_echo.py) nor an error about a flow of a vip
(test_icmp_errors.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.sctp import SCTP, SCTPChunkInit
from scapy.packet import Packet

from packets.road import Road
from packets.table import Row
from packets.world import (
    ANY_PORT,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    ELSEWHERE6,
    GATEWAY_MAC,
    NODE_MAC,
    OVER6,
    VIP,
    VIP6,
    WORLD,
    ether,
    state,
    tcp,
    udp,
    vip,
)


def foreign(description: str, reason: str, send: Packet | bytes) -> Row:
    """Not for the address of any vip: the kernel's, where there is one."""
    return Row(description, send=send, fate="punt", reason=reason)


def ours(description: str, reason: str, send: Packet | bytes) -> Row:
    """For the address of a vip, but no vip: nobody's."""
    return Row(description, send=send, fate="not_vip", reason=reason)


# The reasons of what a kernel would have, where there is none.
WITHOUT_KERNEL = {"punt_address": "other_address", "punt_not_ip": "not_ip"}


FOREIGN = [
    foreign("TCP to another address", "punt_address", ether(tcp(ELSEWHERE))),
    foreign("UDP to another address", "punt_address", ether(udp(ELSEWHERE))),
    foreign("TCP to another IPv6 address", "punt_address", ether(tcp(ELSEWHERE6))),
    foreign("UDP to another IPv6 address", "punt_address", ether(udp(ELSEWHERE6))),
    foreign("the address after the vip's", "punt_address", ether(tcp("192.0.2.2"))),
    foreign("the address before the vip's", "punt_address", ether(tcp("192.0.2.0"))),
    foreign("an IPv6 address that differs in its first bit", "punt_address", ether(tcp("a001:db8::1"))),
    foreign("an IPv6 address that begins with the bytes of an IPv4 vip", "punt_address", ether(tcp("c000:201::"))),
    foreign("the vip as an IPv4-mapped IPv6 address", "punt_address", ether(tcp("::ffff:192.0.2.1"))),
    foreign("to the limited broadcast address", "punt_address", ether(udp("255.255.255.255", dport=67))),
    foreign("to a multicast group", "punt_address", ether(udp("224.0.0.5"))),
    foreign(
        "ICMP error to another address",
        "punt_address",
        ether(IP(src=CLIENT, dst=ELSEWHERE) / ICMP(type=3) / bytes(28)),
    ),
    foreign(
        "ICMPv6 echo to another address",
        "punt_address",
        ether(IPv6(src=CLIENT6, dst=ELSEWHERE6) / ICMPv6EchoRequest()),
    ),
    foreign(
        "ICMPv6 cut short to another address",
        "punt_address",
        ether(IPv6(src=CLIENT6, dst=ELSEWHERE6, nh=58) / b"\x80"),
    ),
    foreign("ICMP to another address", "punt_address", ether(IP(src=CLIENT, dst=ELSEWHERE) / ICMP())),
    foreign(
        "neighbor solicitation",
        "punt_address",
        ether(IPv6(src=CLIENT6, dst="ff02::1:ff00:1") / ICMPv6ND_NS(tgt=VIP6)),
    ),
    foreign("TTL 0 to another address", "punt_address", ether(tcp(ELSEWHERE, ttl=0))),
    foreign(
        "a fragment to another address", "punt_address", ether(IP(src=CLIENT, dst=ELSEWHERE, flags="MF") / TCP())
    ),
    foreign("ARP", "punt_not_ip", ether(ARP(op=1, pdst=VIP, psrc=CLIENT))),
    foreign("a frame of an unknown type", "punt_not_ip", ether(b"hello", type=0x88CC)),
    foreign("a frame of an unknown type and nothing else", "punt_not_ip", ether(type=0x9000)),
    foreign(
        "an 802.3 frame with its length for a type",
        "punt_not_ip",
        Dot3(src=GATEWAY_MAC, dst=NODE_MAC) / (b"\x42" * 46),
    ),
    foreign("a frame with a VLAN tag to another address", "punt_address", ether(Dot1Q(vlan=5) / tcp(ELSEWHERE))),
    foreign(
        "a frame with three VLAN tags", "punt_not_ip", ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / tcp())
    ),
    foreign("MPLS", "punt_not_ip", Ether(src=GATEWAY_MAC, dst=NODE_MAC, type=0x8847) / MPLS(label=3, s=1) / tcp()),
]

OURS = [
    ours("another TCP port of a vip's address", "other_port", ether(tcp(dport=81))),
    ours("another UDP port of a vip's address", "other_port", ether(udp(dport=81))),
    ours("port 0 where the vip has one port", "other_port", ether(tcp(dport=0))),
    ours("the vip's port with its bytes swapped", "other_port", ether(tcp(dport=0x5000))),
    ours("the other protocol of a vip's port", "other_port", ether(udp(VIP6, dport=80))),
    ours(
        "the other protocol of a vip of any port, without a vip of its own", "other_port", ether(udp(OVER6, dport=80))
    ),
    ours("another port of an IPv6 vip's address", "other_port", ether(tcp(VIP6, dport=443))),
    ours("TTL 0 to another port", "other_port", ether(tcp(dport=81, ttl=0))),
    ours("ICMP echo reply to a vip", "other_icmp", ether(IP(src=CLIENT, dst=VIP) / ICMP(type=0, id=7, seq=1))),
    ours(
        "ICMPv6 echo reply to a vip", "other_icmp", ether(IPv6(src=CLIENT6, dst=VIP6) / ICMPv6EchoReply(id=7, seq=1))
    ),
    ours(
        "ICMP error about a packet that was sent to the vip, not by it",
        "quote_unknown",
        ether(IP(src=ELSEWHERE, dst=VIP) / ICMP(type=3, code=4) / bytes(tcp())[:28]),
    ),
    ours(
        "an ICMPv6 echo request in IPv4",
        "other_protocol",
        ether(IP(src=CLIENT, dst=VIP, proto=58) / (b"\x80" + bytes(7))),
    ),
    ours("an ICMP echo request in IPv6", "other_protocol", ether(IPv6(src=CLIENT6, dst=VIP6, nh=1) / ICMP())),
    ours(
        "ICMP timestamp to the address of a vip of any port",
        "other_icmp",
        ether(IP(src=CLIENT, dst=ANY_PORT) / ICMP(type=13)),
    ),
    ours("neighbor solicitation to a vip", "other_icmp", ether(IPv6(src=CLIENT6, dst=VIP6) / ICMPv6ND_NS(tgt=VIP6))),
    ours("GRE to a vip", "other_protocol", ether(IP(src=CLIENT, dst=VIP) / GRE() / tcp())),
    ours("IP in IP to a vip", "other_protocol", ether(IP(src=CLIENT, dst=VIP) / tcp())),
    ours("SCTP to a vip", "other_protocol", ether(IP(src=CLIENT, dst=VIP) / SCTP(dport=80) / SCTPChunkInit())),
    ours("ESP to a vip", "other_protocol", ether(IP(src=CLIENT, dst=VIP, proto=50) / bytes(40))),
    ours("protocol 0 to a vip", "other_protocol", ether(IP(src=CLIENT, dst=VIP, proto=0) / bytes(40))),
    ours("protocol 255 without a byte to a vip", "other_protocol", ether(IP(src=CLIENT, dst=VIP, proto=255))),
    ours("IPv6 without next header to a vip", "other_protocol", ether(IPv6(src=CLIENT6, dst=VIP6, nh=59))),
    ours(
        "IPv6 with an unknown header to a vip",
        "other_protocol",
        ether(IPv6(src=CLIENT6, dst=VIP6, nh=253) / bytes(16)),
    ),
    ours("IPv6 ESP to a vip", "other_protocol", ether(IPv6(src=CLIENT6, dst=VIP6, nh=50) / bytes(16))),
]


@pytest.mark.parametrize("row", FOREIGN + OURS, ids=str)
def test_with_a_kernel_behind_the_port(make_road: Callable[..., Road], row: Row) -> None:
    road = make_road(punts=True)
    road.apply(WORLD)
    row.check(road)


@pytest.mark.parametrize("row", FOREIGN + OURS, ids=str)
def test_without_a_kernel_behind_the_port(road: Road, row: Row) -> None:
    reason = WITHOUT_KERNEL.get(row.reason or "", row.reason)
    Row(row.description, row.send, "not_vip", reason=reason).check(road)


@pytest.mark.parametrize("punts", [False, True])
def test_before_the_first_state_nothing_is_ours(make_road: Callable[..., Road], punts: bool) -> None:
    road = make_road(punts=punts)
    fate = "punt" if punts else "not_vip"
    packets = (tcp(), udp(), tcp(VIP6), IP(src=CLIENT, dst=VIP) / ICMP(), IP(src=CLIENT, dst=VIP) / ICMP(type=3))
    assert road.fates_of(*(bytes(ether(p)) for p in packets)) == {fate: 5}


def test_a_vip_that_was_removed_is_not_ours_any_more(make_road: Callable[..., Road]) -> None:
    road = make_road(punts=True)
    road.apply(state({"b1": "10.0.3.2"}, vip("a", VIP, ["b1"]), vip("b", ANY_PORT, ["b1"])))
    assert road.fate_of(bytes(ether(tcp()))) == "hash_new"
    road.apply(state({"b1": "10.0.3.2"}, vip("b", ANY_PORT, ["b1"])))
    assert road.fate_of(bytes(ether(tcp()))) == "punt"
    road.apply(state({}))
    assert road.fate_of(bytes(ether(tcp(ANY_PORT)))) == "punt"
