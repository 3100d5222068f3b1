"""Writes the corpus: what each fuzz target starts from, out of the packets and messages that other tests use.

`make corpus` when a target's input format changes. What a fuzzer finds stays under build/; a finding becomes a test.
"""

import json
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

from control_messages import frame
from packets.world import (
    BACKENDS,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    ELSEWHERE6,
    TUNNEL,
    TUNNEL6,
    VIP,
    VIP6,
    WORLD,
    ether,
    tcp,
    udp,
)
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q
from test_settings import RAW as SETTINGS

CORPUS = Path(__file__).parent / "corpus"
TO4, TO6 = IP(src=CLIENT, dst=VIP), IPv6(src=CLIENT6, dst=VIP6)
CHAIN = IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting() / IPv6ExtHdrDestOpt()


def flows() -> list[bytes]:
    """Frames of flows: TCP and UDP over both families, with all that may stand before the ports."""
    packets = [
        tcp(flags="S"),
        tcp(tos=0xBB, payload=b"with payload", id=7, flags="FA"),
        TO4 / TCP(dport=80),
        TO4 / UDP(dport=80) / b"question",
        tcp(VIP6, flags="A"),
        udp(VIP6, tc=0xBB),
        IP(src=CLIENT, dst=VIP, options=[IPOption_NOP()] * 8) / TCP(dport=80),
        IP(src=CLIENT, dst=VIP, options=[IPOption_NOP()] * 40) / UDP(dport=53) / b"question",
        TO6 / CHAIN / TCP(dport=80),
        TO6 / IPv6ExtHdrFragment(offset=0, m=0, nh=17) / UDP(dport=53) / b"atomic",
        Dot1Q(vlan=7) / tcp(),
        Dot1AD(vlan=7) / Dot1Q(vlan=9) / udp(VIP6),
    ]
    raw = [bytes(ether(packet)) for packet in packets]
    return [*raw, raw[0] + bytes(6)]


def no_flows() -> list[bytes]:
    """Frames of other protocols, of pieces of datagrams, and broken ones."""
    packets = [
        ARP(pdst=VIP),
        IP(src=CLIENT, dst=VIP, proto=47) / bytes(8),
        IP(src=CLIENT, dst=VIP, flags="MF") / UDP(dport=80) / bytes(64),
        IP(src=CLIENT, dst=VIP, frag=5) / b"the middle of a datagram",
        TO6 / IPv6ExtHdrFragment(offset=0, m=1, nh=6) / TCP(dport=80),
        TO6 / IPv6ExtHdrFragment(offset=9, nh=17) / bytes(64),
        TO6 / IPv6ExtHdrFragment(offset=0, m=1, nh=44) / IPv6ExtHdrFragment(offset=0, m=0, nh=6) / TCP(dport=80),
        TO6 / CHAIN / CHAIN / CHAIN / UDP(dport=53),
        IP(src=CLIENT, dst=VIP, version=5) / TCP(dport=80),
        IP(src=CLIENT, dst=VIP, ihl=4) / TCP(dport=80),
        IP(src=CLIENT, dst=VIP, len=65535) / TCP(dport=80),
        IP(src=CLIENT, dst=VIP, chksum=1) / TCP(dport=80),
        TO4 / TCP(dport=80, dataofs=4),
        TO4 / UDP(dport=80, len=7),
    ]
    raw = [bytes(ether(packet)) for packet in packets]
    return [*raw, raw[2][:33], raw[2][:36], b"\0", raw[2][:12] + b"\x81\x00\0"]


def icmp() -> list[bytes]:
    """Questions, and errors about packets of a vip to its client, as much of them quoted as is usual."""
    error4, error6 = IP(src=ELSEWHERE, dst=VIP), IPv6(src=ELSEWHERE6, dst=VIP6)
    from4, from6 = IP(src=VIP, dst=CLIENT), IPv6(src=VIP6, dst=CLIENT6)
    with_options = IP(src=VIP, dst=CLIENT, options=[IPOption_NOP()] * 4)
    packets = [
        TO4 / ICMP(id=7, seq=1) / b"abcdefghi",
        IP(src=VIP, dst=VIP) / ICMP(),
        TO6 / ICMPv6EchoRequest(id=7, seq=1, data=b"abcdefghi"),
        TO6 / CHAIN / ICMPv6EchoRequest(id=7, seq=1, data=b"abcdefgh"),
        TO4 / ICMP(type=4),
        *(
            error4 / ICMP(type=type, code=code) / bytes(from4 / TCP(sport=80))[:28]
            for type, code in ((3, 4), (11, 0), (12, 0))
        ),
        error4 / ICMP(type=3, code=3) / with_options / UDP(sport=80),
        error4 / ICMP(type=3, code=1) / IP(src=VIP, dst=CLIENT, frag=5, proto=17) / b"no ports",
        error6 / ICMPv6PacketTooBig(mtu=1280) / from6 / TCP(sport=80),
        error6 / ICMPv6DestUnreach() / from6 / CHAIN / UDP(sport=53),
        error6 / ICMPv6DestUnreach() / from6 / CHAIN / CHAIN / CHAIN / UDP(sport=53),
        error6 / ICMPv6TimeExceeded() / from6 / IPv6ExtHdrFragment(offset=0, m=1, nh=6) / TCP(sport=80),
        error6 / ICMPv6TimeExceeded() / from6 / IPv6ExtHdrFragment(offset=9, m=1, nh=6) / b"no ports",
    ]
    raw = [bytes(ether(packet)) for packet in packets]
    return [*raw, raw[0][:40]]


def reports() -> list[bytes]:
    """Routers' reports about outer packets of both families, whole and with as little quoted as may be."""
    outer4 = IP(src=TUNNEL, dst=BACKENDS["web1"], proto=47) / b"\0\0\x08\0"
    outer6 = IPv6(src=TUNNEL6, dst=BACKENDS["six1"], nh=47) / b"\0\0\x86\xdd"
    packets = [
        IP(src=ELSEWHERE, dst=TUNNEL) / ICMP(type=3, code=4, nexthopmtu=1400) / outer4 / bytes(4),
        IP(src=ELSEWHERE, dst=TUNNEL) / ICMP(type=3, code=4, nexthopmtu=0) / outer4 / bytes(tcp()),
        IPv6(src=ELSEWHERE6, dst=TUNNEL6) / ICMPv6PacketTooBig(mtu=1300) / outer6 / bytes(4),
        IPv6(src=ELSEWHERE6, dst=TUNNEL6) / ICMPv6PacketTooBig(mtu=1300) / outer6 / bytes(tcp(VIP6)),
    ]
    return [bytes(ether(packet)) for packet in packets]


def packet_inputs(frames: list[bytes], before: bytes = b"") -> Iterable[bytes]:
    """Each frame as a target of packets takes it: not to be mended, whole in its first buffer; and some in pieces."""
    for number, raw in enumerate(frames):
        yield before + struct.pack("!BH", 0, 0) + raw
        if number % 8 == 0:
            yield before + struct.pack("!BH", 1, 1000) + raw[:60]


# Flows of different vips that look alike in one bucket: the last one needs the place of the first.
SAME_TAGS = ((0, 1), (0, 0), (1, 0), (2, 0), (3, 0), (1, 1))


def conn_table_inputs() -> Iterable[bytes]:
    """Flows that come, go on, close, expire, are swept and flushed, in tables of one bucket and of several."""
    for entries in (0, 4, 39):
        start = struct.pack("!B4HI", entries, 10, 7200, 10, 60, 2**20 - 3)
        insert = [struct.pack("!BHH", 0, flow << 12 | flow * 7, flow << 2) for flow in range(12)]
        packets = [struct.pack("!BHB", 1, flow << 12 | flow * 7, 0x10) for flow in range(12)]
        ends = [struct.pack("!BHB", 1, flow << 12 | flow * 7, 0x01 if flow % 2 else 0x04) for flow in range(12)]
        tick, pause, sweep, flush = b"\2\1", b"\3\0\x1c\x20", b"\4\3", b"\5\1\1"
        established = [state for flow in insert for state in (flow[:-1] + bytes([flow[-1] | 4]),)]
        yield start + b"".join(insert)
        yield start + b"".join(struct.pack("!BHH", 0, vip << 14 | tag, 0) for vip, tag in SAME_TAGS)
        yield start + b"".join([*insert, tick, *packets, tick, *ends, tick, *insert])
        yield start + b"".join([*established, *insert, tick, *packets, b"\2\x0b", *insert, sweep, sweep])
        yield start + b"".join([*insert, tick, *packets, pause, *packets, *established, flush, b"\5\0\0"])


def churn_inputs() -> Iterable[bytes]:
    """Flows of three vips between the same state twice, states that share nothing, and states without slots."""
    for kind in range(4):
        start = struct.pack("!BIBB", 39, 2**20 + 5, 9, 99) + bytes(1 + i % 2 for i in range(11))
        slots = [bytes((i * (1 + kind * side)) % 11 for i in range(16)) for side in (0, 1)]
        usable = (b"\xff\xff", bytes([0xFF >> kind, 0xFF]))
        sides = [slots[side] + usable[side] + bytes([13 if kind < 3 else 0]) for side in (0, 1)]
        flows = [struct.pack("!BIBBBBBB", i % 13, i * 2**25, i, i, i, i % 5, i % 4, i * 4) for i in range(60)]
        yield start + b"".join(sides) * 3 + b"".join(flows)


def fragment_inputs() -> Iterable[bytes]:
    """Datagrams in order, backwards and mixed, with pauses, as a table with and without places sees them."""
    first, later, pause = (lambda d: bytes([d]) + b"\1\2\3\6"), (lambda d: bytes([0x40 | d])), b"\xe0\3"
    for limit in range(4):
        start = bytes([limit]) + struct.pack("!I", 2**32 - 2)
        yield start + b"".join(first(d) + later(d) * 2 for d in range(12))
        yield start + b"".join(later(d) * 3 for d in range(31)) + b"".join(first(d) for d in range(31))
        yield start + later(5) * 70 + first(5) + later(5) + pause * 3 + later(5) + pause + first(5)
        yield start + b"".join(later(d) for d in range(0, 32, 2)) + pause + first(0) + first(6) + later(6) + first(6)


def maglev_inputs() -> Iterable[bytes]:
    """Equal weights, weights far apart, weight 0 beside others, nobody, and permutations that are none."""
    named = b"".join(bytes([0x20 | 24]) + struct.pack("!I", 100 << 24) + name for name in (b"web1", b"web2", b"web3"))
    apart = b"".join(bytes([0x20 | shift]) + b"\xff\xff\xff\xff" + b"web" + bytes([shift]) for shift in (0, 16, 31))
    for size in (0, 3, 7):
        yield bytes([size]) + named
        yield bytes([size]) + apart
        yield bytes([size]) + named + b"\x20\0\0\0\0web4"
        yield bytes([size])
        yield bytes([size]) + b"\x00\0\0\0\1\1\1" + b"\x00\0\0\0\1\xff\0"


def load_bound_inputs() -> Iterable[bytes]:
    """Equal loads, one that has all, few flows, weights far apart; slots of all, and long runs of one."""
    slots = bytes(range(200)) * 2
    for percent in (0, 24, 899):
        for loads in ((100, 100, 100), (1000, 0, 0), (8, 0, 1), (9, 0, 0), (65535, 65535, 1)):
            for weights in ((99, 99, 99), (0, 65535, 7)):
                members = b"".join(struct.pack("!HH", *pair) for pair in zip(loads, weights, strict=True))
                yield struct.pack("!HB", percent, 2) + members + bytes([200, 199]) + slots
    yield struct.pack("!HBHH", 24, 0, 9, 1) + bytes([255, 3])
    skewed = b"".join(struct.pack("!HH", 1000 if i else 0, 1) for i in range(100))
    yield struct.pack("!HB", 0, 99) + skewed + bytes([255, 200]) + bytes([1] * 255) + b"\0"


def place_inputs() -> Iterable[bytes]:
    """Rendezvous with equal weights and others, jumps to few and to many buckets, loads that fit and that do not."""
    keys = struct.pack("!4I", 0, 1, 0xDEADBEEF, 0xFFFFFFFF)
    alike, apart = [100] * 9, [1, 2, 100, 65535, 2**32 - 1, 1, 7, 7, 1000]
    for count in (0, 2, 5, 7):
        for members in (0, 2, 9):
            for weights in (alike, apart):
                named = (struct.pack("!BBHI", 7 * m, 77 - m, 1000 + m, weights[m]) for m in range(members))
                yield bytes([0, count, members]) + keys + b"\0" + b"".join(named)
    for buckets in (1, 2, 100, 65536, 2**32 - 1):
        yield b"\1" + struct.pack("!IB", buckets, 0) + keys
    owners, starts = bytes([0, 1, 0, 2, 2, 1, 0]), bytes(range(7)) * 9
    for caps in (b"\xff\0\xff\0\xff\0", b"\x15\0\x15\0\x15\0", b"\1\2\0\0\5\1", bytes(6)):
        yield bytes([2, len(owners) - 1, 2]) + caps + owners + starts


def vip_table_inputs() -> Iterable[bytes]:
    """Vips of one port and of any, one twice, both families."""
    yield bytes(number for address in range(6) for choice in (2, 3, 8, 2) for number in (address, choice))
    yield bytes(number for choice in range(16) for number in (choice % 6, choice))


def control_inputs() -> Iterable[bytes]:
    """Requests of every kind, several on one connection, and frames that are broken."""
    ports = {"source_port": 40000, "destination_port": 80}
    lookup4 = {"op": "lookup", "protocol": "tcp", "source": CLIENT, "destination": VIP, **ports}
    lookup6 = {"op": "lookup", "protocol": "udp", "source": CLIENT6, "destination": VIP6, **ports}
    members = [["web1", 100, "up"], ["dns1", 0, "up"], ["six1", 5, "drain"], ["any1", 5, "down"]]
    vip = {**WORLD["vips"][0], "affinity": "client", "members": members}
    yield frame({"op": "state", "state": {**WORLD, "vips": WORLD["vips"][:4]}})
    yield frame({"op": "state", "state": {"version": 1, "backends": BACKENDS, "vips": [vip]}})
    yield frame({"op": "state", "state": {"version": 1, "backends": {}, "vips": []}})
    yield frame({"op": "settings", "settings": SETTINGS})
    yield frame(lookup4) + frame(lookup6) + frame({"op": "unknown"}) + frame([]) + frame(lookup4)[:-5]
    yield b"\xff\xff\xff\xff" + json.dumps(lookup4).encode()
    yield struct.pack("!I", 1500) + b"[" * 1500
    yield struct.pack("!I", 4) + b"\xff\xfe\0{"
    yield frame({"op": "state", "state": {**WORLD, "vips": [{**WORLD["vips"][0], "load_bound": 1.25}]}})
    yield frame({"op": "churn", "state": {**WORLD, "vips": WORLD["vips"][:3]}})


INPUTS = {
    "parse": packet_inputs([*flows(), *no_flows()]),
    "icmp": packet_inputs([*icmp(), flows()[1]], struct.pack("!HHB", 1476, 1, 1)),
    "checksum": packet_inputs(flows()),
    "encap": [*packet_inputs(flows(), bytes(38)), *packet_inputs(flows(), b"\1\0\7\x12\x34\x56" + bytes(range(32)))],
    "conn_table": conn_table_inputs(),
    "churn": churn_inputs(),
    "fragment": fragment_inputs(),
    "load_bound": load_bound_inputs(),
    "maglev": maglev_inputs(),
    "path_mtu": packet_inputs(reports(), struct.pack("!BHHIH", 3, 1400, 1300, 2**32 - 5, 599)),
    "place": place_inputs(),
    "vip_table": vip_table_inputs(),
    "control": control_inputs(),
}

if __name__ == "__main__":
    for target, inputs in INPUTS.items():
        directory = CORPUS / target
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for number, data in enumerate(inputs):
            (directory / f"{number:03}").write_bytes(data)
