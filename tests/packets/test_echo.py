"""Echo requests to a vip's address: the node answers while one of that address's vips takes new flows."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from scapy.layers.inet import (
    ICMP,
    IP,
    IPOption_LSRR,
    IPOption_NOP,
    IPOption_Router_Alert,
    IPOption_RR,
    IPOption_SSRR,
    IPOption_Timestamp,
)
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet

from forwarder.next_hops import KernelView
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    ANY_PORT,
    BACKENDS,
    CLIENT,
    CLIENT6,
    ELSEWHERE,
    ELSEWHERE6,
    EMPTY,
    GATEWAY_MAC,
    NODE_MAC,
    OVER4,
    OVER6,
    VIP,
    VIP6,
    WORLD,
    answer,
    ether,
    member,
    state,
    tcp,
    vip,
)

MakeRoad = Callable[..., Road]
PER_SECOND = 1000  # answers of one worker


def ping(
    to: str = VIP, data: bytes = b"0123456789", id: int = 7, seq: int = 1, chksum: int | None = None, **ip: object
) -> Packet:
    if ":" in to:
        header = IPv6(**{"src": CLIENT6, "dst": to, "hlim": 57, **ip})
        return header / ICMPv6EchoRequest(id=id, seq=seq, data=data, cksum=chksum)
    return IP(**{"src": CLIENT, "dst": to, "ttl": 57, **ip}) / ICMP(id=id, seq=seq, chksum=chksum) / data


def pong(
    of: str = VIP, data: bytes = b"0123456789", id: int = 7, seq: int = 1, chksum: int | None = None, **ip: object
) -> Packet:
    """The reply, all checksums computed anew; `ip` are fields of its IP header that are not as in ping()."""
    if ":" in of:
        header = IPv6(**{"src": of, "dst": CLIENT6, "hlim": 64, **ip})
        return header / ICMPv6EchoReply(id=id, seq=seq, data=data, cksum=chksum)
    header = IP(**{"src": of, "dst": CLIENT, "ttl": 64, **ip})
    return header / ICMP(type=0, id=id, seq=seq, chksum=chksum) / data


def answered(description: str, question: Packet, reply: Packet) -> Row:
    return Row(description, ether(question), "echo_reply", answer(reply))


def same(description: str, to: str = VIP, **fields: object) -> Row:
    """Question and answer have the same fields."""
    return answered(description, ping(to, **fields), pong(to, **fields))


def refused(description: str, packet: Packet, fate: str, reason: str | None = None) -> Row:
    return Row(description, ether(packet), fate, reason=reason)


LENGTHS = (0, 1, 2, 3, 7, 8, 18, 56, 57, 1000, 1001, 1452, 1471, 1472)


def data_of(length: int) -> bytes:
    return random.Random(length).randbytes(length)


ANSWERED = [
    *(same(f"{n} bytes of data", data=data_of(n)) for n in LENGTHS),
    *(same(f"IPv6, {n} bytes of data", VIP6, data=data_of(n)) for n in LENGTHS if n <= 1452),
    same("a vip of any port", ANY_PORT),
    same("a vip whose backends are reached over IPv6", OVER6),
    same("an IPv6 vip whose backends are reached over IPv4", OVER4),
    same("id and sequence number 0, no data: all is zero but the checksum", id=0, seq=0, data=b""),
    same("all is zero but the checksum, 56 bytes", id=0, seq=0, data=bytes(56)),
    same("all is zero but the checksum, 57 bytes", id=0, seq=0, data=bytes(57)),
    same("IPv6, id and sequence number 0, no data", VIP6, id=0, seq=0, data=b""),
    same("the greatest id and sequence number", id=0xFFFF, seq=0xFFFF),
    same("data of ones", data=b"\xff" * 56),
    same("IPv6, data of ones", VIP6, data=b"\xff" * 56),
    answered(
        "a sum of 0xffff: its checksum may be 0 or 0xffff, and is the one that is always right",
        ping(id=0xFFFF, seq=0, data=b""),
        pong(id=0xFFFF, seq=0, data=b"", chksum=0xFFFF),
    ),
    same("identification and DF stay", id=9, flags="DF"),
    same("the reserved bit stays", flags=4),
    same("class stays", tos=0xB9),
    same("IPv6 class and flow label stay", VIP6, tc=0xB9, fl=0x12345),
    answered("TTL 1", ping(ttl=1), pong()),
    answered("TTL 255", ping(ttl=255), pong()),
    answered("IPv6 hop limit 1", ping(VIP6, hlim=1), pong(VIP6)),
    answered("IPv6 hop limit 255", ping(VIP6, hlim=255), pong(VIP6)),
    same("no operation, four times", options=[IPOption_NOP()] * 4),
    same("40 bytes of options", options=[IPOption_NOP()] * 40),
    same("router alert", options=[IPOption_Router_Alert()]),
    same("record route, as it came", options=[IPOption_RR(pointer=8, routers=[ELSEWHERE, "0.0.0.0"])]),
    same("timestamp, as it came", options=[IPOption_Timestamp()]),
    answered("a private client", ping(src="10.0.0.1"), pong(dst="10.0.0.1")),
    answered("the lowest address", ping(src="1.0.0.1"), pong(dst="1.0.0.1")),
    answered("before loopback", ping(src="126.255.255.255"), pong(dst="126.255.255.255")),
    answered("after loopback", ping(src="128.0.0.1"), pong(dst="128.0.0.1")),
    answered("before multicast", ping(src="223.255.255.255"), pong(dst="223.255.255.255")),
    answered("a link-local client", ping(VIP6, src="fe80::7"), pong(VIP6, dst="fe80::7")),
    answered("the address ::2", ping(VIP6, src="::2"), pong(VIP6, dst="::2")),
    answered("the address 100::", ping(VIP6, src="100::"), pong(VIP6, dst="100::")),
    answered("the vip of another service", ping(src=ANY_PORT), pong(dst=ANY_PORT)),
]

LAYER2 = [
    Row("padding is cut off", bytes(ether(ping(data=b""))) + bytes(18), "echo_reply", answer(pong(data=b""))),
    Row("padding that is not zero", bytes(ether(ping())) + b"\xff" * 8, "echo_reply", answer(pong())),
    Row("IPv6 padding", bytes(ether(ping(VIP6))) + b"\xff" * 9, "echo_reply", answer(pong(VIP6))),
    Row(
        "back to the station that sent it",
        Ether(src="02:00:00:00:00:aa", dst=NODE_MAC) / ping(),
        "echo_reply",
        answer(pong(), mac="02:00:00:00:00:aa"),
    ),
    Row(
        "one VLAN tag stays",
        ether(Dot1Q(vlan=5, prio=3) / ping()),
        "echo_reply",
        Ether(src=NODE_MAC, dst=GATEWAY_MAC) / Dot1Q(vlan=5, prio=3) / pong(),
    ),
    Row(
        "two VLAN tags stay",
        ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / ping(VIP6)),
        "echo_reply",
        Ether(src=NODE_MAC, dst=GATEWAY_MAC) / Dot1AD(vlan=5) / Dot1Q(vlan=6) / pong(VIP6),
    ),
    Row(
        "padding behind a tag",
        bytes(ether(Dot1Q(vlan=5) / ping(data=b""))) + bytes(14),
        "echo_reply",
        Ether(src=NODE_MAC, dst=GATEWAY_MAC) / Dot1Q(vlan=5) / pong(data=b""),
    ),
    Row(
        "to all stations: each node that got it would answer",
        Ether(src=GATEWAY_MAC, dst="ff:ff:ff:ff:ff:ff") / ping(),
        "echo_suppressed",
    ),
    Row("to a group of stations", Ether(src=GATEWAY_MAC, dst="01:00:5e:00:00:01") / ping(), "echo_suppressed"),
    Row("from a group of stations", Ether(src="01:00:5e:00:00:01", dst=NODE_MAC) / ping(), "echo_suppressed"),
    Row("from all stations", Ether(src="ff:ff:ff:ff:ff:ff", dst=NODE_MAC) / ping(VIP6), "echo_suppressed"),
]


def with_headers(*headers: Packet, echo: Packet, **fields: object) -> Packet:
    packet: Packet = IPv6(**fields)
    for header in headers:
        packet /= header
    return packet / echo


def behind(description: str, *headers: Packet) -> Row:
    """IPv6 headers before the echo stay as they are."""
    question = with_headers(*headers, echo=ICMPv6EchoRequest(id=7, data=b"abc"), src=CLIENT6, dst=VIP6, hlim=9)
    reply = with_headers(*headers, echo=ICMPv6EchoReply(id=7, data=b"abc"), src=VIP6, dst=CLIENT6, hlim=64)
    return answered(description, question, reply)


HEADERS6 = [
    behind("behind hop-by-hop options", IPv6ExtHdrHopByHop()),
    behind("behind destination options", IPv6ExtHdrDestOpt()),
    behind("behind both", IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt()),
    behind("an atomic fragment", IPv6ExtHdrFragment(id=99)),
]

WRONG = [
    answered("a wrong checksum stays as wrong", ping(chksum=0x1234), pong(chksum=0x1A34)),
    answered("a checksum of 0xffff", ping(chksum=0xFFFF), pong(chksum=0x0800)),
    answered("a checksum of 0", ping(chksum=0), pong(chksum=0x0800)),
    answered("IPv6, a wrong checksum stays as wrong", ping(VIP6, chksum=0x1234), pong(VIP6, chksum=0x1134)),
    answered(
        "another code stays",
        IP(src=CLIENT, dst=VIP) / ICMP(code=3, id=7, seq=1),
        IP(src=VIP, dst=CLIENT, ttl=64) / ICMP(type=0, code=3, id=7, seq=1),
    ),
]

REFUSED = [
    *(
        refused(f"from {source}", ping(src=source), "echo_suppressed", "echo_silent")
        for source in (
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            VIP,
        )
    ),
    *(
        refused(f"from {source}", ping(VIP6, src=source), "echo_suppressed", "echo_silent")
        for source in ("::", "::1", "ff02::1", "ff0e::7", "ffff::", VIP6)
    ),
    refused("to a multicast group", ping("224.0.0.1"), "not_vip"),
    refused("to all", ping("255.255.255.255"), "not_vip"),
    refused("to all nodes of the link", ping("ff02::1"), "not_vip"),
    refused("to an address that is no vip's", ping(ELSEWHERE), "not_vip"),
    refused("an echo reply is not answered", pong(src=CLIENT, dst=VIP), "not_vip", "other_icmp"),
    refused("an IPv6 echo reply is not answered", pong(VIP6, src=CLIENT6, dst=VIP6), "not_vip"),
    refused("a vip without backend", ping(EMPTY), "no_backend", "echo_no_backend"),
    refused("no backend comes before a bad source", ping(EMPTY, src="127.0.0.1"), "no_backend", "echo_no_backend"),
    refused("TTL 0", ping(ttl=0), "ttl_expired"),
    refused("IPv6 hop limit 0", ping(VIP6, hlim=0), "ttl_expired"),
    refused("TTL 0 comes before no backend", ping(EMPTY, ttl=0), "ttl_expired"),
    refused("TTL 0 to an address that is no vip's", ping(ELSEWHERE, ttl=0), "not_vip"),
    refused("the first fragment of an echo", ping(flags="MF"), "fragment_unmatched"),
    refused("a later fragment of an echo", ping(frag=5), "fragment_unmatched"),
    refused("a fragment of an echo to a vip without backend", ping(EMPTY, flags="MF"), "fragment_unmatched"),
    refused(
        "the first fragment of an IPv6 echo",
        IPv6(src=CLIENT6, dst=VIP6) / IPv6ExtHdrFragment(m=1) / ICMPv6EchoRequest(data=bytes(64)),
        "fragment_unmatched",
    ),
    refused(
        "a loose source route", ping(options=[IPOption_LSRR(routers=[ELSEWHERE])]), "echo_suppressed", "echo_silent"
    ),
    refused(
        "a strict source route behind no operation and a timestamp",
        ping(options=[IPOption_NOP(), IPOption_Timestamp(), IPOption_SSRR(routers=[ELSEWHERE])]),
        "echo_suppressed",
        "echo_silent",
    ),
    refused(
        "IPv6: a routing header",
        IPv6(src=CLIENT6, dst=VIP6)
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrRouting(addresses=[ELSEWHERE6])
        / ICMPv6EchoRequest(),
        "echo_suppressed",
        "echo_silent",
    ),
    refused("a broken header checksum", IP(src=CLIENT, dst=VIP, chksum=1) / ICMP(), "malformed", "ipv4_checksum"),
    *(
        refused(f"{n} bytes of ICMP", IP(src=CLIENT, dst=VIP, proto=1) / bytes(ICMP())[:n], "malformed", "icmp_cut")
        for n in range(8)
    ),
    *(
        refused(
            f"{n} bytes of ICMPv6", IPv6(src=CLIENT6, dst=VIP6, nh=58) / bytes(ICMPv6EchoRequest())[:n], "malformed"
        )
        for n in range(8)
    ),
    refused("7 bytes of ICMP come before no backend", IP(src=CLIENT, dst=EMPTY, proto=1) / bytes(7), "malformed"),
]


@pytest.mark.parametrize("row", ANSWERED + LAYER2 + HEADERS6 + WRONG + REFUSED, ids=str)
def test_echo(road: Road, row: Row) -> None:
    row.check(road)
    assert road.connections() == 0


@pytest.mark.parametrize("to", [VIP, VIP6])
@pytest.mark.parametrize("length", [1900, 2000, 3001, 8972])
@pytest.mark.parametrize("padding", [0, 1, 700])
def test_a_large_echo_of_several_buffers(road: Road, to: str, length: int, padding: int) -> None:
    """It came by that link, so that its reply goes by it, whatever the MTU of the tunnels."""
    data = data_of(length)
    frame = bytes(ether(ping(to, data=data))) + bytes(padding)
    Row("large", frame, "echo_reply", answer(pong(to, data=data))).check(road)


def test_padding_that_fills_buffers_of_its_own(road: Road) -> None:
    Row("much padding", bytes(ether(ping())) + bytes(9000), "echo_reply", answer(pong())).check(road)


def test_answers_leave_by_the_port_of_the_question_without_any_route(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mac=None)] * 3, view=KernelView())
    road.apply(WORLD)
    for port in (1, 2, 0):
        Row(f"port {port}", ether(ping()), "echo_reply", answer(pong()), port=port, by=port).check(road)


# -- while one of the address's vips takes new flows

UP, DRAIN, DOWN = member("web1"), member("web1", 100, "drain"), member("web1", 100, "down")


@pytest.mark.parametrize(
    ("vips", "fate"),
    [
        ([vip("a", VIP, [UP])], "echo_reply"),
        ([vip("a", VIP, [DRAIN])], "no_backend"),
        ([vip("a", VIP, [DOWN])], "no_backend"),
        ([vip("a", VIP, [member("web1", 0)])], "no_backend"),
        ([vip("a", VIP, [])], "no_backend"),
        ([vip("a", VIP, [DRAIN]), vip("b", VIP, [UP], port=443)], "echo_reply"),
        ([vip("a", VIP, [UP]), vip("b", VIP, [DOWN], port=443)], "echo_reply"),
        ([vip("a", VIP, []), vip("b", VIP, [UP], "udp", 53)], "echo_reply"),
        ([vip("a", VIP, []), vip("b", VIP, [UP], port=0)], "echo_reply"),
        ([vip("a", VIP, [DRAIN]), vip("b", VIP, [DOWN], "udp")], "no_backend"),
        ([vip("a", VIP, []), vip("b", ANY_PORT, [UP])], "no_backend"),
        ([vip("b", ANY_PORT, [UP])], "not_vip"),
    ],
    ids=[
        "up",
        "draining",
        "down",
        "weight 0",
        "empty",
        "one vip draining, the other up",
        "one vip up, the other down",
        "the other protocol's vip is up",
        "the vip of any port is up",
        "none takes new flows",
        "only another address is up",
        "no vip of this address",
    ],
)
def test_while_a_vip_of_the_address_is_served(road: Road, vips: list[dict[str, object]], fate: str) -> None:
    road.apply(state(BACKENDS, *vips))
    assert road.fate_of(bytes(ether(ping()))) == fate


def test_it_follows_the_state(road: Road) -> None:
    for members, fate in (([UP], "echo_reply"), ([DRAIN], "no_backend"), ([], "no_backend"), ([UP], "echo_reply")):
        road.apply(state(BACKENDS, vip("a", VIP, members)))
        assert road.fate_of(bytes(ether(ping()))) == fate


# -- no more than so many in a second


def pings(count: int, client: int = 7, **fields: object) -> list[bytes]:
    return [bytes(ether(ping(src=f"198.51.100.{client}", **fields)))] * count


def test_a_thousand_in_a_second_and_again_in_the_next(road: Road) -> None:
    assert road.fates_of(*pings(PER_SECOND)) == {"echo_reply": PER_SECOND}
    assert road.fates_of(*pings(1)) == {"echo_suppressed": 1}
    assert road.fates_of(*pings(500, client=8)) == {"echo_suppressed": 500}, "whoever asks"
    road.now += 1
    assert road.fates_of(*pings(PER_SECOND + 1)) == {"echo_reply": PER_SECOND, "echo_suppressed": 1}
    road.now += 3600
    assert road.fates_of(*pings(PER_SECOND + 7)) == {"echo_reply": PER_SECOND, "echo_suppressed": 7}, "none is saved"


def test_forwarding_goes_on_when_answers_are_used_up(road: Road) -> None:
    road.send(*pings(PER_SECOND + 100))
    assert road.fate_of(bytes(ether(tcp()))) == "hash_new"


def test_what_may_not_be_answered_uses_nothing_up(road: Road) -> None:
    bad = bytes(ether(ping(src="127.0.0.1")))
    shouted = bytes(Ether(src=GATEWAY_MAC, dst="ff:ff:ff:ff:ff:ff") / ping())
    nobody = bytes(ether(ping(EMPTY)))
    assert road.fates_of(*[bad, shouted, nobody] * 500) == {"echo_suppressed": 1000, "no_backend": 500}
    assert road.fates_of(*pings(PER_SECOND)) == {"echo_reply": PER_SECOND}


def test_each_worker_has_its_own_thousand(make_road: MakeRoad) -> None:
    """One client's questions are one worker's; many clients' are spread."""
    road = make_road(workers=2)
    road.apply(WORLD)
    assert road.fates_of(*pings(PER_SECOND + 10)) == {"echo_reply": PER_SECOND, "echo_suppressed": 10}
    others = [frame for client in range(8, 208) for frame in pings(10, client)]
    fates = road.fates_of(*others)
    assert fates["echo_reply"] > 600, "the second worker had all of its own"
    more = road.fates_of(*others, *others, *others)
    assert fates["echo_reply"] + more.get("echo_reply", 0) == PER_SECOND
    road.now += 1
    assert road.fates_of(*others, *others, *others)["echo_reply"] == 2 * PER_SECOND


def test_answers_of_several_bursts_keep_their_order(road: Road) -> None:
    frames = [bytes(ether(ping(seq=seq))) for seq in range(200)]
    assert road.send(*frames) == [answer(pong(seq=seq)) for seq in range(200)]


def test_answers_among_forwarded_packets(road: Road) -> None:
    """Each keeps its own order; nothing is counted for a vip that is an answer."""
    frames = []
    for seq in range(100):
        frames += [bytes(ether(ping(seq=seq))), bytes(ether(tcp(flags="A", payload=bytes([seq]))))]
    out = road.send(*frames)
    assert [frame for frame in out if frame[23] == 1] == [answer(pong(seq=seq)) for seq in range(100)]
    assert [frame[-1] for frame in out if frame[23] == 47] == list(range(100))
    assert road.fates() == {"echo_reply": 100, "hash_new": 1, "conn_hit": 99}
    assert sum(counts["packets"] for counts in road.forwarding.traffic()[0].values()) == 100


def test_credit_comes_back_from_answers(make_road: MakeRoad) -> None:
    """Far more answers than the pool has packets, and none taken: dropped at the transmit side, then all is well."""
    road = make_road(ring_size=64, pool=2048)
    road.apply(WORLD)
    for _ in range(300):
        assert road.give(pings(32)) == 32
        road.step()
        road.now += 1
    assert road.fates() == {"transmit_full": 9600 - 64, "echo_reply": 64}
    assert road.take() == [answer(pong())] * 64
    road.step()
    assert road.fates_of(*pings(10)) == {"echo_reply": 10}


def test_a_canary_that_is_an_echo_is_never_sent(road: Road) -> None:
    road.dataplane.inject(bytes(ether(ping())), 0)
    for _ in range(2):
        road.step()
        road.dataplane.step(road.now)
    came = road.dataplane.collect()
    assert came is not None
    assert (came[1], came[4]) == ("echo_answered", answer(pong()))
    assert road.fates() == {}
    assert road.take() == []


def test_while_running(make_road: MakeRoad) -> None:
    road = make_road(workers=2)
    road.apply(WORLD)
    road.start()
    road.give([bytes(ether(ping(seq=seq, src=f"198.51.100.{seq + 1}"))) for seq in range(100)])
    expected = [answer(pong(seq=seq, dst=f"198.51.100.{seq + 1}")) for seq in range(100)]
    assert sorted(road.take_all()) == sorted(expected)
    assert road.fates() == {"echo_reply": 100}
