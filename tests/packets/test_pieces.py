"""Packets larger than the tunnel takes, from senders who did not forbid to fragment them: they leave in pieces.

What leaves is compared with what a twin cuts, byte for byte, and put together again by scapy.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, IPOption_NOP
from scapy.layers.inet6 import IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from packets.pieces import cut, lengths, reassemble, sized
from packets.road import BURST, Road, port_settings, wait_until
from packets.table import Row, is_later_piece, l3_of
from packets.world import (
    BACKENDS,
    CLIENT,
    ELSEWHERE,
    GATEWAY_MAC,
    NODE_MAC,
    OVER4,
    OVER6,
    VIP,
    VIP6,
    WORLD,
    ether,
    outer,
    state,
    tcp,
)

MakeRoad = Callable[..., Road]
WAYS = {
    VIP: ("www", "web1", 24),
    OVER6: ("www over 6", "six1", 44),
    OVER4: ("www over 4", "web1", 24),
    VIP6: ("www6", "six1", 44),
}
TAGGED = b"\x81\x00\x00\x05"


def whole(packet: Packet, to: str, id: int = 0) -> bytes:
    """The frame that would leave if it were not too long: without DF, whatever is within."""
    backend = BACKENDS[WAYS[to][1]]
    return outer(packet, backend, **({} if ":" in backend else {"flags": "", "id": id}))


def in_pieces(description: str, packet: Packet, mtu: int, to: str = VIP) -> Row:
    service, backend, _ = WAYS[to]
    return Row(description, ether(packet), "hash_new", cut(whole(packet, to), mtu), service, backend)


def at_once(description: str, packet: Packet, to: str = VIP) -> Row:
    service, backend, _ = WAYS[to]
    return Row(description, ether(packet), "hash_new", outer(packet, BACKENDS[backend]), service, backend)


STEP4, STEP6 = 1480, 1448  # bytes of a full piece at an MTU of 1500
GRE_BYTES = 4

AT_1500 = [
    at_once("1476 bytes fit over IPv4", sized(1476)),
    in_pieces("one byte more does not", sized(1477), 1500),
    in_pieces("1500 bytes over IPv4", sized(1500), 1500),
    in_pieces("two full pieces", sized(2 * STEP4 - GRE_BYTES), 1500),
    in_pieces("two full pieces and a byte", sized(2 * STEP4 - GRE_BYTES + 1), 1500),
    in_pieces("two full pieces less a byte", sized(2 * STEP4 - GRE_BYTES - 1), 1500),
    in_pieces("9000 bytes over IPv4", sized(9000), 1500),
    in_pieces("the largest packet that the outer one can be", sized(65535 - 24), 1500),
    at_once("1456 bytes fit over IPv6", sized(1456, OVER6), OVER6),
    in_pieces("one byte more does not, IPv6", sized(1457, OVER6), 1500, OVER6),
    in_pieces("1500 bytes over IPv6", sized(1500, OVER6), 1500, OVER6),
    in_pieces("two full pieces, IPv6", sized(2 * STEP6 - GRE_BYTES, OVER6), 1500, OVER6),
    in_pieces("two full pieces and a byte, IPv6", sized(2 * STEP6 - GRE_BYTES + 1, OVER6), 1500, OVER6),
    in_pieces("9000 bytes over IPv6", sized(9000, OVER6), 1500, OVER6),
    in_pieces("the largest packet, IPv6", sized(65535 - 4, OVER6), 1500, OVER6),
    in_pieces("DSCP and ECN are on every piece", sized(3000, tos=0xBB), 1500),
    in_pieces("DSCP and ECN are on every piece, IPv6", sized(3000, OVER6, tos=0xBB), 1500, OVER6),
    in_pieces("options of the inner packet are its own", sized(1500, options=[IPOption_NOP()] * 40), 1500),
    in_pieces("TTL 1 goes on, also in pieces", sized(1500, ttl=1), 1500),
    in_pieces("the inner id is not the outer one", sized(1500, id=4242), 1500),
    in_pieces("a reserved flag of the inner packet", sized(1500, flags="evil"), 1500),
    Row("one byte beyond the largest packet", ether(sized(65535 - 23)), "too_big"),
    Row("one byte beyond the largest packet, IPv6", ether(sized(65535 - 3, OVER6)), "too_big"),
]


@pytest.mark.parametrize("row", AT_1500, ids=str)
def test_pieces(make_road: MakeRoad, row: Row) -> None:
    road = make_road(pool=8192)
    road.apply(WORLD)
    row.check(road)


@pytest.mark.parametrize(
    ("to", "length", "mtu"),
    [
        (OVER4, 1280, 1303),
        (OVER4, 1280, 1280),
        (OVER4, 1280, 576),
        (OVER4, 553, 576),
        (VIP6, 1280, 1323),
        (VIP6, 1280, 1280),
        (VIP6, 1237, 1280),
    ],
)
def test_an_ipv6_packet_that_every_link_must_carry_is_cut(
    make_road: MakeRoad, to: str, length: int, mtu: int
) -> None:
    """Its sender would not believe an error that asks for less than 1280 bytes (RFC 2473 7.1, RFC 4213 3.2)."""
    road = make_road(mtu=mtu)
    road.apply(WORLD)
    in_pieces("IPv6", sized(length, to), mtu, to).check(road)
    error = road.fates_of(bytes(ether(sized(1281, to))))
    assert error == {"too_big_reply": 1}


@pytest.mark.parametrize("mtu", [576, 577, 583, 584, 1280, 1499, 1501, 4000, 9000])
@pytest.mark.parametrize("length", [1500, 8999, 20000])
@pytest.mark.parametrize(("to", "least"), [(VIP, 576), (OVER6, 1280)])
def test_every_mtu(make_road: MakeRoad, mtu: int, length: int, to: str, least: int) -> None:
    """Pieces are full but for the last; a buffer of the packet may end anywhere in them."""
    mtu = max(mtu, least)
    road = make_road(mtu=mtu)
    road.apply(WORLD)
    fits = length + WAYS[to][2] <= mtu
    (at_once("whole", sized(length, to), to) if fits else in_pieces("cut", sized(length, to), mtu, to)).check(road)


def test_the_most_pieces_that_a_packet_can_have(make_road: MakeRoad) -> None:
    road = make_road(mtu=576)
    road.apply(WORLD)
    row = in_pieces("65535 bytes over 576", sized(65535 - 24), 576)
    assert isinstance(row.out, list)
    assert len(row.out) == 119
    row.check(road)


# -- read field by field, not by the twin


def test_the_pieces_as_an_ipv4_router_reads_them(road: Road) -> None:
    frames = road.send(bytes(ether(sized(4000, tos=0xBA))))
    ips = [Ether(frame)[IP] for frame in frames]
    assert [(p.frag * 8, p.len, int(p.flags)) for p in ips] == [(0, 1500, 1), (1480, 1500, 1), (2960, 1064, 0)]
    assert {(p.src, p.dst, p.proto, p.ttl, p.tos, p.id) for p in ips} == {("10.0.2.2", "10.0.3.2", 47, 64, 0xBA, 0)}
    for frame, ip in zip(frames, ips, strict=True):
        assert (Ether(frame).src, Ether(frame).dst, Ether(frame).type) == (NODE_MAC, GATEWAY_MAC, 0x0800)
        said = ip.chksum
        del ip.chksum
        assert IP(bytes(ip)).chksum == said


def test_the_pieces_as_an_ipv6_router_reads_them(road: Road) -> None:
    frames = road.send(*[bytes(ether(sized(4000, OVER6, tos=0xBA)))] * 2)
    seen = [Ether(frame) for frame in frames]
    heads = [(p[IPv6ExtHdrFragment].offset * 8, p[IPv6ExtHdrFragment].m, p.plen) for p in seen]
    assert heads == [(0, 1, 1456), (1448, 1, 1456), (2896, 0, 8 + 4004 - 2896)] * 2
    assert {(p.tc, p.hlim, p.nh, p[IPv6ExtHdrFragment].nh, p.type) for p in seen} == {(0xBA, 64, 44, 47, 0x86DD)}
    assert len({p.fl for p in seen}) == 1
    assert [p[IPv6ExtHdrFragment].id for p in seen] == [0, 0, 0, 1, 1, 1]


# -- layer 2


@pytest.mark.parametrize("to", [VIP, OVER6])
def test_every_piece_has_the_tags_of_its_packet(make_road: MakeRoad, to: str) -> None:
    road = make_road()
    road.apply(WORLD)
    service, backend, _ = WAYS[to]
    packet = sized(5000, to)
    frame = whole(packet, to)
    for tags, layers in (
        (TAGGED, Dot1Q(vlan=5)),
        (b"\x88\xa8\x00\x05\x81\x00\x60\x06", Dot1AD(vlan=5) / Dot1Q(vlan=6, prio=3)),
    ):
        fate = "hash_new" if tags == TAGGED else "conn_hit"
        pieces = road.dataplane.pieces
        assert pieces == (0 if tags == TAGGED else 3)
        expected = cut(frame[:12] + tags + frame[12:], 1500)
        if tags != TAGGED:  # the second packet, with an id of its own
            again = whole(packet, to, 1)
            expected = cut(again[:12] + tags + again[12:], 1500, 1)
        Row("tagged", ether(layers / packet), fate, expected, service, backend).check(road)


@pytest.mark.parametrize("to", [VIP, OVER6])
def test_a_tag_that_the_nic_took_off_is_put_back_on_every_piece(road: Road, to: str) -> None:
    road.ports[0].give(bytes(ether(sized(5000, to))), stripped=0x6005)
    road.given += 1
    road.step()
    frame = whole(sized(5000, to), to)
    assert road.take() == cut(frame[:12] + b"\x81\x00\x60\x05" + frame[12:], 1500)


def test_padding_is_cut_off_before_the_packet_is(make_road: MakeRoad) -> None:
    road = make_road(mtu=124)
    road.apply(WORLD)
    packet = sized(101)
    Row("padded", bytes(ether(packet)) + bytes(9), "hash_new", cut(whole(packet, VIP), 124), "www", "web1").check(
        road
    )


def test_the_mtu_is_that_of_the_port_by_which_it_leaves(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings(mtu=1400), port_settings(mtu=9000)])
    road.apply(WORLD)
    packet = sized(2000)
    expected = cut(whole(packet, VIP), 1400)
    Row("by 0", ether(packet), "hash_new", expected, "www", "web1", port=1, by=0).check(road)


# -- ids


def test_the_pieces_of_a_packet_share_an_id_that_no_other_packet_has(road: Road) -> None:
    packets = [sized(n) for n in (3000, 100, 3001, 1477)] + [tcp()]
    frames = road.send(*(bytes(ether(packet)) for packet in packets))
    ids = [Ether(frame)[IP].id for frame in frames]
    assert ids == [0, 0, 0, 1, 2, 2, 2, 3, 3, 0], "a packet with DF needs none (RFC 6864)"


@pytest.mark.parametrize("to", [VIP, OVER6])
def test_no_two_workers_use_the_same_id(make_road: MakeRoad, to: str) -> None:
    road = make_road(workers=3)
    road.apply(WORLD)
    frames = road.send(*(bytes(ether(sized(1500, to, sport))) for sport in range(1000, 1100)))
    got = [Ether(frame) for frame in frames]
    ids = [p[IPv6ExtHdrFragment].id if to == OVER6 else p[IP].id for p in got]
    assert len(frames) == 200
    assert len(set(ids)) == 100
    assert len({number % 4 for number in ids}) == 3
    assert road.dataplane.pieces == 100


# -- order, counters, other packets


def test_pieces_keep_their_place_among_the_packets_of_their_burst(road: Road) -> None:
    packets = [sized(100), sized(4000), sized(101), sized(8999), sized(1477), sized(102)]
    frames = road.send(*(bytes(ether(packet)) for packet in packets))
    expected = []
    for number, packet in enumerate(packets):
        frame = whole(packet, VIP, number)
        expected += cut(frame, 1500) if len(packet) > 1476 else [frame]
    assert [frame.hex() for frame in frames] == [frame.hex() for frame in expected]
    assert road.fates() == {"hash_new": 1, "conn_hit": 5}
    assert road.dataplane.pieces == len(frames) - 6


def test_a_burst_of_the_largest_packets(make_road: MakeRoad) -> None:
    """32 packets of 45 pieces each: far more than a burst has."""
    road = make_road(pool=16384, ring_size=2048)
    road.apply(WORLD)
    packets = [sized(65000 + n) for n in range(32)]
    frames = road.send(*(bytes(ether(packet)) for packet in packets))
    assert len(frames) == 32 * 44
    at = 0
    for number, packet in enumerate(packets):
        assert reassemble(frames[at : at + 44]) == whole(packet, VIP, number)
        at += 44


def test_an_icmp_error_without_df_is_cut(road: Road) -> None:
    quote = IP(src=VIP, dst=CLIENT) / TCP(sport=80, dport=41000) / bytes(1500)
    error = IP(src=ELSEWHERE, dst=VIP) / ICMP(type=3, code=1) / Raw(bytes(quote))
    expected = cut(outer(error, BACKENDS["web1"], id=0), 1500)
    Row("an error", ether(error), "icmp_error", expected, "www", "web1").check(road)


def test_a_canary_is_not_cut(road: Road) -> None:
    """It would come out in pieces that nobody looks for."""
    road.dataplane.inject(bytes(ether(sized(1477))), 0)
    road.step()
    collected = road.dataplane.collect()
    assert collected is not None
    assert collected[1] == "too_big_silent"
    assert road.dataplane.reasons()["too_big_silent"] == 0, "it is not counted among what came"
    assert (road.dataplane.pieces, road.pool.missing) == (0, 0)


def test_an_mtu_that_is_too_small_to_fragment_to(make_road: MakeRoad) -> None:
    """No configuration has it: less than 1280 for an IPv6 tunnel, or so small that a packet has too many pieces."""
    road = make_road(mtu=124)
    road.apply(WORLD)
    assert road.fate_of(bytes(ether(sized(1000, OVER6)))) == "too_big"
    assert road.fate_of(bytes(ether(sized(20000)))) == "too_big"
    assert road.dataplane.reasons()["too_big_pieces"] == 2
    assert road.pool.missing == 0


# -- not enough of something


def test_when_there_are_no_buffers_for_pieces(make_road: MakeRoad) -> None:
    """384 packets bring 97 pieces. What others hold comes back as they leave, and then it goes on."""
    road = make_road(pool=384, ring_size=128)
    road.apply(WORLD)
    assert road.pool.pieces == {"size": 97, "free": 97}
    big = bytes(ether(sized(9000)))  # 7 pieces
    for _ in range(16):
        assert road.give([big]) == 1
        road.step()
    assert road.fates() == {"hash_new": 1, "conn_hit": 12, "too_big": 3}
    assert road.dataplane.reasons()["too_big_buffers"] == 3
    assert road.pool.pieces == {"size": 97, "free": 6}
    assert road.fate_of(bytes(ether(sized(1000)))) == "conn_hit", "what needs no pieces goes through"
    assert len(road.take()) == 0, "taken by the line before"
    road.step()
    assert road.pool.missing == 0
    assert road.fate_of(big) == "conn_hit"


def test_when_there_are_no_references_to_what_was_cut(make_road: MakeRoad) -> None:
    """At a large MTU a piece lies in many buffers of 2 KB, and each needs one."""
    road = make_road(mtu=9000, pool=512, ring_size=128)
    road.apply(WORLD)
    for _ in range(8):
        assert road.give([bytes(ether(sized(65000)))]) == 1
        road.step()
    reasons = road.dataplane.reasons()
    assert reasons["too_big_buffers"] > 0
    assert reasons["too_big_buffers"] + reasons["new_flow"] + reasons["known_flow"] == 8
    assert road.pool.pieces["free"] > 60, "of headers there are enough"


def test_more_pieces_than_the_ring_behind_the_worker_has_room_for(make_road: MakeRoad) -> None:
    """None of them goes, and the packet has one fate."""
    road = make_road(mtu=576, ring_size=64)
    road.apply(WORLD)
    room, reason = {"software": (63, "muxing_full"), "rss": (64, "transmit_full")}[road.layout]
    assert road.fate_of(bytes(ether(sized(room * 552 - 4)))) == "hash_new"
    assert road.fate_of(bytes(ether(sized(room * 552 - 3)))) == "transmit_full"
    assert road.dataplane.reasons()[reason] == 1
    assert road.dataplane.pieces == room - 1
    assert road.fate_of(bytes(ether(sized(100)))) == "conn_hit"


@pytest.mark.parametrize("room", range(8))
def test_a_transmit_ring_with_room_for_some_of_the_pieces(make_road: MakeRoad, room: int) -> None:
    """The packet is lost, and has the one fate that says so; a piece that was placed leaves all the same.

    A worker that places them itself places none then.
    """
    road = make_road(ring_size=64)
    road.apply(WORLD)
    for _ in range(64 - room):
        assert road.give([bytes(ether(sized(100)))]) == 1
        road.step()
    before = road.dataplane.fates()
    assert road.give([bytes(ether(sized(9000)))]) == 1  # 7 pieces
    road.step()
    after = road.dataplane.fates()
    changed = {fate: after[fate] - before[fate] for fate in after if after[fate] != before[fate]}
    assert changed == ({"conn_hit": 1} if room >= 7 else {"transmit_full": 1})
    placed = min(room, 7) if road.layout == "software" or room >= 7 else 0
    assert road.dataplane.pieces == min(placed, 6)
    assert len(road.take()) == 64 - room + placed
    assert road.fate_of(bytes(ether(sized(9000)))) == "conn_hit", "nothing of it stays behind"


@pytest.mark.layout("software")
def test_a_piece_that_is_lost_takes_the_rest_along_although_room_is_made(make_road: MakeRoad) -> None:
    """45 pieces are two bursts of muxing; between them the port gives everything back."""
    road = make_road(ring_size=64)
    road.apply(WORLD)
    for _ in range(60):
        assert road.give([bytes(ether(sized(100)))]) == 1
        road.step()
    assert road.give([bytes(ether(sized(65000)))]) == 1  # 44 pieces
    road.dataplane.step(road.now)
    assert len(road.take()) == 64
    road.step()
    assert road.take() == []
    assert road.dataplane.reasons()["transmit_full"] == 1
    assert road.dataplane.pieces == 4
    assert road.fate_of(bytes(ether(sized(9000)))) == "conn_hit"


def test_a_port_that_takes_a_part_gets_the_rest_later(make_road: MakeRoad) -> None:
    """A memory port holds 4095 frames; what it does not take waits in the transmit ring, in order."""
    road = make_road(pool=20000, ring_size=8192)
    road.apply(WORLD)
    packets = [sized(9000 + n) for n in range(600)]  # 4200 pieces
    for packet in packets:
        assert road.give([bytes(ether(packet))]) == 1
        road.dataplane.step(road.now)
    assert sum(road.fates().values()) == 585
    frames = road.take()
    assert len(frames) == 4095
    road.step()
    frames += road.take()
    assert len(frames) == 4200
    for number, packet in enumerate(packets):
        assert reassemble(frames[7 * number : 7 * number + 7]) == whole(packet, VIP, number)


@pytest.mark.parametrize("length", [1500, 9000])
def test_credit_is_right_however_much_was_cut(make_road: MakeRoad, length: int) -> None:
    """Far more pieces than the pool has packets: too little credit would end the receiving, too much would drop."""
    road = make_road(pool=512, ring_size=64)
    road.apply(WORLD)
    big = bytes(ether(sized(length)))
    for _ in range(400):
        assert road.give([big] * 8) == 8
        road.step()
        road.take()
    assert road.dataplane.received == 3200
    assert road.fates() == {"hash_new": 1, "conn_hit": 3199}
    road.step()
    receive = road.dataplane.rings(0)["receive"]
    credit = 64 if road.layout == "software" else BURST
    assert receive["reserved"] == receive["received"] + credit, "all credit is back"


def test_pieces_in_a_port_outlive_the_data_plane(layout: str) -> None:
    """The port is closed after it; only then its buffers come back."""
    road = Road(layout=layout)
    road.apply(WORLD)
    assert road.give([bytes(ether(sized(9000)))]) == 1
    road.step()
    frames = [road.ports[0].take()]
    road.dataplane.close()
    frames += [road.ports[0].take() for _ in range(3)]
    assert all(frame is not None for frame in frames)
    assert road.pool.missing > 0
    road.close()


def test_pieces_anywhere_on_the_road_come_back_when_it_is_closed(layout: str) -> None:
    road = Road(ring_size=64, layout=layout)
    road.apply(WORLD)
    for _ in range(30):
        road.give([bytes(ether(sized(9000)))] * 3)
        road.dataplane.step(road.now)
    assert road.pool.missing > 0
    road.close()


# -- on lcores


@pytest.mark.parametrize("workers", [1, 3])
def test_cut_by_running_stages(make_road: MakeRoad, workers: int) -> None:
    road = make_road(workers=workers, pool=8192)
    road.apply(WORLD)
    road.start()
    packets = {(to, sport): sized(1400 + sport, to, sport) for to in (VIP, OVER6) for sport in range(1000, 1300)}
    frames = []
    waiting = [bytes(ether(packet)) for packet in packets.values()]
    for at in range(0, len(waiting), 20):
        assert road.give(waiting[at : at + 20]) == 20
        frames += road.take_all()
    assert road.fates() == {"hash_new": 600}
    wait_until(lambda: road.pool.missing == 0, "every piece is back")
    by_id: dict[tuple[bytes, bytes], list[bytes]] = {}
    for frame in frames:
        four = frame[12:14] == b"\x08\x00"
        by_id.setdefault((frame[12:14], frame[18:20] if four else frame[58:62]), []).append(frame)
    assert len(by_id) == 600
    inner = {bytes(packet) for packet in packets.values()}
    for parts in by_id.values():
        again = reassemble(parts)
        assert again[38 if again[12:14] == b"\x08\x00" else 58 :] in inner


# -- anything at all

TAGS = st.sampled_from([b"", TAGGED, b"\x88\xa8\x00\x05" + TAGGED])


@settings(max_examples=60, deadline=None, database=None)
@given(
    to=st.sampled_from([VIP, OVER6, OVER4, VIP6]),
    mtu=st.integers(576, 9216),
    length=st.integers(60, 20000),
    options=st.integers(0, 10),
    tags=TAGS,
    class_=st.integers(0, 255),
)
def test_what_is_cut_can_be_put_together_again(
    to: str, mtu: int, length: int, options: int, tags: bytes, class_: int
) -> None:
    """Nothing is longer than the MTU, all but the last are full, and together they are the packet as it was."""
    over_ipv6 = WAYS[to][2] == 44
    if over_ipv6:
        mtu = max(mtu, 1280)
    if ":" in to:
        packet = sized(min(length, 1280), to, tc=class_)
    else:
        packet = sized(max(length, 60 + 4 * options), to, tos=class_, options=[IPOption_NOP()] * 4 * options)
    road = Road(mtu=mtu, pool=2048)
    try:
        road.apply(state(BACKENDS, *WORLD["vips"]))
        sent = bytes(ether(packet))
        frames = road.send(sent[:12] + tags + sent[12:])
        fits = len(packet) + WAYS[to][2] <= mtu
        frame = outer(packet, BACKENDS[WAYS[to][1]]) if fits else whole(packet, to)
        expected = frame[:12] + tags + frame[12:]
        assert (len(frames) == 1) == fits
        assert (frames[0] if fits else reassemble(frames)) == expected
        assert max(lengths(frames)) <= mtu
        assert all(length > mtu - 8 for length in lengths(frames)[:-1])
        assert [is_later_piece(frame) for frame in frames] == [False] + [True] * (len(frames) - 1)
        assert {l3_of(frame) for frame in frames} == {14 + len(tags)}
        road.verify()
    finally:
        road.close()
