"""The XDP program by itself, run by the kernel on one frame at a time: ours, or the kernel's."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

import pytest
from needs import AS_ROOT, XDP
from packets.cluster import LB2, LB2_6
from packets.world import CLIENT, CLIENT6, GATEWAY_MAC, NODE_MAC, TUNNEL, TUNNEL6, VIP, VIP6, ether, flow, tcp
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoRequest, ICMPv6PacketTooBig, IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet

from forwarder import xdp
from forwarder.xsk import AF_XDP, SOL_XDP

pytestmark = [AS_ROOT, XDP]

XDP_RX_RING = 2
PASS, REDIRECT = 2, 4
ROLES = {
    VIP: xdp.ROLE_VIP,
    VIP6: xdp.ROLE_VIP,
    TUNNEL: xdp.ROLE_TUNNEL_SOURCE,
    TUNNEL6: xdp.ROLE_TUNNEL_SOURCE,
    LB2: xdp.ROLE_NODE,
    LB2_6: xdp.ROLE_NODE,
}
Run = Callable[[bytes], int]


class TestRun(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf 1."""

    __test__ = False
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("data_in", ctypes.c_char_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("verdict", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch", ctypes.c_uint32),
    ]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """The program with its maps filled, and a socket for queue 0, without which all would pass."""
    libbpf = ctypes.CDLL("libbpf.so.1")
    for name in ("bpf_object__open_file", "bpf_object__next_program"):
        libbpf[name].restype = ctypes.c_void_p
    handle = ctypes.c_void_p(libbpf.bpf_object__open_file(str(xdp.OBJECT).encode(), None))
    assert libbpf.bpf_object__load(handle) == 0
    program = libbpf.bpf_program__fd(ctypes.c_void_p(libbpf.bpf_object__next_program(handle, None)))

    def put(name: str, key: bytes, value: bytes) -> None:
        map_ = libbpf.bpf_object__find_map_fd_by_name(handle, name.encode())
        assert libbpf.bpf_map_update_elem(map_, key, value, ctypes.c_uint64(0)) == 0

    def verdict(frame: bytes) -> int:
        options = TestRun(size=ctypes.sizeof(TestRun), data_in=frame, data_size_in=len(frame))
        assert libbpf.bpf_prog_test_run_opts(program, ctypes.byref(options)) == 0
        return int(options.verdict)

    with socket.socket(AF_XDP, socket.SOCK_RAW) as xsk:
        xsk.setsockopt(SOL_XDP, XDP_RX_RING, 64)
        put("xsks_map", bytes(4), xsk.fileno().to_bytes(4, "little"))
        put("station", bytes(4), bytes.fromhex(NODE_MAC.replace(":", "")))
        for text, role in ROLES.items():
            address = ip_address(text)
            key = address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
            put("roles", key, role.to_bytes(4, "little"))
        yield verdict
    libbpf.bpf_object__close(handle)


@dataclass(frozen=True)
class Row:
    what: str
    frame: Packet | bytes
    ours: bool


GRE4, GRE6 = GRE(proto=0x0800), GRE(proto=0x86DD)
TOO_BIG4 = ICMP(type=3, code=4, nexthopmtu=1400)
QUOTE4 = IP(src=TUNNEL, dst="10.0.3.2", proto=47) / GRE4 / bytes(4)
QUOTE6 = IPv6(src=TUNNEL6, dst="fd00:3::2", nh=47) / GRE4 / bytes(4)
PIECE6 = IPv6(src=TUNNEL6, dst="fd00:3::2", nh=44) / IPv6ExtHdrFragment(nh=47, m=1) / GRE4 / bytes(4)
UDP_PIECE6 = IPv6(src=TUNNEL6, dst="fd00:3::2", nh=44) / IPv6ExtHdrFragment(nh=17, m=1) / bytes(8)
AT_NODE, AT_NODE6 = IP(src="10.0.9.9", dst=TUNNEL), IPv6(src="fd00:9::9", dst=TUNNEL6)

ROWS = [
    Row("TCP to a vip", flow(1), True),
    Row("TCP to a vip of IPv6", flow(1, dst=VIP6), True),
    Row("a ping to a vip", ether(IP(src=CLIENT, dst=VIP) / ICMP()), True),
    Row("a later fragment to a vip", ether(IP(src=CLIENT, dst=VIP, frag=100, proto=17) / bytes(30)), True),
    Row("options before TCP", ether(IP(src=CLIENT, dst=VIP, options=b"\x01" * 8) / bytes(20)), True),
    Row("one tag", ether() / Dot1Q(vlan=7) / tcp(), True),
    Row("two tags", ether() / Dot1AD(vlan=8) / Dot1Q(vlan=7) / tcp(VIP6), True),
    Row("three tags", ether() / Dot1Q(vlan=8) / Dot1Q(vlan=7) / Dot1Q(vlan=6) / tcp(), False),
    Row("broadcast", b"\xff" * 6 + flow(1)[6:], False),
    Row("another MAC", bytes.fromhex("020000000003") + flow(1)[6:], False),
    Row("from a vip", ether(IP(src=VIP, dst=CLIENT) / UDP()), False),
    Row("to nobody", ether(tcp("203.0.113.1")), False),
    Row("to nobody of IPv6", ether(tcp("2001:db8:f::1")), False),
    Row("a vip's address behind a type that is not IP", ether(tcp(), type=0x0801), False),
    Row("ARP", Ether(src=GATEWAY_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=TUNNEL), False),
    Row("ARP for a vip", Ether(src=GATEWAY_MAC, dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=VIP), False),
    Row("a ping to the node", ether(AT_NODE / ICMP()), False),
    Row("a ping to the node of IPv6", ether(AT_NODE6 / ICMPv6EchoRequest()), False),
    Row("BGP to the node", ether(tcp(TUNNEL, dport=179)), False),
    Row("a fragment that another node sends on", ether(IP(src=LB2, dst=TUNNEL, proto=47) / GRE4 / tcp()), True),
    Row("the same over IPv6", ether(IPv6(src=LB2_6, dst=TUNNEL6, nh=47) / GRE4 / tcp()), True),
    Row("GRE from nobody", ether(IP(src=CLIENT, dst=TUNNEL, proto=47) / GRE4 / tcp()), False),
    Row("GRE from nobody over IPv6", ether(IPv6(src=CLIENT6, dst=TUNNEL6, nh=47) / GRE4 / tcp()), False),
    Row("GRE from a vip's address", ether(IP(src=VIP, dst=TUNNEL, proto=47) / GRE4 / tcp()), False),
    Row("a ping from another node", ether(IP(src=LB2, dst=TUNNEL) / ICMP()), False),
    Row("to another node", ether(IP(src=CLIENT, dst=LB2, proto=47) / GRE4 / tcp()), False),
    Row("too big, of a packet of ours", ether(AT_NODE / TOO_BIG4 / QUOTE4), True),
    Row("too big, of the kernel's own", ether(AT_NODE / TOO_BIG4 / IP(src=TUNNEL) / UDP()), False),
    Row("unreachable, of a packet of ours", ether(AT_NODE / ICMP(type=3, code=1) / QUOTE4), False),
    Row("too big over IPv6", ether(AT_NODE6 / ICMPv6PacketTooBig(mtu=1400) / QUOTE6), True),
    Row("too big over IPv6, of a piece of ours", ether(AT_NODE6 / ICMPv6PacketTooBig(mtu=1400) / PIECE6), True),
    Row("too big over IPv6, of a piece of the kernel's", ether(AT_NODE6 / ICMPv6PacketTooBig() / UDP_PIECE6), False),
    Row("unreachable over IPv6", ether(AT_NODE6 / ICMPv6DestUnreach() / QUOTE6), False),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_frame_is_ours_or_the_kernels(run: Run, row: Row) -> None:
    assert run(bytes(row.frame)) == (REDIRECT if row.ours else PASS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.ours], ids=lambda row: row.what)
def test_a_frame_that_is_cut_anywhere_is_never_read_beyond_its_end(run: Run, row: Row) -> None:
    """The verifier saw to that; where the address is missing the frame is the kernel's."""
    frame = bytes(row.frame)
    verdicts = [run(frame[:length]) for length in range(14, len(frame))]
    assert set(verdicts) <= {PASS, REDIRECT}
    assert verdicts[0] == PASS
    assert verdicts == sorted(verdicts), "from some byte on it is ours"
