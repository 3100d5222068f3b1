"""The owning classes: closed twice without harm, of no use when closed, not to be broken by a wrong value."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from forwarder import _dataplane
from forwarder._dataplane import (
    FATE_KINDS,
    FATES,
    Dataplane,
    DataplaneError,
    PacketPool,
    Port,
    ReceiveRing,
    State,
    TransmitRing,
)
from packets.road import LCORES, Road
from packets.world import HASH_KEY, WORLD, ether, tcp

ADDRESS, SOURCE = b"\x0a\0\0\x02", b"\x0a\0\0\x01"
BACKEND = (0, 1, 0, ADDRESS, SOURCE)


@dataclass
class Things:
    pool: PacketPool
    port: Port
    receive: ReceiveRing
    transmit: TransmitRing
    dataplane: Dataplane


@pytest.fixture
def things() -> Iterator[Things]:
    pool = PacketPool("handles", 4096)
    port = Port.memory("handles", 0, pool)
    made = Things(pool, port, ReceiveRing(8), TransmitRing(8), Dataplane(pool, [port], HASH_KEY))
    yield made
    made.dataplane.close()
    made.receive.close()
    made.transmit.close()
    made.port.close()
    made.pool.close()


def a_vip(**fields: Any) -> tuple[Any, ...]:
    """A vip of a State, with one field wrong."""
    values = {
        "id": 0,
        "address": b"\xc0\0\2\1",
        "protocol": 6,
        "port": 80,
        "client": False,
        "slots": array("H", [0] * 7),
        "usable": [0],
    }
    return tuple({**values, **fields}.values())


def test_every_fate_has_a_kind() -> None:
    assert set(FATE_KINDS) == set(FATES)
    assert len(FATES) == len(set(FATES))
    assert set(FATE_KINDS.values()) == {"forwarded", "answered", "passed", "dropped"}


CLOSED: dict[str, Callable[[Things], object]] = {
    "pool size": lambda t: t.pool.size,
    "pool available": lambda t: t.pool.available,
    "pool missing": lambda t: t.pool.missing,
    "pool pieces": lambda t: t.pool.pieces,
    "pool for a port": lambda t: Port.device("net_null5", 0, t.pool),
    "pool for a data plane": lambda t: Dataplane(t.pool, [t.port], HASH_KEY),
    "port give": lambda t: t.port.give(bytes(60)),
    "port take": lambda t: t.port.take(),
    "port mac": lambda t: t.port.mac,
    "port link": lambda t: t.port.link_up,
    "port missed": lambda t: t.port.missed,
    "port recycled": lambda t: t.port.knows_recycled,
    "port pulled from": lambda t: ReceiveRing(8).pull(t.port),
    "port pushed to": lambda t: TransmitRing(8).push(t.port),
    "receive ring reserve": lambda t: t.receive.reserve(1),
    "receive ring indices": lambda t: t.receive.indices,
    "receive ring hand over": lambda t: t.receive.hand_over(TransmitRing(8), 1),
    "transmit ring indices": lambda t: t.transmit.indices,
    "transmit ring handed to": lambda t: ReceiveRing(8).hand_over(t.transmit, 1),
    "data plane step": lambda t: t.dataplane.step(1),
    "data plane start": lambda t: t.dataplane.start(LCORES[:3]),
    "data plane stop": lambda t: t.dataplane.stop(),
    "data plane publish": lambda t: t.dataplane.publish(State([], [])),
    "data plane inject": lambda t: t.dataplane.inject(bytes(60), 0),
    "data plane collect": lambda t: t.dataplane.collect(),
    "data plane traces": lambda t: t.dataplane.traces(),
    "data plane fates": lambda t: t.dataplane.fates(),
    "data plane rings": lambda t: t.dataplane.rings(0),
    "data plane received": lambda t: t.dataplane.received,
    "data plane own": lambda t: t.dataplane.own,
    "data plane pieces": lambda t: t.dataplane.pieces,
    "data plane path MTU": lambda t: t.dataplane.path_mtu(0),
    "data plane set_port": lambda t: t.dataplane.set_port(0, 1500, False),
    "data plane set_next_hop": lambda t: t.dataplane.set_next_hop(0, 0, None),
    "data plane flush": lambda t: t.dataplane.flush(0),
    "data plane turns": lambda t: t.dataplane.turns(),
    "data plane worker": lambda t: t.dataplane.worker(0),
    "data plane traffic": lambda t: t.dataplane.vip_traffic(0),
    "data plane lookup": lambda t: t.dataplane.lookup(6, ADDRESS, 1, SOURCE, 2),
}


@pytest.mark.parametrize("use", CLOSED.values(), ids=CLOSED)
def test_closed_things_say_so(things: Things, use: Callable[[Things], object]) -> None:
    for thing in (things.dataplane, things.receive, things.transmit, things.port, things.pool):
        thing.close()
        thing.close()
    with pytest.raises(DataplaneError, match="is closed"):
        use(things)


WRONG: dict[str, Callable[[Things], object]] = {
    "an empty pool": lambda t: PacketPool("wrong", 0),
    "a pool larger than the memory": lambda t: PacketPool("wrong", 1 << 30),
    "a pool of less than nothing": lambda t: PacketPool("wrong", -1),
    "a pool's name twice": lambda t: PacketPool("handles", 256),
    "a pool's name that is too long": lambda t: PacketPool("x" * 100, 256),
    "a port's name twice": lambda t: Port.memory("handles", 0, t.pool),
    "a ring without slots": lambda t: ReceiveRing(0),
    "a ring of 3 slots": lambda t: ReceiveRing(3),
    "a transmit ring without slots": lambda t: TransmitRing(0),
    "a transmit ring of 1000 slots": lambda t: TransmitRing(1000),
    "a ring of 2^32 slots": lambda t: ReceiveRing(1 << 32),
    "negative credit": lambda t: t.receive.reserve(-1),
    "no port to pull from": lambda t: t.receive.pull(None),  # type: ignore[arg-type]
    "no port to push to": lambda t: t.transmit.push(None),  # type: ignore[arg-type]
    "no ring to hand over to": lambda t: t.receive.hand_over(None, 1),  # type: ignore[arg-type]
    "no pool for a port": lambda t: Port.memory("wrong", 0, None),  # type: ignore[arg-type]
    "no pool for a data plane": lambda t: Dataplane(None, [t.port], HASH_KEY),  # type: ignore[arg-type]
    "no state": lambda t: t.dataplane.publish(None),  # type: ignore[arg-type]
    "no frame": lambda t: t.port.give(None),  # type: ignore[arg-type]
    "more headroom than a buffer has": lambda t: t.port.give(bytes(60), 129),
    "less headroom than none": lambda t: t.port.give(bytes(60), -1),
    "a tag of 17 bits": lambda t: t.port.give(bytes(60), 65536),
    "a path MTU of a backend out of range": lambda t: t.dataplane.path_mtu(65536),
    "no frame to inject": lambda t: t.dataplane.inject(None, 0),  # type: ignore[arg-type]
    "a second data plane": lambda t: Dataplane(t.pool, [t.port], HASH_KEY),
    "an egress port that is not there": lambda t: t.dataplane.set_port(1, 1500, False),
    "a far egress port": lambda t: t.dataplane.set_port(60000, 1500, False),
    "an MTU that is too large": lambda t: t.dataplane.set_port(0, 65536, False),
    "a next hop by a port that is not there": lambda t: t.dataplane.set_next_hop(0, 1, bytes(6)),
    "a next hop out of range": lambda t: t.dataplane.set_next_hop(65536, 0, bytes(6)),
    "a MAC of 5 bytes": lambda t: t.dataplane.set_next_hop(0, 0, bytes(5)),
    "a MAC of 7 bytes": lambda t: t.dataplane.set_next_hop(0, 0, bytes(7)),
    "rings of a port that is not there": lambda t: t.dataplane.rings(1),
    "rings of a far port": lambda t: t.dataplane.rings(60000),
    "traffic of a vip out of range": lambda t: t.dataplane.vip_traffic(1 << 14),
    "flows of a vip out of range": lambda t: t.dataplane.vip_flows(65535),
    "a worker that is not there": lambda t: t.dataplane.worker(1),
    "a frame to inject that is too long": lambda t: t.dataplane.inject(bytes(65546), 0),
    "a frame to inject of more than a buffer": lambda t: t.dataplane.inject(bytes(5000), 0),
    "two lcores for three stages": lambda t: t.dataplane.start(LCORES[:2]),
    "an lcore twice": lambda t: t.dataplane.start([1, 1, 2]),
    "the main lcore": lambda t: t.dataplane.start([0, 1, 2]),
    "an lcore that is not there": lambda t: t.dataplane.start([1, 2, 100]),
    "an lcore that cannot be": lambda t: t.dataplane.start([1, 2, 5000]),
    "a negative lcore": lambda t: t.dataplane.start([1, 2, -1]),
    "two families in a lookup": lambda t: t.dataplane.lookup(6, ADDRESS, 1, bytes(16), 2),
    "addresses of 5 bytes in a lookup": lambda t: t.dataplane.lookup(6, bytes(5), 1, bytes(5), 2),
    "a port out of range in a lookup": lambda t: t.dataplane.lookup(6, ADDRESS, 65536, SOURCE, 2),
    "DPDK a second time": lambda t: _dataplane.initialize([]),
}


@pytest.mark.parametrize("use", WRONG.values(), ids=WRONG)
def test_wrong_values_are_refused(things: Things, use: Callable[[Things], object]) -> None:
    with pytest.raises((DataplaneError, ValueError, TypeError, IndexError, OverflowError)):
        use(things)
    assert things.pool.available == things.pool.size
    assert things.pool.missing == 0


WRONG_DATAPLANES: dict[str, dict[str, Any]] = {
    "no port": {"ports": []},
    "nine ports": {"ports": 9},
    "a port that is not one": {"ports": ["eth0"]},
    "a port at another place than its index": {"ports": [5]},
    "a port with a far index": {"ports": [60000]},
    "one port twice": {"ports": [0, 0]},
    "a hash key of 15 bytes": {"hash_key": bytes(15)},
    "a hash key of 17 bytes": {"hash_key": bytes(17)},
    "no worker": {"workers": 0},
    "33 workers": {"workers": 33},
    "less than no worker": {"workers": -1},
    "rings of no slot": {"ring_size": 0},
    "rings of 1000 slots": {"ring_size": 1000},
    "no connection table": {"connection_entries": 0},
    "a connection table of 2^32 - 1 entries": {"connection_entries": 2**32 - 1},
    "a connection table larger than the memory": {"connection_entries": 1 << 29},
    "three timeouts": {"connection_seconds": (1, 2, 3)},
    "a negative timeout": {"connection_seconds": (1, 2, 3, -4)},
    "an unknown idle policy": {"idle": "doze"},
}


@pytest.mark.parametrize("options", WRONG_DATAPLANES.values(), ids=WRONG_DATAPLANES)
def test_wrong_data_planes_are_refused_and_leave_nothing(options: dict[str, Any]) -> None:
    pool = PacketPool("wrong", 4096)
    asked = options.get("ports", [0])
    indices = range(asked) if isinstance(asked, int) else asked
    made = {i: Port.memory(f"wrong{i}", i, pool) for i in {*indices} if isinstance(i, int)}
    ports = [made.get(i, i) for i in indices]
    values: dict[str, Any] = {"hash_key": HASH_KEY, **options, "ports": ports}
    try:
        with pytest.raises((DataplaneError, ValueError, TypeError, IndexError, OverflowError, KeyError)):
            Dataplane(pool, **values)
        port = Port.memory("right", 0, pool)
        Dataplane(pool, [port], HASH_KEY).close()  # what was half made is gone, names and memory too
        port.close()
    finally:
        for port in made.values():
            port.close()
        pool.close()


WRONG_STATES: dict[str, tuple[list[Any], list[Any]]] = {
    "a slot of a backend that is not there": ([a_vip(slots=array("H", [0, 1, 0]))], [BACKEND]),
    "a slot of no backend at all": ([a_vip()], []),
    "a usable backend that is not there": ([a_vip(usable=[0, 9])], [BACKEND]),
    "a usable backend far out": ([a_vip(usable=[65535])], [BACKEND]),
    "the index that means none": ([], [(0xFFFF, 1, 0, ADDRESS, SOURCE)]),
    "generation 0": ([], [(0, 0, 0, ADDRESS, SOURCE)]),
    "generation 4096": ([], [(0, 4096, 0, ADDRESS, SOURCE)]),
    "a backend twice": ([], [BACKEND, BACKEND]),
    "a vip twice": ([a_vip(), a_vip(id=1)], [BACKEND]),
    "a vip id out of range": ([a_vip(id=1 << 14)], [BACKEND]),
    "a vip's port out of range": ([a_vip(port=65536)], [BACKEND]),
    "an address of 5 bytes": ([a_vip(address=bytes(5))], [BACKEND]),
    "a backend of another family than its source": ([], [(0, 1, 0, ADDRESS, bytes(16))]),
    "a backend's address of 3 bytes": ([], [(0, 1, 0, bytes(3), bytes(3))]),
    "slots of one byte": ([a_vip(slots=array("B", [0] * 7))], [BACKEND]),
    "slots of four bytes": ([a_vip(slots=array("I", [0] * 7))], [BACKEND]),
    "slots in a list": ([a_vip(slots=[0] * 7)], [BACKEND]),
    "a vip of too few values": ([a_vip()[:-1]], [BACKEND]),
    "no list": (None, []),  # type: ignore[dict-item]
}


@pytest.mark.parametrize(("vips", "backends"), WRONG_STATES.values(), ids=WRONG_STATES)
def test_wrong_states_are_refused(vips: list[Any], backends: list[Any]) -> None:
    with pytest.raises((DataplaneError, ValueError, TypeError, OverflowError)):
        State(vips, backends)


def test_a_refused_state_leaves_the_one_before_in_force(road: Road) -> None:
    with pytest.raises(DataplaneError):
        road.dataplane.publish(State([a_vip(slots=array("H", [7]))], [BACKEND]))
    assert road.fate_of(bytes(ether(tcp()))) == "hash_new"


def test_stages_that_run_are_not_stepped_or_started_again(make_road: Callable[..., Road]) -> None:
    road = make_road()
    road.apply(WORLD)
    road.start()
    with pytest.raises(DataplaneError, match="resource busy"):
        road.dataplane.step(1)
    with pytest.raises(DataplaneError, match="already in progress"):
        road.dataplane.start(LCORES[: len(road.dataplane.turns())])
    road.stop()
    road.dataplane.stop()
    road.dataplane.step(road.now)
    road.start()


def test_closing_stops_what_runs(things: Things) -> None:
    things.dataplane.start(LCORES[:3])
    things.dataplane.close()
    again = Dataplane(things.pool, [things.port], HASH_KEY)
    again.start(LCORES[:3])
    again.close()


def test_the_callers_list_of_ports_is_not_the_data_planes(things: Things) -> None:
    things.dataplane.close()
    ports = [things.port]
    dataplane = Dataplane(things.pool, ports, HASH_KEY)
    ports.clear()
    dataplane.step(1)
    assert dataplane.rings(0)["receive"]["received"] == 0
    dataplane.close()


def test_what_is_in_use_is_not_closed(things: Things) -> None:
    for used in (things.pool, things.port):
        with pytest.raises(DataplaneError, match="in use"):
            used.close()
    things.dataplane.close()
    with pytest.raises(DataplaneError, match="in use"):
        things.pool.close()  # the port is left
    things.port.close()
    things.pool.close()


def test_a_table_cannot_grow_under_a_state() -> None:
    slots = array("H", [0] * 7)
    state = State([(0, ADDRESS, 6, 80, False, slots, [0])], [BACKEND])
    with pytest.raises(BufferError):
        slots.append(0)
    del state
    slots.append(0)


def test_things_that_are_dropped_give_everything_back() -> None:
    """Nobody closed them: the last reference did."""
    pool = PacketPool("dropped", 4096)
    for _ in range(5):
        port = Port.memory("dropped", 0, pool)
        dataplane = Dataplane(pool, [port], HASH_KEY)
        for _ in range(100):
            port.give(bytes(60))
        dataplane.start(LCORES[:3])
        del dataplane, port
    assert pool.available == pool.size
    pool.close()


def test_a_data_plane_over_a_port_that_still_holds_frames_keeps_the_laws() -> None:
    """Frames that an earlier data plane sent and nobody took are not this one's to recycle."""
    pool = PacketPool("before", 4096)
    port = Port.memory("before", 0, pool)
    ring, transmit = ReceiveRing(8), TransmitRing(8)
    for _ in range(5):
        port.give(bytes(60))
    ring.reserve(5)
    ring.pull(port)
    ring.hand_over(transmit, 5)
    transmit.push(port)
    dataplane = Dataplane(pool, [port], HASH_KEY)
    dataplane.step(1)
    assert dataplane.rings(0)["transmit"] == {"ready": 0, "sent": 0, "recycled": 0}
    dataplane.close()
    ring.close()
    transmit.close()
    port.close()
    assert pool.available == pool.size
    pool.close()
