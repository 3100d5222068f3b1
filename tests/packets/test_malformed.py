"""A header that contradicts itself or the frame: dropped, nothing sent. RFC 1812 5.2.2, RFC 8200."""

from __future__ import annotations

import struct

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop
from scapy.packet import Packet

from packets.road import Road
from packets.table import Row
from packets.world import CLIENT, CLIENT6, ELSEWHERE, ELSEWHERE6, VIP, VIP6, ether, tcp, udp

IPV4_TYPE, IPV6_TYPE = 0x0800, 0x86DD


def bad(description: str, reason: str, send: Packet | bytes) -> Row:
    return Row(description, send=send, fate="malformed", reason=reason)


def cut(frame: Packet, length: int) -> bytes:
    """The first `length` bytes of a frame."""
    return bytes(frame)[:length]


def ipv4(**fields: object) -> Packet:
    """A frame with a TCP SYN to the vip whose IPv4 header says something else than is there."""
    return ether(IP(src=CLIENT, dst=VIP, **fields) / TCP(sport=40000, dport=80), type=IPV4_TYPE)


def ipv6(**fields: object) -> Packet:
    return ether(IPv6(src=CLIENT6, dst=VIP6, **fields) / TCP(sport=40000, dport=80), type=IPV6_TYPE)


def patched(frame: Packet, offset: int, value: bytes) -> bytes:
    """The frame with other bytes at `offset` of its IP header, the IPv4 checksum made right again."""
    raw = bytearray(bytes(frame))
    raw[14 + offset : 14 + offset + len(value)] = value
    if raw[12:14] == b"\x08\x00":
        raw[24:26] = b"\0\0"
        words = struct.unpack("!10H", raw[14:34])
        total = sum(words)
        total = (total & 0xFFFF) + (total >> 16)
        raw[24:26] = struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)
    return bytes(raw)


def udp_frame(dst: str, length: int) -> Packet:
    """A UDP datagram of 4 bytes of data, to a port that has a vip, whose header says `length`."""
    header = IPv6(src=CLIENT6, dst=dst) if ":" in dst else IP(src=CLIENT, dst=dst)
    return ether(header / UDP(sport=40000, dport=53 if ":" in dst else 80, len=length) / b"data")


LAYER_2 = [
    bad("a frame of 1 byte", "ethernet_cut", b"\x02"),
    bad("a frame of 13 bytes, one short of its header", "ethernet_cut", cut(ether(tcp()), 13)),
    bad("an Ethernet header and nothing behind it", "ipv4_cut", ether(type=IPV4_TYPE)),
    bad("an Ethernet header of IPv6 and nothing behind it", "ipv6_cut", ether(type=IPV6_TYPE)),
]

IPV4 = [
    bad("version 5", "ipv4_version", patched(ipv4(), 0, b"\x55")),
    bad("version 0", "ipv4_version", patched(ipv4(), 0, b"\x05")),
    bad("version 6 under the type of IPv4", "ipv4_version", patched(ipv4(), 0, b"\x65")),
    bad("IPv6 under the type of IPv4", "ipv4_version", ether(bytes(tcp(VIP6)), type=IPV4_TYPE)),
    bad("IHL 3", "ipv4_header_length", patched(ipv4(), 0, b"\x43")),
    bad("IHL 4, one word short", "ipv4_header_length", patched(ipv4(), 0, b"\x44")),
    bad("IHL 0", "ipv4_header_length", patched(ipv4(), 0, b"\x40")),
    bad("10 bytes of header", "ipv4_cut", cut(ipv4(), 24)),
    bad("19 bytes of header", "ipv4_cut", cut(ipv4(), 33)),
    bad("IHL 15 on a packet of 40 bytes", "ipv4_header_length", patched(ipv4(), 0, b"\x4f")),
    bad("total length 0", "ipv4_total_length", patched(ipv4(), 2, b"\0\0")),
    bad("total length 19, shorter than the header", "ipv4_total_length", patched(ipv4(), 2, b"\0\x13")),
    bad(
        "total length shorter than a header with options",
        "ipv4_total_length",
        patched(ipv4(options=[b"\x01"] * 4), 2, b"\0\x16"),
    ),
    bad("total length 20, so no byte of TCP", "ports_cut", patched(ipv4(), 2, b"\0\x14") + bytes(6)),
    bad("total length one byte more than the frame has", "ipv4_total_length", patched(ipv4(), 2, b"\0\x29")),
    bad("total length 0xFFFF on a 60-byte frame", "ipv4_total_length", patched(ipv4(), 2, b"\xff\xff") + bytes(6)),
    bad("a frame that ends in the TCP header", "ipv4_total_length", cut(ipv4(), 14 + 30)),
    bad("a wrong header checksum", "ipv4_checksum", ipv4(chksum=0x1234)),
    bad("a header checksum of 0", "ipv4_checksum", ipv4(chksum=0)),
    bad(
        "a wrong checksum on a packet for somebody else",
        "ipv4_checksum",
        ether(IP(src=CLIENT, dst=ELSEWHERE, chksum=1) / TCP()),
    ),
    bad(
        "version 5 in a packet for somebody else",
        "ipv4_version",
        patched(ether(IP(src=CLIENT, dst=ELSEWHERE) / TCP()), 0, b"\x55"),
    ),
]

IPV6 = [
    bad("IPv4 under the type of IPv6", "ipv6_version", ether(bytes(tcp()), type=IPV6_TYPE)),
    bad("IPv6 version 7", "ipv6_version", patched(ipv6(), 0, b"\x70")),
    bad("IPv6: 39 bytes of header", "ipv6_cut", cut(ipv6(), 14 + 39)),
    bad("IPv6: payload length one byte more than the frame has", "ipv6_payload_length", ipv6(plen=21)),
    bad("IPv6: payload length 0xFFFF", "ipv6_payload_length", ipv6(plen=0xFFFF)),
    bad("IPv6: payload length 0 with TCP announced", "ports_cut", ipv6(plen=0)),
    bad("IPv6: payload length 19, one byte short of TCP", "tcp_header", ipv6(plen=19)),
    bad(
        "IPv6: an extension header cut off",
        "ipv6_extension_cut",
        ether(IPv6(src=CLIENT6, dst=VIP6, nh=0) / b"\x06\0\0\0"),
    ),
    bad(
        "IPv6: an extension header longer than the packet",
        "ipv6_extension_cut",
        ether(IPv6(src=CLIENT6, dst=VIP6, nh=60) / b"\x06\x05" / bytes(22)),
    ),
    bad(
        "IPv6: an extension header of 2048 bytes",
        "ipv6_extension_cut",
        ether(IPv6(src=CLIENT6, dst=VIP6, nh=0) / b"\x06\xff" / bytes(38)),
    ),
    bad(
        "IPv6: nothing behind the last extension header",
        "ports_cut",
        ether(IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrDestOpt(nh=6)),
    ),
    bad(
        "IPv6: a fragment header cut off",
        "ipv6_extension_cut",
        ether(IPv6(src=CLIENT6, dst=VIP6, nh=44) / b"\x06\0\0\0"),
    ),
    bad(
        "IPv6: extension headers without end",
        "ipv6_extensions",
        ether(
            IPv6(src=CLIENT6, dst=VIP6, nh=60)
            / (b"\x3c\x00" + bytes(6))
            / (b"\x3c\x00" + bytes(6))
            / (b"\x3c\x00" + bytes(62))
        ),
    ),
    bad(
        "IPv6: nine extension headers, more than any honest packet has",
        "ipv6_extensions",
        ether(
            IPv6(src=CLIENT6, dst=VIP6, nh=60) / (b"\x3c\0\1\4\0\0\0\0" * 8 + b"\x06\0\1\4\0\0\0\0") / TCP(dport=80)
        ),
    ),
    bad(
        "IPv6: extension headers broken in a packet for somebody else",
        "ipv6_extension_cut",
        ether(IPv6(src=CLIENT6, dst=ELSEWHERE6, nh=0) / b"\x06"),
    ),
]

LAYER_4 = [
    bad("TCP: data offset 4", "tcp_header", ether(IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=4))),
    bad("TCP: data offset 0", "tcp_header", ether(IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=0))),
    bad("TCP: data offset 6 and no option", "tcp_header", ether(IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=6))),
    bad(
        "TCP: data offset 15 reaching into the padding",
        "tcp_header",
        bytes(ether(IP(src=CLIENT, dst=VIP) / TCP(dport=80, dataofs=15))) + bytes(60),
    ),
    bad("TCP: 19 bytes of header", "tcp_header", ether(IP(src=CLIENT, dst=VIP, proto=6) / bytes(TCP(dport=80))[:19])),
    bad(
        "TCP: ports and nothing else",
        "tcp_header",
        ether(IP(src=CLIENT, dst=VIP, proto=6) / bytes(TCP(dport=80))[:4]),
    ),
    bad(
        "TCP: 13 bytes over IPv6", "tcp_header", ether(IPv6(src=CLIENT6, dst=VIP6, nh=6) / bytes(TCP(dport=80))[:13])
    ),
    bad(
        "UDP: 7 bytes of header",
        "udp_header",
        ether(IP(src=CLIENT, dst=VIP, proto=17) / bytes(UDP(dport=80, len=8))[:7]),
    ),
    bad("UDP: length 0", "udp_header", udp_frame(VIP, 0)),
    bad("UDP: length 7", "udp_header", udp_frame(VIP, 7)),
    bad("UDP: length one byte more than the packet has", "udp_header", udp_frame(VIP, 13)),
    bad("UDP: length reaching into the padding", "udp_header", bytes(udp_frame(VIP, 30)) + bytes(40)),
    bad("UDP: length 7 over IPv6", "udp_header", udp_frame(VIP6, 7)),
    bad("UDP: length 0xFFFF over IPv6", "udp_header", udp_frame(VIP6, 0xFFFF)),
    bad(
        "a broken TCP header comes before TTL 0",
        "tcp_header",
        ether(IP(src=CLIENT, dst=VIP, ttl=0) / TCP(dport=80, dataofs=4)),
    ),
    Row(
        "a broken TCP header of a packet for somebody else is not ours to judge",
        send=ether(IP(src=CLIENT, dst=ELSEWHERE) / TCP(dport=80, dataofs=4)),
        fate="not_vip",
        reason="other_address",
    ),
    Row(
        "a broken TCP header of a packet to a port without a vip is not ours to judge",
        send=ether(IP(src=CLIENT, dst=VIP) / TCP(dport=81, dataofs=4)),
        fate="not_vip",
        reason="other_port",
    ),
    Row(
        "a broken UDP header of a packet for somebody else is not ours to judge",
        send=udp_frame(ELSEWHERE6, 7),
        fate="not_vip",
        reason="other_address",
    ),
    bad(
        "IPv6: TCP cut off behind options",
        "ports_cut",
        ether(IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrHopByHop(nh=6) / b"\0\x50"),
    ),
]

ROWS = LAYER_2 + IPV4 + IPV6 + LAYER_4


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_malformed(road: Road, row: Row) -> None:
    row.check(road)


@pytest.mark.parametrize("packet", [tcp(), tcp(VIP6), udp(dport=80), udp(VIP6)], ids=["tcp", "tcp6", "udp", "udp6"])
def test_a_packet_cut_at_any_byte_is_malformed(road: Road, packet: Packet) -> None:
    """Every length from nothing but a type to one byte less than the packet."""
    whole = bytes(ether(packet))
    cuts = [whole[:length] for length in range(1, len(whole))]
    assert road.fates_of(*cuts) == {"malformed": len(cuts)}
    assert road.connections() == 0


@pytest.mark.parametrize("packet", [tcp(), tcp(VIP6), udp(dport=80), udp(VIP6)], ids=["tcp", "tcp6", "udp", "udp6"])
def test_any_byte_may_have_any_value(road: Road, packet: Packet) -> None:
    """Each byte of the headers in turn as 0, 0x7F, 0x80 and 0xFF: whatever the fate, there is one, and only one."""
    whole = bytes(ether(packet))
    sent = [whole[:i] + bytes([value]) + whole[i + 1 :] for i in range(len(whole)) for value in (0, 0x7F, 0x80, 0xFF)]
    out = road.send(*sent)
    assert sum(road.fates().values()) == len(sent)
    assert all(any(came.endswith(frame[14:]) for frame in sent) for came in out)
