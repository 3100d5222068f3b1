"""What routers say of the way to a backend: believed for ten minutes, if it is about a packet of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6PacketTooBig, IPv6
from scapy.layers.l2 import GRE, Dot1Q
from scapy.packet import Packet, Raw

from packets.pieces import cut, lengths, sized
from packets.road import Road, port_settings
from packets.table import Row
from packets.world import (
    BACKENDS,
    CLIENT,
    ELSEWHERE,
    ELSEWHERE6,
    OVER4,
    OVER6,
    TUNNEL,
    TUNNEL6,
    VIP,
    VIP6,
    WORLD,
    answer,
    ether,
    outer,
    state,
    too_big_error,
    vip,
)

MakeRoad = Callable[..., Road]
TEN_MINUTES = 600
WEB1, DNS1, SIX1, SIX2 = (BACKENDS[name] for name in ("web1", "dns1", "six1", "six2"))


def df(length: int, to: str = VIP, sport: int = 40000) -> Packet:
    """A packet with DF, or an IPv6 one, whose IP length is `length`."""
    return sized(length, to, sport, **({} if ":" in to else {"flags": "DF"}))


def frame(packet: Packet) -> bytes:
    return bytes(ether(packet))


def quoted(backend: str = WEB1, of: Packet | None = None, length: int = 28) -> bytes:
    """The first bytes of an outer packet to a backend, as a router quotes them."""
    return outer(of if of is not None else df(1476), backend)[14 : 14 + length]


def report(mtu: int, quote: bytes | Packet | None = None, to: str = TUNNEL, **icmp: object) -> Packet:
    """What an IPv4 router says to the tunnel source."""
    about = quoted() if quote is None else bytes(quote)
    return IP(src=ELSEWHERE, dst=to) / ICMP(**{"type": 3, "code": 4, "nexthopmtu": mtu, **icmp}) / Raw(about)


def report6(mtu: int, quote: bytes | None = None, to: str = TUNNEL6) -> Packet:
    about = quoted(SIX1, df(1456, VIP6), 48) if quote is None else quote
    return IPv6(src=ELSEWHERE6, dst=to) / ICMPv6PacketTooBig(mtu=mtu) / Raw(about)


def learned(road: Road) -> dict[str, tuple[int, int]]:
    """{backend: (MTU, seconds left)}."""
    return {way["backend"]: (way["mtu"], way["seconds"]) for way in road.forwarding.path_mtus()}


def too_big(packet: Packet, mtu: int, id: int = 0) -> Row:
    return Row("too big", ether(packet), "too_big_reply", answer(too_big_error(packet, mtu, id)))


# -- what it does


def test_the_mtu_of_a_backend_is_lowered(road: Road) -> None:
    assert road.fate_of(frame(df(1476))) == "hash_new"
    assert learned(road) == {}
    assert road.fate_of(frame(report(1400))) == "path_mtu"
    assert road.dataplane.reasons()["path_mtu_lowered"] == 1
    assert learned(road) == {"web1": (1400, TEN_MINUTES)}
    Row("as much as fits", ether(df(1376)), "conn_hit", outer(df(1376), WEB1), "www", "web1").check(road)
    too_big(df(1377), 1376).check(road)
    too_big(df(1476), 1376, 1).check(road)
    too_big(df(3000), 1376, 2).check(road)


def test_the_mtu_of_an_ipv6_backend_is_lowered(road: Road) -> None:
    assert road.fate_of(frame(report6(1400))) == "path_mtu"
    assert learned(road) == {"six1": (1400, TEN_MINUTES)}
    too_big(df(1357, OVER6), 1356).check(road)
    too_big(df(1357, VIP6), 1356).check(road)
    Row("fits", ether(df(1356, VIP6)), "conn_hit", outer(df(1356, VIP6), SIX1), "www6", "six1").check(road)


def test_without_df_the_packet_is_cut_to_it(road: Road) -> None:
    road.send(frame(report(1400)), frame(report6(1300)))
    packet = sized(1476)
    expected = cut(outer(packet, WEB1, flags="", id=0), 1400)
    Row("over IPv4", ether(packet), "hash_new", expected, "www", "web1").check(road)
    packet = sized(1476, OVER6)
    expected = cut(outer(packet, SIX1), 1300, 1)
    Row("over IPv6", ether(packet), "hash_new", expected, "www over 6", "six1").check(road)


def test_nobody_is_told_less_than_ipv6_needs(road: Road) -> None:
    """An IPv6 packet of 1280 bytes goes through whatever was learned: in pieces."""
    road.send(frame(report(600)), frame(report6(1280)))
    for to in (OVER4, VIP6):
        too_big(df(1281, to), 1280).check(road)
        pieces = road.send(frame(df(1280, to)))
        assert len(pieces) == (3 if to == OVER4 else 2)
        assert max(lengths(pieces)) <= (600 if to == OVER4 else 1280)


def test_other_backends_are_not_touched(road: Road) -> None:
    road.send(frame(report(1400)))
    udp = IP(src=CLIENT, dst=VIP, flags="DF") / UDP(sport=40000, dport=80) / bytes(1448)
    Row("dns1", ether(udp), "hash_new", outer(udp, DNS1), "dns", "dns1").check(road)
    Row("six1", ether(df(1456, VIP6)), "hash_new", outer(df(1456, VIP6), SIX1), "www6", "six1").check(road)


def test_a_lower_one_lowers_further_and_a_higher_one_does_nothing(road: Road) -> None:
    fates = road.fates_of(*(frame(report(mtu)) for mtu in (1400, 1400, 1450, 1000, 1001, 1400, 999)))
    assert fates == {"path_mtu": 7}
    reasons = road.dataplane.reasons()
    assert (reasons["path_mtu_lowered"], reasons["path_mtu_kept"]) == (3, 4)
    assert learned(road) == {"web1": (999, TEN_MINUTES)}


def test_what_is_not_below_the_port_s_mtu_is_not_kept(make_road: MakeRoad) -> None:
    road = make_road(mtu=1450)
    road.apply(WORLD)
    for mtu in (1450, 1451, 9000, 65535):
        assert road.fate_of(frame(report(mtu))) == "path_mtu"
    assert learned(road) == {}
    assert road.dataplane.reasons()["path_mtu_lowered"] == 0
    assert road.fate_of(frame(report(1449))) == "path_mtu"
    assert learned(road) == {"web1": (1449, TEN_MINUTES)}


def test_after_ten_minutes_it_is_forgotten(road: Road) -> None:
    road.send(frame(report(1400)))
    road.now += TEN_MINUTES - 1
    too_big(df(1476), 1376).check(road)
    assert learned(road) == {"web1": (1400, 1)}
    road.now += 1
    Row("fits again", ether(df(1476)), "conn_hit", outer(df(1476), WEB1), "www", "web1").check(road)
    assert learned(road) == {}
    assert road.fate_of(frame(report(1450))) == "path_mtu"
    assert learned(road) == {"web1": (1450, TEN_MINUTES)}


def test_a_report_does_not_prolong_what_is_known(road: Road) -> None:
    road.send(frame(report(1400)))
    road.now += 300
    road.send(frame(report(1400)), frame(report(1450)))
    assert learned(road) == {"web1": (1400, 300)}


@pytest.mark.parametrize(("said", "kept"), [(1, 576), (68, 576), (575, 576), (576, 576), (577, 577), (0, 1492)])
def test_the_least_of_ipv4_and_routers_that_say_nothing(road: Road, said: int, kept: int) -> None:
    """The quoted packet has 1500 bytes: the next smaller plateau is 1492 (RFC 1191)."""
    assert road.fate_of(frame(report(said))) == "path_mtu"
    assert learned(road) == {"web1": (kept, TEN_MINUTES)}
    assert road.fate_of(frame(df(kept - 24))) == "hash_new"
    too_big(df(kept - 23), kept - 24).check(road)


@pytest.mark.parametrize(("said", "kept"), [(0, None), (576, None), (1279, None), (1280, 1280), (0x10000, None)])
def test_the_least_of_ipv6(road: Road, said: int, kept: int | None) -> None:
    """Less than every link must carry is not believed (RFC 8201)."""
    assert road.fate_of(frame(report6(said))) == "path_mtu"
    assert learned(road) == ({"six1": (kept, TEN_MINUTES)} if kept else {})


def test_a_quoted_piece_of_ours(road: Road) -> None:
    """Over IPv6 a piece may be too big for a link: any of them tells."""
    pieces = road.send(frame(sized(4000, OVER6)))
    for piece, mtu in zip(pieces[:2], (1450, 1400), strict=True):
        assert road.fate_of(frame(report6(mtu, piece[14 : 14 + 60]))) == "path_mtu"
        assert learned(road) == {"six1": (mtu, TEN_MINUTES)}
    assert max(lengths(road.send(frame(sized(4000, OVER6))))) <= 1400


def test_a_report_of_a_whole_packet_behind_a_tag(road: Road) -> None:
    whole = outer(df(1476), WEB1)[14:]
    assert road.fate_of(bytes(ether(Dot1Q(vlan=5) / report(1400, whole[:540])))) == "path_mtu"
    assert learned(road) == {"web1": (1400, TEN_MINUTES)}


def test_it_outlives_a_new_state(road: Road) -> None:
    road.send(frame(report(1400)))
    road.apply(state(BACKENDS, *WORLD["vips"][:4]))
    too_big(df(1476), 1376).check(road)


# -- who is not believed

OTHER = "10.0.2.3"


@pytest.mark.parametrize(
    "packet",
    [
        report(1400, quoted("10.9.9.9")),
        report(1400, bytes(IP(src=OTHER, dst=WEB1, flags="DF", proto=47) / GRE(proto=0x0800) / bytes(4))),
        report(1400, to=OTHER),
        report(1400, bytes(IP(src=OTHER, dst=WEB1, flags="DF", proto=47) / GRE(proto=0x0800) / bytes(4)), to=OTHER),
        report(1400, IP(src=TUNNEL, dst=WEB1, flags="DF") / UDP(sport=1, dport=2) / bytes(20)),
        report(1400, bytes(IP(src=TUNNEL, dst=WEB1, flags="DF", proto=47) / GRE(proto=0x6558) / bytes(4))),
        report(1400, quoted()[:23]),
        report(1400, b""),
        report(1400, code=3),
        report(1400, type=11, code=0),
        report(1400, chksum=0x1234),
        report(1400, IP(src=TUNNEL, dst=TUNNEL, flags="DF", proto=47) / GRE(proto=0x0800) / bytes(4)),
        report6(1400, quoted(SIX1, df(1456, VIP6), 43)),
        report6(1400, to="fd00:2::3"),
        report6(1400, quoted("fd00:9::9", df(1456, VIP6), 48)),
        IPv6(src=ELSEWHERE6, dst=TUNNEL6) / ICMPv6DestUnreach(code=0) / Raw(quoted(SIX1, df(1456, VIP6), 48)),
        IPv6(src=ELSEWHERE6, dst=TUNNEL6)
        / ICMPv6PacketTooBig(mtu=1400, cksum=1)
        / Raw(quoted(SIX1, df(1456, VIP6), 48)),
    ],
    ids=[
        "about a packet to nobody we send to",
        "about a packet of somebody else",
        "to another address",
        "about and to somebody else",
        "about UDP",
        "about GRE of something else",
        "with too short a quote",
        "with no quote",
        "of another code",
        "of another type",
        "with a wrong checksum",
        "about a packet to ourselves",
        "IPv6: with too short a quote",
        "IPv6: to another address",
        "IPv6: about a packet to nobody we send to",
        "IPv6: of another type",
        "IPv6: with a wrong checksum",
    ],
)
@pytest.mark.parametrize("punts", [False, True])
def test_what_is_not_believed_stays_what_it_was(make_road: MakeRoad, packet: Packet, punts: bool) -> None:
    road = make_road(punts=punts)
    road.apply(WORLD)
    assert road.fate_of(frame(packet)) == ("punt" if punts else "not_vip")
    assert learned(road) == {}
    assert road.fate_of(frame(df(1476))) == "hash_new"
    assert road.fate_of(frame(df(1456, VIP6))) == "hash_new"


def test_the_same_to_a_vip_is_about_no_flow(road: Road) -> None:
    assert road.fate_of(frame(report(1400, to=VIP))) == "not_vip"
    assert road.dataplane.reasons()["quote_unknown"] == 1
    assert learned(road) == {}


def test_where_the_kernel_has_what_is_not_ours_it_is_learned_all_the_same(make_road: MakeRoad) -> None:
    road = make_road(punts=True)
    road.apply(WORLD)
    assert road.fate_of(frame(report(1400))) == "path_mtu"
    assert learned(road) == {"web1": (1400, TEN_MINUTES)}


def test_without_a_state_nothing_is_ours(make_road: MakeRoad) -> None:
    road = make_road()
    assert road.fate_of(frame(report(1400))) == "not_vip"
    assert road.dataplane.path_mtu(0) is None


# -- whose it is


def test_a_backend_that_gets_a_number_anew_does_not_inherit(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(state({"b1": WEB1}, vip("www", VIP, ["b1"])))
    road.send(frame(report(1400)))
    assert road.dataplane.path_mtu(0) == (1400, TEN_MINUTES)
    road.apply(state({}))
    road.forwarding.reap()
    assert road.dataplane.path_mtu(0) is None, "nobody has the number"
    road.apply(state({"b2": DNS1}, vip("www", VIP, ["b2"])))
    assert road.dataplane.path_mtu(0) is None
    Row("b2", ether(df(1476)), "hash_new", outer(df(1476), DNS1), "www", "b2").check(road)
    assert road.fate_of(frame(report(1300, quoted(DNS1)))) == "path_mtu"
    assert road.dataplane.path_mtu(0) == (1300, TEN_MINUTES), "the number is the same, so it did not inherit"


def test_one_that_left_and_one_with_its_address_have_both_been_told_of(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(state({"old": WEB1}, vip("www", VIP, ["old"])))
    assert road.fate_of(frame(df(1000))) == "hash_new"
    road.apply(state({"new": WEB1}, vip("www", VIP, ["new"])))
    assert road.fate_of(frame(df(1000))) == "conn_hit"
    assert road.fate_of(frame(report(1400))) == "path_mtu"
    assert learned(road) == {"new": (1400, TEN_MINUTES), "old": (1400, TEN_MINUTES)}
    too_big(df(1476), 1376).check(road)
    too_big(df(1476, sport=40001), 1376, 1).check(road)


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_among_many_backends_the_right_one_is_found(road: Road, count: int) -> None:
    backends = {f"b{i}": f"10.{1 + i // 200}.{i % 200}.2" for i in range(count)} | {"six": "fd00:9::a01:2"}
    road.apply(state(backends, vip("www", VIP, list(backends), table_size=65537)))
    for name in ("b0", f"b{count // 2}", f"b{count - 1}"):
        road.now += TEN_MINUTES
        assert road.fate_of(frame(report(1400, quoted(backends[name])))) == "path_mtu"
        assert learned(road) == {name: (1400, TEN_MINUTES)}


def test_it_does_not_matter_which_worker_gets_the_report(make_road: MakeRoad) -> None:
    road = make_road(workers=3)
    road.apply(WORLD)
    for mtu in range(1400, 1380, -1):
        packet = report(mtu)
        packet.src = f"203.0.113.{mtu % 250}"
        assert road.fate_of(frame(packet)) == "path_mtu"
        assert learned(road) == {"web1": (mtu, TEN_MINUTES)}
    fates = road.fates_of(*(frame(df(1476, sport=sport)) for sport in range(1000, 1100)))
    assert fates == {"too_big_reply": 100}, "all workers know"


def test_on_lcores_a_flood_of_reports_leaves_the_lowest(make_road: MakeRoad) -> None:
    road = make_road(workers=3)
    road.apply(WORLD)
    road.start()
    packets = []
    for number in range(600):
        packet = report(600 + (number * 7) % 800)
        packet.src = f"203.0.113.{number % 250}"
        packets.append(frame(packet))
    for at in range(0, 600, 100):
        road.give(packets[at : at + 100])
        road.settle()
    assert road.fates() == {"path_mtu": 600}
    assert [way["mtu"] for way in road.forwarding.path_mtus()] == [600]


def test_the_port_that_counts_is_the_one_it_leaves_by(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mtu=1400), port_settings(mtu=9000)])
    road.apply(WORLD)
    road.send_by_port([frame(report(1450))], port=1)
    assert learned(road) == {}
