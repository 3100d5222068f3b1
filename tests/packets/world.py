"""Names and addresses that the packet tests share, and how states, packets and expected frames are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPv6, in6_chksum
from scapy.layers.l2 import GRE, Ether
from scapy.packet import Packet, Raw
from scapy.utils import checksum

from forwarder.hashing import twin

HASH_KEY = bytes(range(16))
NODE_MAC, GATEWAY_MAC = "02:00:00:00:00:02", "02:00:00:00:00:01"
TUNNEL, TUNNEL6 = "10.0.2.2", "fd00:2::2"
CLIENT, CLIENT6 = "198.51.100.7", "2001:db8:c::7"
VIP, VIP6 = "192.0.2.1", "2001:db8::1"
ANY_PORT = "192.0.2.9"
OVER6, OVER4 = "192.0.2.46", "2001:db8::64"
EMPTY = "192.0.2.66"
ELSEWHERE, ELSEWHERE6 = "203.0.113.1", "2001:db8:f::1"

BACKENDS = {
    "web1": "10.0.3.2",
    "dns1": "10.0.4.2",
    "any1": "10.0.5.2",
    "tls1": "10.0.6.2",
    "six1": "fd00:3::2",
    "six2": "fd00:4::2",
}


def member(name: str, weight: int = 100, status: str = "up") -> list[Any]:
    return [name, weight, status]


def vip(
    name: str,
    address: str,
    members: Iterable[str | list[Any]],
    protocol: str = "tcp",
    port: int = 80,
    affinity: str = "flow",
    table_size: int = 251,
) -> dict[str, Any]:
    """A vip of a state message; a member given by its name is up with weight 100."""
    return {
        "name": name,
        "address": address,
        "protocol": protocol,
        "port": port,
        "scheduler": "maglev",
        "table_size": table_size,
        "affinity": affinity,
        "members": [member(m) if isinstance(m, str) else m for m in members],
    }


def state(backends: Mapping[str, str], *vips: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "backends": dict(backends), "vips": list(vips)}


# Each vip has one backend, so that a row can name it. TCP and UDP vips on one address and port are different vips.
WORLD = state(
    BACKENDS,
    vip("www", VIP, ["web1"]),
    vip("dns", VIP, ["dns1"], "udp", 80),
    vip("every", ANY_PORT, ["any1"], port=0),
    vip("every udp", ANY_PORT, ["dns1"], "udp", 0),
    vip("tls", ANY_PORT, ["tls1"], port=443),
    vip("www6", VIP6, ["six1"]),
    vip("dns6", VIP6, ["six2"], "udp", 53),
    vip("www over 6", OVER6, ["six1"]),
    vip("dns over 6", OVER6, ["six2"], "udp", 53),
    vip("www over 4", OVER4, ["web1"]),
    vip("dns over 4", OVER4, ["dns1"], "udp", 53),
    vip("empty", EMPTY, []),
)


def ether(packet: Packet | bytes = b"", **fields: Any) -> Packet:
    """The frame as the node gets it from its router."""
    frame = Ether(src=GATEWAY_MAC, dst=NODE_MAC, **fields)
    return frame / packet if packet else frame


def tcp(
    dst: str = VIP, sport: int = 40000, dport: int = 80, flags: str = "S", payload: bytes = b"", **ip: Any
) -> Packet:
    """A TCP packet of the client of the right family; `ip` are fields of its IP header."""
    return ip_header(dst, **ip) / TCP(sport=sport, dport=dport, flags=flags) / payload


def udp(dst: str = VIP, sport: int = 40000, dport: int = 53, payload: bytes = b"question", **ip: Any) -> Packet:
    return ip_header(dst, **ip) / UDP(sport=sport, dport=dport) / payload


def ip_header(dst: str, **fields: Any) -> Packet:
    if ":" in dst:
        return IPv6(**{"src": CLIENT6, "dst": dst, **fields})
    return IP(**{"src": CLIENT, "dst": dst, "flags": "DF", **fields})


def finished(packet: Packet) -> Packet:
    """The packet with every field as it is on a wire."""
    return type(packet)(bytes(packet))


def left_to_a_nic(packet: Packet) -> Packet:
    """The packet with the sum of its pseudo header in place of its checksum."""
    packet = finished(packet)
    transport = packet[TCP] if TCP in packet else packet[UDP]
    number, length = 6 if TCP in packet else 17, len(transport)
    if IPv6 in packet:
        transport.chksum = in6_chksum(number, packet, bytes(length)) ^ 0xFFFF
    else:
        addresses = bytes(packet)[12:20]
        transport.chksum = checksum(addresses + number.to_bytes(2, "big") + length.to_bytes(2, "big")) ^ 0xFFFF
    return packet


def flow_hash(inner: Packet) -> int:
    """The flow hash of a TCP or UDP packet by the pure-Python twin."""
    transport = inner[TCP] if TCP in inner else inner[UDP]
    source, destination = ip_address(inner.src).packed, ip_address(inner.dst).packed
    protocol = 6 if TCP in inner else 17
    return twin.flow_hash(HASH_KEY, source, destination, transport.sport, transport.dport, protocol)


def outer(
    inner: Packet,
    to: str,
    tos: int | None = None,
    flags: str | None = None,
    id: int = 0,
    mac: str = GATEWAY_MAC,
    of: Packet | None = None,
    source: str | None = None,
    recursion: int = 0,
) -> bytes:
    """The frame that must leave for `inner`: Ethernet, outer IP and GRE, then exactly its bytes.

    Class and DF are the inner packet's unless the row states them. `of` is a packet of the flow that `inner` belongs
    to, where that is not seen in its own ports. `recursion` is GRE's: 1 on the way from node to node.
    """
    raw = bytes(inner)
    four = raw[0] >> 4 == 4
    if tos is None:
        tos = inner.tos if four else inner.tc
    link = Ether(src=NODE_MAC, dst=mac)
    gre = GRE(recursion_control=recursion, proto=0x0800 if four else 0x86DD) / Raw(raw)
    if ":" in to:
        label = flow_hash(of or inner) & 0xFFFFF
        return bytes(link / IPv6(src=source or TUNNEL6, dst=to, tc=tos, fl=label, hlim=64, nh=47) / gre)
    if flags is None:
        flags = "DF" if not four or inner.flags.DF else ""
    return bytes(link / IP(src=source or TUNNEL, dst=to, tos=tos, flags=flags, id=id, ttl=64, proto=47) / gre)


def answer(packet: Packet, mac: str = GATEWAY_MAC) -> bytes:
    """The frame of an answer of the node itself: back to the router that it got the question from."""
    return bytes(Ether(src=NODE_MAC, dst=mac) / packet)


QUOTED = {4: 576 - 20 - 8, 6: 1280 - 40 - 8}  # bytes that a too-big error may quote


def too_big_error(cause: Packet | bytes, mtu: int, id: int = 0) -> Packet:
    """The error that `cause`, an IP packet, must be answered by: from the vip to the client."""
    raw = bytes(cause)
    version = raw[0] >> 4
    quote = Raw(raw[: QUOTED[version]])
    if version == 4:
        client, vip = str(ip_address(raw[12:16])), str(ip_address(raw[16:20]))
        header = IP(src=vip, dst=client, id=id, flags=0, ttl=64, tos=0, proto=1)
        return header / ICMP(type=3, code=4, nexthopmtu=mtu) / quote
    client, vip = str(ip_address(raw[8:24])), str(ip_address(raw[24:40]))
    return IPv6(src=vip, dst=client, hlim=64, tc=0, fl=0, nh=58) / ICMPv6PacketTooBig(mtu=mtu) / quote


def flow(number: int, dst: str = VIP, dport: int = 80, flags: str = "S", client: int = 7) -> bytes:
    """The TCP frame of the `number`th flow of a client, fast to make: templates with a patched source port."""
    frame = bytearray(_flow_template(dst, dport, flags, client))
    at = 14 + (40 if ":" in dst else 20)
    frame[at : at + 2] = (1024 + number).to_bytes(2, "big")
    return bytes(frame)


@cache
def _flow_template(dst: str, dport: int, flags: str, client: int) -> bytes:
    source = f"2001:db8:c::{client:x}" if ":" in dst else f"198.51.100.{client}"
    return bytes(ether(tcp(dst, dport=dport, flags=flags, src=source)))


def backend_address(frame: bytes) -> str:
    """The address of the backend that a frame was sent to."""
    at, length = (30, 4) if frame[12:14] == b"\x08\x00" else (38, 16)
    return str(ip_address(frame[at : at + length]))
