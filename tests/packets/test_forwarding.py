"""What is for a vip leaves in GRE towards its backend, the inner packet byte for byte as it came."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import (
    IP,
    TCP,
    UDP,
    IPOption_LSRR,
    IPOption_NOP,
    IPOption_Router_Alert,
    IPOption_RR,
    IPOption_Timestamp,
)
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import GRE, Ether
from scapy.packet import Packet

from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    ANY_PORT,
    BACKENDS,
    CLIENT,
    CLIENT6,
    EMPTY,
    NODE_MAC,
    OVER4,
    OVER6,
    TUNNEL,
    TUNNEL6,
    VIP,
    VIP6,
    WORLD,
    ether,
    flow_hash,
    outer,
    tcp,
    udp,
)

WEB1, DNS1, SIX1 = BACKENDS["web1"], BACKENDS["dns1"], BACKENDS["six1"]


def new(description: str, inner: Packet, vip: str = "www", backend: str = "web1", padding: bytes = b"") -> Row:
    """A packet of a new flow that the vip's one backend gets."""
    return Row(
        description,
        send=bytes(ether(inner)) + padding,
        fate="hash_new",
        out=outer(inner, BACKENDS[backend]),
        vip=vip,
        backend=backend,
    )


def marked(description: str, inner: Packet, tos: int, vip: str = "www", backend: str = "web1") -> Row:
    """A packet whose outer header must have this class."""
    return Row(
        description,
        send=ether(inner),
        fate="hash_new",
        out=outer(inner, BACKENDS[backend], tos=tos),
        vip=vip,
        backend=backend,
    )


def behind(*headers: Packet) -> Packet:
    """A TCP packet to the IPv6 vip behind extension headers."""
    packet: Packet = IPv6(src=CLIENT6, dst=VIP6)
    for header in headers:
        packet /= header
    return packet / TCP(sport=40000, dport=80)


ENCAPSULATION = [
    Row(
        "TCP over IPv4 in GRE over IPv4, every field of the outer headers",
        send=ether(tcp(payload=b"data")),
        fate="hash_new",
        out=Ether(src=NODE_MAC, dst="02:00:00:00:00:01", type=0x0800)
        / IP(version=4, ihl=5, tos=0, len=68, id=0, flags="DF", frag=0, ttl=64, proto=47, src=TUNNEL, dst=WEB1)
        / GRE(chksum_present=0, routing_present=0, key_present=0, seqnum_present=0, version=0, proto=0x0800)
        / tcp(payload=b"data"),
        vip="www",
        backend="web1",
    ),
    Row(
        "TCP over IPv6 in GRE over IPv6, every field of the outer headers",
        send=ether(tcp(VIP6, payload=b"data")),
        fate="hash_new",
        out=Ether(src=NODE_MAC, dst="02:00:00:00:00:01", type=0x86DD)
        / IPv6(tc=0, fl=flow_hash(tcp(VIP6)) & 0xFFFFF, plen=68, nh=47, hlim=64, src=TUNNEL6, dst=SIX1)
        / GRE(chksum_present=0, routing_present=0, key_present=0, seqnum_present=0, version=0, proto=0x86DD)
        / tcp(VIP6, payload=b"data"),
        vip="www6",
        backend="six1",
    ),
    new("TCP over IPv4 in GRE over IPv4", tcp(flags="A")),
    new("UDP over IPv4 in GRE over IPv4", udp(dport=80), "dns", "dns1"),
    new("TCP over IPv4 in GRE over IPv6", tcp(OVER6), "www over 6", "six1"),
    new("UDP over IPv4 in GRE over IPv6", udp(OVER6), "dns over 6", "six2"),
    new("TCP over IPv6 in GRE over IPv4", tcp(OVER4), "www over 4", "web1"),
    new("UDP over IPv6 in GRE over IPv4", udp(OVER4), "dns over 4", "dns1"),
    new("TCP over IPv6 in GRE over IPv6", tcp(VIP6), "www6", "six1"),
    new("UDP over IPv6 in GRE over IPv6", udp(VIP6), "dns6", "six2"),
    new("TCP with options and data", IP(src=CLIENT, dst=VIP, id=9) / TCP(dport=80, options=[("MSS", 1460)]) / b"x"),
    new("UDP without data", udp(dport=80, payload=b""), "dns", "dns1"),
    new(
        "UDP whose own length ends before the packet",
        IP(src=CLIENT, dst=VIP) / UDP(dport=80, len=9) / b"xyz",
        "dns",
        "dns1",
    ),
    new("a wrong TCP checksum is the backend's to judge", IP(src=CLIENT, dst=VIP) / TCP(dport=80, chksum=0xDEAD)),
    new("UDP without checksum", IP(src=CLIENT, dst=VIP) / UDP(sport=9, dport=80, chksum=0) / b"x", "dns", "dns1"),
    Row(
        "ten UDP packets are none of the TCP vip on the same address and port",
        send=[ether(udp(dport=80))] * 10,
        fate=["hash_new"] + ["conn_hit"] * 9,
        out=[outer(udp(dport=80), DNS1)] * 10,
        vip="dns",
        backend="dns1",
    ),
]

PORTS = [
    new("a vip of any port takes port 1", tcp(ANY_PORT, dport=1), "every", "any1"),
    new("a vip of any port takes port 65535", tcp(ANY_PORT, dport=65535), "every", "any1"),
    new("a vip of any port takes port 0", tcp(ANY_PORT, dport=0), "every", "any1"),
    new("a vip of one port goes before the vip of any port", tcp(ANY_PORT, dport=443), "tls", "tls1"),
    new("the port before it is the vip's of any port", tcp(ANY_PORT, dport=442), "every", "any1"),
    new("the port of another protocol is the vip's of any port", udp(ANY_PORT, dport=443), "every udp", "dns1"),
    new("source port 0", tcp(sport=0)),
    new("source port 65535", tcp(sport=65535)),
    new("a source that is the vip itself", tcp(src=VIP, sport=80)),
]

PADDING = [
    new("a 40-byte packet in a 60-byte frame", tcp(flags="A"), padding=bytes(6)),
    new("padding that is not zero", tcp(flags="A"), padding=b"\xa5" * 6),
    new("an IPv6 datagram of one byte in a longer frame", udp(VIP6, payload=b"1"), "dns6", "six2", bytes(5)),
    new("a UDP datagram of no bytes in a 60-byte frame", udp(dport=80, payload=b""), "dns", "dns1", bytes(18)),
    new("a trailer longer than the packet", tcp(), padding=b"\x5a" * 600),
    new("padding in GRE over IPv6", tcp(OVER6, flags="A"), "www over 6", "six1", bytes(6)),
]

CLASS = [
    marked("DSCP EF and CE are copied", tcp(tos=0xBB), 0xBB),
    marked("ECT(0) is copied", tcp(tos=0x02), 0x02),
    marked("ECT(1) is copied", tcp(tos=0x01), 0x01),
    marked("every bit of the class is copied", tcp(tos=0xFF), 0xFF),
    marked("from IPv4 to IPv6", tcp(OVER6, tos=0xBB), 0xBB, "www over 6", "six1"),
    marked("from IPv6 to IPv4", tcp(OVER4, tc=0xBB), 0xBB, "www over 4", "web1"),
    marked("from IPv6 to IPv6", tcp(VIP6, tc=0xFF), 0xFF, "www6", "six1"),
]

FRAGMENTABLE = [
    Row(
        "DF is copied, and such a packet has id 0 whatever its own",
        send=[ether(tcp(id=0x1234, flags="A") if i else tcp(id=0x1234)) for i in (0, 0)],
        fate=["hash_new", "conn_hit"],
        out=[outer(tcp(id=0x1234), WEB1, flags="DF", id=0)] * 2,
        vip="www",
        backend="web1",
    ),
    Row(
        "without DF each packet has an id of its own",
        send=[ether(IP(src=CLIENT, dst=VIP, id=7) / TCP(dport=80)) for _ in range(3)],
        fate=["hash_new", "conn_hit", "conn_hit"],
        out=[outer(IP(src=CLIENT, dst=VIP, id=7) / TCP(dport=80), WEB1, flags="", id=i) for i in range(3)],
        vip="www",
        backend="web1",
    ),
    Row(
        "a packet with DF uses no id up",
        send=[
            ether(IP(src=CLIENT, dst=VIP) / TCP(dport=80)),
            ether(IP(src=CLIENT, dst=VIP, flags="DF") / TCP(dport=80)),
            ether(IP(src=CLIENT, dst=VIP) / TCP(dport=80)),
        ],
        fate=["hash_new", "conn_hit", "conn_hit"],
        out=[
            outer(IP(src=CLIENT, dst=VIP) / TCP(dport=80), WEB1, id=0),
            outer(IP(src=CLIENT, dst=VIP, flags="DF") / TCP(dport=80), WEB1, id=0),
            outer(IP(src=CLIENT, dst=VIP) / TCP(dport=80), WEB1, id=1),
        ],
        vip="www",
        backend="web1",
    ),
    Row(
        "an IPv6 packet is never fragmented, so DF is set over IPv4",
        send=ether(tcp(OVER4)),
        fate="hash_new",
        out=outer(tcp(OVER4), WEB1, flags="DF"),
        vip="www over 4",
        backend="web1",
    ),
    Row(
        "the reserved bit beside DF is not a fragment and stays inside",
        send=ether(IP(src=CLIENT, dst=VIP, flags="evil") / TCP(dport=80)),
        fate="hash_new",
        out=outer(IP(src=CLIENT, dst=VIP, flags="evil") / TCP(dport=80), WEB1, flags=""),
        vip="www",
        backend="web1",
    ),
]

TTL = [
    new("TTL 1 is forwarded and stays 1", tcp(ttl=1)),
    new("TTL 255 stays 255 and the outer one is 64", tcp(ttl=255)),
    new("hop limit 1 is forwarded and stays 1", tcp(VIP6, hlim=1), "www6", "six1"),
    Row("TTL 0 is dropped", send=ether(tcp(ttl=0)), fate="ttl_expired"),
    Row("hop limit 0 is dropped", send=ether(tcp(VIP6, hlim=0)), fate="ttl_expired"),
    Row("UDP with TTL 0 is dropped", send=ether(udp(dport=80, ttl=0)), fate="ttl_expired"),
    Row("TTL 0 comes before no backend", send=ether(tcp(EMPTY, ttl=0)), fate="ttl_expired"),
]

OPTIONS = [
    new("IPv4 options: no operation", tcp(options=[IPOption_NOP()] * 4)),
    new("IPv4 options: router alert", tcp(options=[IPOption_Router_Alert()])),
    new("IPv4 options: timestamp", tcp(options=[IPOption_Timestamp(flg=0)])),
    new("IPv4 options: loose source route", tcp(options=[IPOption_LSRR(routers=["203.0.113.9"])])),
    new(
        "IPv4 options: 40 bytes, the most there can be",
        tcp(options=[IPOption_RR(length=39, routers=["0.0.0.0"] * 9)]),
    ),
    new("IPv4 options on UDP", udp(dport=80, options=[IPOption_NOP()] * 8), "dns", "dns1"),
    new("IPv6 hop-by-hop options", behind(IPv6ExtHdrHopByHop()), "www6", "six1"),
    new("IPv6 destination options", behind(IPv6ExtHdrDestOpt()), "www6", "six1"),
    new("IPv6 routing header", behind(IPv6ExtHdrRouting(addresses=[CLIENT6], segleft=0)), "www6", "six1"),
    new(
        "IPv6 headers in a row",
        behind(IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting()),
        "www6",
        "six1",
    ),
    new("IPv6: eight extension headers", behind(*[IPv6ExtHdrDestOpt()] * 8), "www6", "six1"),
    new("IPv6 atomic fragment is a whole packet", behind(IPv6ExtHdrFragment(id=5)), "www6", "six1"),
    new(
        "IPv6 UDP behind options",
        IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrHopByHop() / UDP(dport=53) / b"x",
        "dns6",
        "six2",
    ),
    new("IPv6 flow label inside is left alone", tcp(VIP6, fl=0xABCDE), "www6", "six1"),
    Row(
        "the outer flow label is the flow's, so that a router spreads flows and keeps each in order",
        send=[ether(tcp(VIP6, sport=port)) for port in (1, 2, 1)],
        fate=["hash_new", "hash_new", "conn_hit"],
        out=[outer(tcp(VIP6, sport=port), SIX1) for port in (1, 2, 1)],
        vip="www6",
        backend="six1",
    ),
]

FLAGS = [
    new("TCP with SYN and FIN makes an entry", tcp(flags="SF")),
    new("TCP with every flag but RST", tcp(flags="FSPAUEC")),
    new("TCP with no flag", tcp(flags="")),
    new("TCP in the middle of a connection", tcp(flags="PA", payload=b"GET /")),
    Row(
        "RST of an unknown flow is forwarded and not remembered",
        send=[ether(tcp(flags="R")), ether(tcp(flags="RA"))],
        fate="hash_untracked",
        out=[outer(tcp(flags="R"), WEB1), outer(tcp(flags="RA"), WEB1)],
        vip="www",
        backend="web1",
    ),
]

ROWS = ENCAPSULATION + PORTS + PADDING + CLASS + FRAGMENTABLE + TTL + OPTIONS + FLAGS


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_forwarding(road: Road, row: Row) -> None:
    row.check(road)


@pytest.mark.parametrize("row", ENCAPSULATION[:10], ids=str)
def test_a_vip_of_one_service_is_served_alike_by_three_workers(make_road: Callable[..., Road], row: Row) -> None:
    road = make_road(workers=3)
    road.apply(WORLD)
    row.check(road)


def test_any_frame_in_a_burst_keeps_its_own_fate(road: Road) -> None:
    """All rows at once, so that packets that end in one pass leave gaps that the next pass closes."""
    unique = {row.description: bytes(row.send) for row in TTL + OPTIONS if not isinstance(row.send, list)}
    sent = list(unique.values())
    out = {frame[-40:] for frame in road.send(*sent)}
    expected = {
        bytes(row.out)[-40:] for row in TTL + OPTIONS if row.out is not None and not isinstance(row.out, list)
    }
    assert out == expected
    assert sum(road.fates().values()) == len(sent)


def test_two_ports_each_have_their_own_mtu(make_road: Callable[..., Road]) -> None:
    """The next hop says by which port a packet leaves; here that is the first one wherever it came in."""
    road = make_road(ports=[port_settings(1500), port_settings(100)])
    road.apply(WORLD)
    inner = tcp(payload=bytes(1000))
    Row("in by the second", ether(inner), "hash_new", outer(inner, WEB1), "www", "web1", port=1, by=0).check(road)
