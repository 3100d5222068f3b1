"""The real stages on lcores: started and stopped, overrun, published to under load, and refused what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import pytest
from scapy.layers.inet import ICMP, IP, TCP

from forwarder._dataplane import FATE_KINDS, DataplaneError, State
from packets.road import BURST, Road, port_settings, wait_until
from packets.world import (
    BACKENDS,
    EMPTY,
    VIP,
    WORLD,
    backend_address,
    ether,
    flow,
    outer,
    state,
    tcp,
    udp,
    vip,
)

MakeRoad = Callable[..., Road]
FLOWS = 300
THREE = {f"b{i}": f"10.0.{i}.2" for i in (1, 2, 3)}
SERVICE = state(THREE, vip("www", VIP, THREE))
PORT_FRAMES = 4095  # a memory port holds so many frames that nobody took


def started(make_road: MakeRoad, **options: object) -> Road:
    road = make_road(**options)
    road.apply(SERVICE)
    road.start()
    return road


def keep_up(road: Road, frames: Iterable[bytes]) -> list[bytes]:
    """Give frames no faster than they go through, however slow that is here; returns what came out."""
    out: list[bytes] = []
    waiting = list(frames)
    for at in range(0, len(waiting), 128):
        batch = waiting[at : at + 128]
        assert road.give(batch) == len(batch)
        out += road.take_all()
    return out


def forwarded(road: Road) -> int:
    return sum(n for fate, n in road.fates().items() if FATE_KINDS[fate] == "forwarded")


# -- what runs


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_flow_stays_with_one_worker(make_road: MakeRoad, workers: int) -> None:
    """Each worker has its own connection table: a flow that met another worker would be new there."""
    road = started(make_road, workers=workers)
    out = keep_up(road, [flow(i) for i in range(FLOWS)])
    out += keep_up(road, [flow(i, flags="A") for _ in range(9) for i in range(FLOWS)])
    assert len(out) == 10 * FLOWS
    assert road.fates() == {"hash_new": FLOWS, "conn_hit": 9 * FLOWS}
    live = [road.dataplane.worker(i)["live"] for i in range(workers)]
    assert sum(live) == FLOWS
    assert min(live) > FLOWS / workers / 2, "every worker has its part"
    homes: dict[bytes, set[str]] = {}
    for frame in out:
        homes.setdefault(frame[58:60], set()).add(backend_address(frame))
    assert len(homes) == FLOWS
    assert {len(to) for to in homes.values()} == {1}


@pytest.mark.parametrize("idle", ["spin", "yield", "sleep"])
def test_idle_stages_turn_and_wake(make_road: MakeRoad, idle: str) -> None:
    """Every lcore's loop counter moves while nothing comes, and what comes then goes through."""
    road = started(make_road, idle=idle)
    for _ in range(3):
        before = {(stage, index): turns for stage, index, turns in road.dataplane.turns()}
        wait_until(
            lambda was=before: all(turns > was[stage, index] + 20 for stage, index, turns in road.dataplane.turns()),
            "all stages turn",
        )
        assert len(keep_up(road, [flow(i) for i in range(50)])) == 50


def test_the_stages_are_named_in_order(make_road: MakeRoad) -> None:
    road = started(make_road, workers=2)
    named = [(stage, index) for stage, index, _ in road.dataplane.turns()]
    workers = [("worker", 0), ("worker", 1)]
    assert named == {"software": [("steering", 0), *workers, ("muxing", 0)], "rss": workers}[road.layout]


def test_stopped_and_started_again_the_flows_are_still_known(make_road: MakeRoad) -> None:
    road = started(make_road, workers=2)
    keep_up(road, [flow(i) for i in range(100)])
    for _ in range(5):
        road.stop()
        turns = road.dataplane.turns()
        assert road.give([flow(0, flags="A")]) == 1
        time.sleep(0.005)
        assert road.dataplane.turns() == turns
        road.start()
        keep_up(road, [flow(i, flags="A") for i in range(1, 100)])
    assert road.fates() == {"hash_new": 100, "conn_hit": 500}


def test_stopping_in_the_middle_loses_nothing(make_road: MakeRoad) -> None:
    """What is on the road stays there, and goes on when the stages do."""
    road = started(make_road, workers=2)
    for _ in range(20):
        road.give(flow(i) for i in range(100))
        road.stop()
        road.take()
        road.start()
        road.take_all()
    assert forwarded(road) == road.given == 2000


def test_a_state_without_workers_running_is_there_when_they_start(make_road: MakeRoad) -> None:
    road = make_road()
    road.start()
    assert keep_up(road, [flow(1)]) == []
    road.stop()
    road.apply(SERVICE)
    road.start()
    assert len(keep_up(road, [flow(1)])) == 1


def test_200_states_under_load_lose_nothing(make_road: MakeRoad) -> None:
    """Backends come and go, tables change, old states are freed: every packet finds a backend of its vip."""
    road = started(make_road, workers=2)
    pairs = [("b1", "b2"), ("b2", "b3"), ("b3", "b1")]
    allowed = set(THREE.values())
    out: list[bytes] = []
    for number in range(200):
        names = pairs[number % 3]
        road.give(flow(i) for i in range(number % 50, number % 50 + 20))
        road.apply(state(THREE, vip("www", VIP, names), vip(f"v{number}", EMPTY, names)))
        road.give(flow(i, flags="A") for i in range(10))
        out += road.take_all()
    assert len(out) == road.given == 6000
    assert {backend_address(frame) for frame in out} == allowed
    assert set(road.fates()) <= {"hash_new", "conn_hit"}


def test_states_are_published_while_another_thread_sends(make_road: MakeRoad) -> None:
    """The control thread waits in publish() without the GIL, so traffic goes on."""
    road = started(make_road, workers=2)
    ended = threading.Event()

    def publish() -> None:
        for number in range(200):
            road.apply(state(THREE, vip("www", VIP, ["b1", "b2"] if number % 2 else ["b2", "b3"])))
        ended.set()

    thread = threading.Thread(target=publish)
    thread.start()
    out: list[bytes] = []
    while not ended.is_set():
        out += keep_up(road, (flow(i % FLOWS) for i in range(64)))
    thread.join()
    assert len(out) == road.given == forwarded(road)


def test_publishing_waits_until_no_worker_reads_the_old_state(make_road: MakeRoad) -> None:
    """A worker says so between turns, and sleeps up to a third of a millisecond when it has nothing to do."""
    road = started(make_road, workers=2)
    wait_until(lambda: min(turns for _, _, turns in road.dataplane.turns()) > 200, "workers sleep long")
    one = State([], [])
    began = time.monotonic()
    for _ in range(100):
        road.dataplane.publish(one)
    assert time.monotonic() - began > 0.002, "100 times, that is sooner than a single nap"


def test_flush_while_running(make_road: MakeRoad) -> None:
    road = started(make_road, workers=3)
    keep_up(road, [flow(i) for i in range(FLOWS)])
    assert all(road.forwarding.flush(name) for name in THREE)
    assert sum(road.dataplane.worker(i)["live"] for i in range(3)) == 0
    keep_up(road, [flow(i, flags="A") for i in range(FLOWS)])
    assert road.fates() == {"hash_new": 2 * FLOWS}


def test_counters_read_while_running_are_never_absurd(make_road: MakeRoad) -> None:
    """Pointers keep their laws in every glimpse; packets of our own never make `received` negative."""
    road = started(make_road, workers=2)
    frames = [flow(i) for i in range(BURST)]
    canary = bytes(ether(tcp()))
    for number in range(300):
        road.give(frames)
        for worker in range(2):
            road.dataplane.inject(canary, worker)
        for _ in range(20):
            assert road.dataplane.received <= road.given + 2 * (number + 1)
            road.assert_laws()
        road.take_all()
        while road.dataplane.collect():
            pass


# -- what does not fit


ROUNDS = 100


def burst_of(road: Road, frame: bytes, rounds: int) -> list[bytes]:
    """Give a burst of one frame to every port before each turn, so that a worker gets more than it can take."""
    out: list[bytes] = []
    for _ in range(rounds):
        for port in range(len(road.ports)):
            assert road.give([frame] * BURST, port) == BURST
        road.dataplane.step(road.now)
        for port in range(len(road.ports)):
            out += road.take(port)
    road.step()
    return out + road.take()


def overfull(make_road: MakeRoad, ports: int, workers: int) -> Road:
    road = make_road(ports=[port_settings()] * ports, workers=workers, ring_size=256, pool=8192)
    road.apply(SERVICE)
    (first,) = road.send(flow(1))
    burst = burst_of(road, flow(1, flags="A"), ROUNDS)
    assert {backend_address(frame) for frame in burst} == {backend_address(first)}
    assert road.connections() == 1, "a spilled packet makes no entry"
    return road


@pytest.mark.layout("software")
def test_a_flood_of_one_flow_spills_to_the_other_workers(make_road: MakeRoad) -> None:
    """Twice of what its worker takes: the other worker sends the rest to the same backend and remembers nothing."""
    road = overfull(make_road, ports=2, workers=2)
    fates = road.fates()
    assert set(fates) == {"hash_new", "conn_hit", "hash_untracked"}
    assert fates["hash_untracked"] > 1000
    assert sum(fates.values()) == 1 + 2 * BURST * ROUNDS
    inserted = [road.dataplane.worker(i)["inserted"] for i in range(2)]
    assert sorted(inserted) == [0, 1]


@pytest.mark.layout("software")
def test_spilled_packets_go_round_the_workers(make_road: MakeRoad) -> None:
    """Three times of what its worker takes is still less than three workers take."""
    road = overfull(make_road, ports=3, workers=3)
    assert "ring_full" not in road.fates()
    assert road.fates()["hash_untracked"] > 2000


@pytest.mark.layout("software")
def test_ring_full_when_no_worker_has_room(make_road: MakeRoad) -> None:
    road = overfull(make_road, ports=4, workers=2)
    fates = road.fates()
    assert fates["ring_full"] > 1000
    assert sum(fates.values()) == 1 + 4 * BURST * ROUNDS


@pytest.mark.layout("software")
def test_ring_full_with_one_worker(make_road: MakeRoad) -> None:
    road = overfull(make_road, ports=2, workers=1)
    assert set(road.fates()) == {"hash_new", "conn_hit", "ring_full"}


def test_a_flood_of_one_flow_through_running_stages(make_road: MakeRoad) -> None:
    road = started(make_road, workers=3, ring_size=32)
    (first,) = keep_up(road, [flow(1)])
    out: list[bytes] = []
    for _ in range(20):
        road.give([flow(1, flags="A")] * 250)
        out += road.take()
    out += road.take_all()
    assert {backend_address(frame) for frame in out} <= {backend_address(first)}
    assert set(road.fates()) <= {"hash_new", "conn_hit", "hash_untracked", "ring_full", "transmit_full"}
    assert len(out) + 1 == forwarded(road)


@pytest.mark.parametrize(
    ("ring_size", "held"),
    [(1024, 1024), (8192, 8192)],
    ids=["the transmit ring ends first", "the port ends first"],
)
def test_transmit_full_when_nobody_takes(make_road: MakeRoad, ring_size: int, held: int) -> None:
    """As many packets as the ring has slots are ready, sent or not; all that come after are dropped, and counted."""
    road = make_road(ring_size=ring_size, pool=20000)
    road.apply(SERVICE)
    for _ in range(40):
        assert road.give(flow(i) for i in range(250)) == 250
        road.step()
    sent = min(held, PORT_FRAMES)
    assert road.dataplane.rings(0)["transmit"] == {"ready": held, "sent": sent, "recycled": 0}
    assert road.fates()["transmit_full"] == 10000 - held
    assert forwarded(road) == sent, "what waits in the ring has no fate yet"
    while road.take():
        road.step()
    assert forwarded(road) == held


def test_transmit_full_while_running_and_then_all_is_well(make_road: MakeRoad) -> None:
    """The transmit side slower than the receive side: dropped is offered less sent, and the pool is whole after."""
    road = started(make_road, ring_size=256, workers=2, pool=8192)
    for _ in range(20):
        road.give([flow(i) for i in range(200)])
        wait_until(lambda: road.dataplane.received == road.given, "all is received")
    road.settle()
    room = 256 * (road.workers if road.layout == "rss" else 1)
    assert road.fates()["transmit_full"] == 4000 - room
    assert len(road.take_all()) == room
    wait_until(lambda: road.dataplane.rings(0)["transmit"]["recycled"] == room, "what was taken is recycled")
    before = forwarded(road)
    keep_up(road, [flow(i) for i in range(100)])
    assert forwarded(road) == before + 100


@pytest.mark.layout("software")
@pytest.mark.parametrize("running", [False, True], ids=["stepped", "running"])
def test_without_credit_the_nic_side_waits_and_nothing_is_lost(make_road: MakeRoad, running: bool) -> None:
    """More frames than the pool lets on the road at once. What is not received waits, and comes through later."""
    road = make_road(ring_size=4096, pool=4096)  # 4096 less what caches may hold
    road.apply(SERVICE)
    if running:
        road.start()
    offered = road.give(flow(i % FLOWS) for i in range(3500))
    assert offered == 3500
    for _ in range(20):
        time.sleep(0.01) if running else road.step()
    rings = road.dataplane.rings(0)
    waiting = 3500 - rings["receive"]["received"]
    assert waiting > 500, "credit has run out"
    assert rings["receive"]["received"] == rings["receive"]["reserved"]
    assert rings["transmit"]["recycled"] == 0
    out: list[bytes] = []

    def through() -> bool:
        if not running:
            road.step()
        out.extend(road.take())
        return len(out) == 3500

    wait_until(through, "all come through once they are taken")
    assert forwarded(road) == 3500
    assert len(keep_up(road, [flow(1)] * 100) if running else road.send(*[flow(1)] * 100)) == 100


@pytest.mark.parametrize(
    ("frame", "fate"),
    [
        (flow(1), "transmit_full"),
        (bytes(ether(tcp(dport=81))), "not_vip"),
        (bytes(ether(IP(src="127.0.0.1", dst=VIP, flags="DF") / TCP(dport=80) / bytes(1460))), "too_big"),
        (bytes(ether(IP(src=VIP, dst=VIP) / ICMP())), "echo_suppressed"),
        (bytes(ether(tcp()))[:40], "malformed"),
    ],
    ids=["transmit_full", "not_vip", "too_big", "echo_suppressed", "malformed"],
)
def test_credit_comes_back_whatever_the_fate(make_road: MakeRoad, frame: bytes, fate: str) -> None:
    """Far more packets than the pool has, none taken: if a stage kept their credit, receiving would end."""
    road = make_road(ring_size=128, pool=2048)
    road.apply(SERVICE)
    for _ in range(300):
        assert road.give([frame] * BURST) == BURST
        road.step()
    assert road.dataplane.received == 300 * BURST
    assert road.fates()[fate] >= 300 * BURST - 128


@pytest.mark.layout("software")
def test_credit_comes_back_from_full_worker_rings(make_road: MakeRoad) -> None:
    road = make_road(ports=[port_settings()] * 4, ring_size=64, pool=2048)
    road.apply(SERVICE)
    burst_of(road, flow(1), ROUNDS)
    assert road.dataplane.received == 4 * BURST * ROUNDS
    assert road.fates()["ring_full"] > 4000


def test_an_idle_port_does_not_keep_the_credit_of_a_busy_one(make_road: MakeRoad) -> None:
    """The pool has fewer packets for the road than the first port's ring has slots."""
    road = make_road(ports=[port_settings(), port_settings()], pool=2048, ring_size=2048)
    road.apply(SERVICE)
    for _ in range(10):
        road.step()
    assert road.give((flow(i) for i in range(200)), port=1) == 200
    for _ in range(50):
        road.step()
    assert len(road.take()) == 200
    indices = [road.dataplane.rings(port)["receive"] for port in (0, 1)]
    assert indices[0]["reserved"] <= 1024
    assert indices[1]["received"] == 200


def test_an_empty_pool_refuses_frames_and_recovers(make_road: MakeRoad) -> None:
    road = make_road(pool=500, ring_size=256)
    road.apply(SERVICE)
    assert road.give(flow(i) for i in range(600)) == 500
    assert road.pool.available == 0
    with pytest.raises(DataplaneError, match="No buffer space"):
        road.ports[0].give(flow(1))
    out: list[bytes] = []
    while road.dataplane.step(road.now):
        out += road.take()
    assert len(out) == 500
    assert road.pool.available == 500


# -- packets of our own


def step_twice(road: Road) -> None:
    """Packets of our own wait for the credit of the turn before."""
    for _ in range(2):
        road.step()
        road.dataplane.step(road.now)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_canary_passes_every_worker_and_is_never_sent(make_road: MakeRoad, workers: int) -> None:
    road = make_road(workers=workers)
    road.apply(WORLD)
    road.start()
    for worker in range(workers):
        road.dataplane.inject(bytes(ether(tcp())), worker)
    came: list[tuple[int, str, int, int, bytes]] = []

    def all_came() -> bool:
        if (one := road.dataplane.collect()) is not None:
            came.append(one)
        return len(came) == workers

    wait_until(all_came, "canaries come back")
    number = road.forwarding._backends.assign(("web1", road.forwarding.applied.message.backends["web1"]))[0]
    expected = outer(tcp(), BACKENDS["web1"])
    assert sorted(came) == [(w, "own_untracked", 0, number, expected) for w in range(workers)]
    assert road.dataplane.own == workers
    assert road.dataplane.received == 0
    assert road.fates() == {}
    assert road.take() == []
    assert road.forwarding.traffic()[0]["www"] == {"packets": 0, "bytes": 0, "flows": 0}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (ether(tcp(EMPTY)), "no_backend"),
        (ether(tcp(dport=81)), "other_port"),
        (ether(udp("203.0.113.1")), "other_address"),
        (ether(tcp(ttl=0)), "ttl_zero"),
        (ether(tcp(payload=bytes(1460))), "too_big_silent"),
        (bytes(ether(tcp()))[:30], "ipv4_cut"),
    ],
    ids=["no_backend", "not_vip", "not for a vip's address", "ttl_expired", "too_big", "malformed"],
)
def test_a_canary_tells_its_reason_and_is_not_counted(road: Road, frame: bytes, reason: str) -> None:
    road.dataplane.inject(bytes(frame), 0)
    step_twice(road)
    came = road.dataplane.collect()
    assert came is not None
    assert (came[1], came[4]) == (reason, bytes(frame))
    assert road.dataplane.collect() is None
    assert road.fates() == {}


def test_a_canary_among_packets_takes_no_ones_place(make_road: MakeRoad) -> None:
    road = make_road()
    road.apply(WORLD)
    for number in range(50):
        road.give([bytes(ether(tcp(flags="PA", payload=bytes([number]))))])
        if number % 7 == 0:
            road.dataplane.inject(bytes(ether(tcp())), 0)
    road.step()
    expected = [outer(tcp(flags="PA", payload=bytes([n])), BACKENDS["web1"]) for n in range(50)]
    assert road.take() == expected
    assert road.dataplane.own == 8


def test_canaries_that_nobody_collects_go_back_to_the_pool(road: Road) -> None:
    for _ in range(10):
        for _ in range(60):
            road.dataplane.inject(bytes(ether(tcp())), 0)
        step_twice(road)
    assert road.dataplane.own == 600
    assert sum(1 for _ in iter(road.dataplane.collect, None)) == 63, "the newest find no room"


def test_canaries_that_nobody_puts_on_the_road_are_refused(road: Road) -> None:
    canary = bytes(ether(tcp()))
    for _ in range(63):
        road.dataplane.inject(canary, 0)
    with pytest.raises(DataplaneError, match="No buffer space"):
        road.dataplane.inject(canary, 0)
    step_twice(road)
    assert sum(1 for _ in iter(road.dataplane.collect, None)) == 63
