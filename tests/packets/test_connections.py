"""Flows keep their backend for as long as they live, and no longer. The clock is stepped, in seconds."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from scapy.packet import Packet

from forwarder._dataplane import State
from packets.road import Road
from packets.world import (
    ANY_PORT,
    EMPTY,
    TUNNEL,
    VIP,
    backend_address,
    ether,
    flow,
    member,
    outer,
    state,
    tcp,
    udp,
    vip,
)

HALF_OPEN, ESTABLISHED, CLOSING, DATAGRAM = 10, 7200, 10, 60

TWO = {"b1": "10.0.3.2", "b2": "10.0.4.2"}
NAMES = {address: name for name, address in TWO.items()} | {"10.0.5.2": "b3"}


def serve(road: Road, first: str = "up", second: str = "up", protocol: str = "tcp") -> None:
    """The vip with backends b1 and b2, each up, drain or down."""
    road.apply(state(TWO, vip("www", VIP, [member("b1", 100, first), member("b2", 100, second)], protocol)))


def only(road: Road, name: str, protocol: str = "tcp") -> None:
    """Only one of the two takes new flows; the other drains."""
    serve(road, "up" if name == "b1" else "drain", "up" if name == "b2" else "drain", protocol)


def send(road: Road, packet: Packet | bytes) -> tuple[str, str | None]:
    """(fate, backend) of one packet."""
    frame = packet if isinstance(packet, bytes) else bytes(ether(packet))
    before = road.dataplane.fates()
    out = road.send(frame)
    (fate,) = [name for name, n in road.dataplane.fates().items() if n != before[name]]
    return fate, NAMES[backend_address(out[0])] if out else None


# -- timers


@pytest.mark.parametrize(
    ("packets", "protocol", "timer"),
    [
        ([tcp()], "tcp", HALF_OPEN),
        ([tcp(flags="A")], "tcp", HALF_OPEN),
        ([tcp(), tcp()], "tcp", HALF_OPEN),
        ([tcp(flags="FA")], "tcp", CLOSING),
        ([udp(dport=80)], "udp", DATAGRAM),
        ([udp(dport=80)] * 3, "udp", DATAGRAM),
    ],
    ids=["SYN", "ACK", "SYN twice in a second", "FIN", "UDP", "UDP three times"],
)
def test_an_entry_lives_its_timer_and_not_a_second_longer(
    road: Road, packets: list[Packet], protocol: str, timer: int
) -> None:
    serve(road, protocol=protocol)
    for packet in packets:
        send(road, packet)
    assert road.connections() == 1
    road.now += timer
    assert road.connections() == 1
    road.now += 1
    assert road.connections() == 0
    assert send(road, packets[0])[0] == "hash_new"


def test_syn_then_ack_a_tick_later_is_kept_by_the_long_timer(road: Road) -> None:
    serve(road)
    send(road, tcp())
    road.now += 1
    assert send(road, tcp(flags="A"))[0] == "conn_hit"
    road.now += ESTABLISHED
    assert road.connections() == 1
    assert send(road, tcp(flags="A"))[0] == "conn_hit"
    road.now += ESTABLISHED + 1
    assert send(road, tcp(flags="A"))[0] == "hash_new"


def test_an_ack_in_the_same_tick_does_not_make_it_established(road: Road) -> None:
    """So that neither a SYN flood nor an ACK flood, whose packets come at once, makes long entries."""
    serve(road)
    for flags in ("S", "A", "A", "PA"):
        send(road, tcp(flags=flags))
    road.now += HALF_OPEN + 1
    assert road.connections() == 0


def test_repeated_syns_never_make_it_established(road: Road) -> None:
    serve(road)
    for _ in range(20):
        send(road, tcp())
        road.now += 5
    road.now += HALF_OPEN - 4
    assert road.connections() == 0


def test_every_packet_renews_the_timer(road: Road) -> None:
    serve(road, protocol="udp")
    send(road, udp(dport=80))
    for _ in range(10):
        road.now += DATAGRAM
        assert send(road, udp(dport=80))[0] == "conn_hit"


@pytest.mark.parametrize("flags", ["FA", "R", "RA"])
def test_an_established_flow_that_ends_has_the_short_timer(road: Road, flags: str) -> None:
    serve(road)
    send(road, tcp())
    road.now += 1
    send(road, tcp(flags="A"))
    assert send(road, tcp(flags=flags))[0] == "conn_hit"
    road.now += CLOSING
    assert send(road, tcp(flags="A"))[0] == "conn_hit", "the last ACK still reaches its backend"
    road.now += CLOSING + 1
    assert road.connections() == 0


@pytest.mark.parametrize("seconds", [(1, 1, 1, 1), (86400, 86400, 86400, 86400)])
def test_timers_from_a_second_to_a_day(make_road: Callable[..., Road], seconds: tuple[int, int, int, int]) -> None:
    road = make_road(seconds=seconds)
    serve(road)
    send(road, tcp())
    road.now += seconds[0]
    assert road.connections() == 1
    road.now += 1
    assert road.connections() == 0


# -- one flow, one backend


def test_a_closing_flows_syn_is_a_new_flow(road: Road) -> None:
    """Tuple T on b1, FIN, b1 drained, SYN on T: not b1."""
    only(road, "b1")
    assert send(road, tcp()) == ("hash_new", "b1")
    assert send(road, tcp(flags="FA")) == ("conn_hit", "b1")
    only(road, "b2")
    assert send(road, tcp(flags="A")) == ("conn_hit", "b1")
    assert send(road, tcp()) == ("hash_new", "b2")
    assert send(road, tcp(flags="A")) == ("conn_hit", "b2")


def test_a_syn_on_a_living_flow_is_the_same_flow(road: Road) -> None:
    only(road, "b1")
    assert send(road, tcp()) == ("hash_new", "b1")
    road.now += 1
    assert send(road, tcp(flags="A")) == ("conn_hit", "b1")
    only(road, "b2")
    assert send(road, tcp()) == ("conn_hit", "b1")


def test_syn_with_rst_on_a_closing_flow_starts_nothing(road: Road) -> None:
    only(road, "b1")
    send(road, tcp())
    send(road, tcp(flags="FA"))
    only(road, "b2")
    assert send(road, tcp(flags="SR")) == ("conn_hit", "b1")


def test_rst_makes_no_entry(road: Road) -> None:
    serve(road)
    for number in range(100):
        assert send(road, flow(number, flags="R"))[0] == "hash_untracked"
    assert road.connections() == 0
    assert road.dataplane.worker(0)["inserted"] == 0


def test_flows_with_equal_ports_of_two_vips_are_two(road: Road) -> None:
    road.apply(state(TWO, vip("a", VIP, ["b1"]), vip("b", ANY_PORT, ["b2"])))
    assert send(road, flow(1, VIP)) == ("hash_new", "b1")
    assert send(road, flow(1, ANY_PORT)) == ("hash_new", "b2")
    assert road.connections() == 2


def test_a_more_specific_vip_takes_over_its_ports_flows(road: Road) -> None:
    """The entry is of the vip of any port; it never decides for another service."""
    road.apply(state(TWO, vip("any", VIP, ["b1"], port=0)))
    assert send(road, tcp()) == ("hash_new", "b1")
    road.apply(state(TWO, vip("any", VIP, ["b1"], port=0), vip("web", VIP, ["b2"])))
    assert send(road, tcp(flags="A")) == ("hash_new", "b2")


def test_an_entry_of_one_vip_is_none_of_another_with_the_same_backend(road: Road) -> None:
    """The vip is part of the match, so that a colliding tag cannot cross services."""
    road.apply(state(TWO, vip("any", VIP, ["b1"], port=0)))
    assert send(road, tcp()) == ("hash_new", "b1")
    road.apply(state(TWO, vip("any", VIP, ["b1"], port=0), vip("web", VIP, ["b1"])))
    assert send(road, tcp(flags="A")) == ("hash_new", "b1")
    assert road.connections() == 2


def test_an_entry_of_another_generation_is_not_used(road: Road) -> None:
    """A number that another backend got: the entry stays, its generation is the former one's."""
    table = array("H", [0] * 7)
    vips = [(0, ip_address(VIP).packed, 6, 80, False, table, [0])]
    for generation, fate in ((1, "hash_new"), (1, "conn_hit"), (2, "hash_new"), (2, "conn_hit"), (4095, "hash_new")):
        backend = (0, generation, 1, ip_address("10.0.3.2").packed, ip_address(TUNNEL).packed)
        road.dataplane.publish(State(vips, [backend]))
        assert send(road, tcp()) == (fate, "b1"), generation


# -- backends that go


def test_udp_moves_when_its_backend_goes_down(road: Road) -> None:
    """A steady flow on one tuple: moved with the state, and nothing else is lost."""
    serve(road, protocol="udp")
    _, home = send(road, udp(dport=80))
    other = {"b1": "b2", "b2": "b1"}[home or ""]
    for _ in range(10):
        assert send(road, udp(dport=80)) == ("conn_hit", home)
    serve(road, *(("down", "up") if home == "b1" else ("up", "down")), protocol="udp")
    assert send(road, udp(dport=80)) == ("hash_new", other)
    assert send(road, udp(dport=80)) == ("conn_hit", other)
    serve(road, protocol="udp")
    assert send(road, udp(dport=80)) == ("conn_hit", other), "a backend that comes back does not take flows away"
    assert road.connections() == 1


def test_a_tcp_flow_whose_backend_is_down_is_decided_anew(road: Road) -> None:
    only(road, "b1")
    send(road, tcp())
    serve(road, "down", "up")
    assert send(road, tcp(flags="A")) == ("hash_new", "b2")


def test_all_drained_keeps_old_flows_and_takes_no_new_one(road: Road) -> None:
    serve(road)
    homes = {i: send(road, flow(i))[1] for i in range(50)}
    serve(road, "drain", "drain")
    for i, home in homes.items():
        assert send(road, flow(i, flags="A")) == ("conn_hit", home)
    assert {send(road, flow(i))[0] for i in range(50, 100)} == {"no_backend"}
    serve(road)
    assert {send(road, flow(i))[0] for i in range(50, 100)} == {"hash_new"}


def test_all_down_ends_everything(road: Road) -> None:
    serve(road)
    send(road, tcp())
    serve(road, "down", "down")
    assert send(road, tcp(flags="A"))[0] == "no_backend"


def test_a_removed_backend_keeps_its_flows_until_they_end(road: Road) -> None:
    only(road, "b1")
    assert send(road, tcp()) == ("hash_new", "b1")
    only_b2 = state({"b2": TWO["b2"]}, vip("www", VIP, ["b2"]))
    road.apply(only_b2)
    road.apply(only_b2)
    road.forwarding.reap()
    assert send(road, tcp(flags="A")) == ("conn_hit", "b1")
    assert send(road, flow(1)) == ("hash_new", "b2")
    road.now += 1
    assert send(road, tcp(flags="A")) == ("conn_hit", "b1")
    assert send(road, tcp(flags="FA")) == ("conn_hit", "b1")
    road.now += CLOSING + 1
    assert send(road, tcp(flags="A")) == ("hash_new", "b2")


def test_a_removed_vip_ends_and_comes_back_without_its_old_flows(road: Road) -> None:
    road.apply(state(TWO, vip("www", VIP, ["b1"]), vip("api", ANY_PORT, ["b2"])))
    assert send(road, tcp()) == ("hash_new", "b1")
    road.apply(state(TWO, vip("api", ANY_PORT, ["b2"])))
    assert send(road, tcp(flags="A"))[0] == "not_vip"
    road.apply(state(TWO, vip("www", VIP, ["b2"]), vip("api", ANY_PORT, ["b2"])))
    assert send(road, tcp(flags="A")) == ("hash_new", "b2")


def test_a_vip_that_takes_the_place_of_another_inherits_nothing(road: Road) -> None:
    """Neither its flows nor its counters, whatever number it has."""
    road.apply(state(TWO, vip("old", VIP, ["b1"])))
    road.send(*map(flow, range(20)))
    road.apply(state(TWO, vip("new", EMPTY, ["b2"])))
    assert road.forwarding.traffic()[0]["new"] == {"packets": 0, "bytes": 0, "flows": 0}
    assert send(road, flow(0, EMPTY)) == ("hash_new", "b2")
    road.now += HALF_OPEN + 1
    road.step()
    road.apply(state(TWO, vip("third", ANY_PORT, ["b1"])))
    assert send(road, flow(0, ANY_PORT)) == ("hash_new", "b1")
    assert road.forwarding.traffic()[0]["third"]["packets"] == 1


def test_a_reused_name_never_inherits(road: Road) -> None:
    """b1 leaves and comes back with another address: another backend."""
    road.apply(state({"b1": "10.0.3.2"}, vip("www", VIP, ["b1"])))
    assert send(road, tcp()) == ("hash_new", "b1")
    road.apply(state({"b1": "10.0.4.2"}, vip("www", VIP, ["b1"])))
    assert send(road, flow(1)) == ("hash_new", "b2"), "the new address takes the new flows"
    assert send(road, tcp(flags="A")) == ("conn_hit", "b1"), "the old address keeps its own"


def test_a_reused_address_never_inherits(road: Road) -> None:
    """Another name with the address of a backend that is down: the flow is decided anew, and counted for it."""
    road.apply(state({"old": "10.0.3.2"}, vip("www", VIP, ["old"])))
    send(road, tcp())
    road.apply(state({"old": "10.0.3.2"}, vip("www", VIP, [member("old", 100, "down")])))
    road.apply(state({"new": "10.0.3.2"}, vip("www", VIP, ["new"])))
    assert send(road, tcp(flags="A"))[0] == "hash_new"
    assert road.forwarding.traffic()[1]["new"]["packets"] == 1


def test_a_number_that_is_used_again_never_inherits(road: Road) -> None:
    """A hundred backends come and go; the flow of each stays with it as it leaves, and ends with it."""
    for number in range(100):
        name, address = f"n{number}", f"10.1.{number}.2"
        road.apply(state({name: address}, vip("www", VIP, [name])))
        (out,) = road.send(flow(number))
        assert backend_address(out) == address
        for old in range(number):
            (out,) = road.send(flow(old, flags="A"))
            assert backend_address(out) == address, "the flow of a backend that was flushed is the next one's"
        following = f"10.1.{number + 1}.2"
        road.apply(state({f"n{number + 1}": following}, vip("www", VIP, [f"n{number + 1}"])))
        (out,) = road.send(flow(number, flags="A"))
        assert backend_address(out) == address, "it drains"
        assert road.forwarding.flush(name)
        road.forwarding.reap()
    assert len(road.forwarding.traffic()[1]) < 5, "numbers were given back"


def test_flush_ends_the_flows_of_one_backend(road: Road) -> None:
    serve(road)
    homes = {i: send(road, flow(i))[1] for i in range(100)}
    serve(road, "drain", "up")
    assert road.forwarding.flush("b1")
    assert road.forwarding.traffic()[1]["b1"]["flows"] == 0
    for i, home in homes.items():
        assert send(road, flow(i, flags="A")) == (("hash_new", "b2") if home == "b1" else ("conn_hit", "b2"))


def test_flush_reaches_a_backend_that_was_removed_already(road: Road) -> None:
    only(road, "b1")
    send(road, tcp())
    road.apply(state({"b2": TWO["b2"]}, vip("www", VIP, ["b2"])))
    assert send(road, tcp(flags="A")) == ("conn_hit", "b1")
    assert road.forwarding.flush("b1")
    assert send(road, tcp(flags="A")) == ("hash_new", "b2")
    road.forwarding.reap()
    assert not road.forwarding.flush("b1"), "it is gone"


def test_flush_of_the_node_forgets_every_flow(road: Road) -> None:
    serve(road)
    for i in range(100):
        send(road, flow(i))
    assert road.forwarding.flush(None)
    assert road.connections() == 0
    assert send(road, flow(0, flags="A"))[0] == "hash_new"


def test_flush_of_nobody_changes_nothing(road: Road) -> None:
    serve(road)
    send(road, tcp())
    assert not road.forwarding.flush("b9")
    assert road.connections() == 1


# -- a full table


def random_syns(seed: int, count: int) -> list[bytes]:
    """SYNs of random clients, from a template: 198.18.0.0/15, any port."""
    dice = random.Random(seed)
    template = bytes(ether(tcp(src="198.18.0.0")))
    frames = []
    for _ in range(count):
        address = (198 << 24 | 18 << 16) + dice.getrandbits(17)
        frame = bytearray(template)
        frame[26:30] = address.to_bytes(4, "big")
        frame[34:36] = dice.getrandbits(16).to_bytes(2, "big")
        frame[24:26] = b"\0\0"
        total = sum(int.from_bytes(frame[at : at + 2], "big") for at in range(14, 34, 2))
        total = (total & 0xFFFF) + (total >> 16)
        frame[24:26] = (~(total + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
        frames.append(bytes(frame))
    return frames


def established(road: Road, count: int) -> dict[int, str | None]:
    """Flows with a handshake behind them, and their backends."""
    homes = {i: send(road, flow(i))[1] for i in range(count)}
    road.now += 1
    for i in homes:
        assert send(road, flow(i, flags="A"))[0] == "conn_hit"
    return homes


def test_a_syn_flood_never_evicts_an_established_flow(make_road: Callable[..., Road]) -> None:
    """A table of 1000, 100 live flows, 16 000 random SYNs: nobody is misrouted, what is not tracked is counted."""
    road = make_road(connections=1000)
    serve(road)
    homes = established(road, 100)
    fates = road.fates_of(*random_syns(1, 16000))
    assert set(fates) <= {"hash_new", "hash_untracked", "conn_hit"}
    assert sum(fates.values()) == 16000
    for i, home in homes.items():
        assert send(road, flow(i, flags="A")) == ("conn_hit", home)
    worker = road.dataplane.worker(0)
    assert worker["live"] <= worker["entries"] == 1000
    assert worker["evicted"] > 0


def test_after_the_flood_the_table_is_empty_again(make_road: Callable[..., Road]) -> None:
    road = make_road(connections=1000)
    serve(road)
    homes = established(road, 100)
    road.send(*random_syns(2, 4000))
    for _ in range(HALF_OPEN + 61):  # a round of the sweep takes a minute
        road.now += 1
        road.step()
        road.dataplane.step(road.now)
    assert road.dataplane.worker(0)["live"] == road.connections() == len(homes)


def test_a_table_full_of_established_flows_refuses_and_still_forwards(make_road: Callable[..., Road]) -> None:
    road = make_road(connections=10)
    serve(road)
    for i in range(200):
        send(road, flow(i))
        road.now += 1
        send(road, flow(i, flags="A"))
    assert road.connections() == 10
    fate, backend = send(road, flow(999))
    assert (fate, backend in TWO) == ("hash_untracked", True)
    assert send(road, flow(999, flags="A")) == ("hash_untracked", backend), "by the table, so always the same"


def test_an_expired_entry_goes_before_a_half_open_one(make_road: Callable[..., Road]) -> None:
    road = make_road(connections=5)  # one bucket
    serve(road)
    send(road, flow(0))
    road.now += HALF_OPEN + 1
    for i in range(1, 6):
        assert send(road, flow(i))[0] == "hash_new"
    assert road.dataplane.worker(0)["evicted"] == 0
    assert {send(road, flow(i, flags="A"))[0] for i in range(1, 6)} == {"conn_hit"}


def test_no_flow_takes_the_place_of_an_established_one(make_road: Callable[..., Road]) -> None:
    """Five established flows fill the only bucket; no SYN, ACK or FIN gets in."""
    road = make_road(connections=5)
    serve(road)
    homes = established(road, 5)
    for flags in ("S", "A", "FA"):
        assert send(road, flow(9, flags=flags))[0] == "hash_untracked"
    assert {i: send(road, flow(i, flags="A")) for i in homes} == {i: ("conn_hit", homes[i]) for i in homes}


def test_a_flood_on_one_vip_leaves_room_for_the_others(make_road: Callable[..., Road]) -> None:
    """Past three quarters full, a vip above its fair share of the table makes no new entries."""
    road = make_road(connections=1000)
    road.apply(state(TWO, vip("www", VIP, ["b1"]), vip("api", ANY_PORT, ["b2"])))
    flood = random_syns(3, 4000)
    assert road.fates_of(*flood)["hash_untracked"] > 2000
    assert road.dataplane.worker(0)["live"] <= 800
    quiet = road.fates_of(*(flow(i, ANY_PORT) for i in range(200)))
    assert quiet.get("hash_new", 0) == 200


def test_counters_of_flows_follow_the_table(road: Road) -> None:
    serve(road)
    homes = [send(road, flow(i))[1] for i in range(60)]
    vips, backends = road.forwarding.traffic()
    assert vips["www"]["flows"] == 60
    assert {name: backends[name]["flows"] for name in TWO} == {name: homes.count(name) for name in TWO}
    length = len(bytes(tcp()))
    assert vips["www"]["bytes"] == 60 * length
    assert road.dataplane.worker(0)["live"] == 60


def test_the_same_flow_over_two_workers_keeps_its_entry(make_road: Callable[..., Road]) -> None:
    road = make_road(workers=3)
    serve(road)
    for i in range(200):
        road.send(flow(i))
    assert {send(road, flow(i, flags="A"))[0] for i in range(200)} == {"conn_hit"}
    live = [road.dataplane.worker(i)["live"] for i in range(3)]
    assert sum(live) == 200
    assert min(live) > 30, "every worker has its part"


def test_frames_of_a_flow_come_out_in_order(road: Road) -> None:
    serve(road)
    packets = [tcp(flags="PA", payload=bytes([i])) for i in range(200)]
    to = backend_address(road.send(bytes(ether(tcp())))[0])
    assert road.send(*(bytes(ether(p)) for p in packets)) == [outer(p, to) for p in packets]
