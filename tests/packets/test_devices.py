"""Ports over DPDK's own virtual devices, and what such a port needs of the packet pool."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from forwarder._dataplane import Dataplane, DataplaneError, PacketPool, Port, State
from packets.road import BURST, LCORES, assert_receive_law, assert_transmit_law, wait_until
from packets.world import BACKENDS, HASH_KEY, TUNNEL, VIP, flow

RING_SIZE = 2048


@pytest.fixture
def pool() -> Iterator[PacketPool]:
    pool = PacketPool("devices", 8192)
    yield pool
    whole = pool.available == pool.size
    pool.close()
    assert whole, "packets did not return to the pool"


def one_backend(next_hop: int) -> State:
    """The vip with web1 behind a next hop."""
    backend = (0, 1, next_hop, ip_address(BACKENDS["web1"]).packed, ip_address(TUNNEL).packed)
    return State([(0, ip_address(VIP).packed, 6, 80, False, array("H", [0] * 7), [0])], [backend])


def test_a_null_device_floods_and_every_packet_has_a_fate(pool: PacketPool) -> None:
    """net_null hands out whatever its buffers held last."""
    port = Port.device("net_null0,size=64", 0, pool)
    assert (port.name, len(port.mac), port.link_up, port.knows_recycled) == ("net_null0", 6, True, True)
    dataplane = Dataplane(pool, [port], HASH_KEY, ring_size=RING_SIZE)
    dataplane.set_port(0, 1500, True)
    for _ in range(200):
        dataplane.step(1)
    assert dataplane.received == sum(dataplane.fates().values()) == 200 * BURST
    dataplane.start(LCORES[:3])
    wait_until(lambda: dataplane.received > 20000, "the flood comes by lcores")
    dataplane.stop()
    rings = dataplane.rings(0)
    assert_receive_law(rings["receive"], RING_SIZE)
    assert_transmit_law(rings["transmit"], RING_SIZE)
    dataplane.close()
    port.close()


def test_a_ring_device_sends_and_receives(pool: PacketPool) -> None:
    """net_ring gives back what it was sent: in by the memory port, out by the ring, in again as nobody's."""
    memory, ring = Port.memory("memory", 0, pool), Port.device("net_ring0", 1, pool)
    assert not ring.knows_recycled
    dataplane = Dataplane(pool, [memory, ring], HASH_KEY, ring_size=RING_SIZE)
    for index, punts in enumerate((False, True)):
        dataplane.set_port(index, 1500, punts)
    dataplane.set_next_hop(1, 1, bytes(6))
    dataplane.publish(one_backend(1))
    for _ in range(10):
        memory.give(flow(1))
    while dataplane.step(1):
        pass
    assert {fate: n for fate, n in dataplane.fates().items() if n} == {"hash_new": 1, "conn_hit": 9, "punt": 10}
    assert dataplane.received == 20
    assert dataplane.rings(1) == {
        "receive": {"received": 10, "processed": 10, "reserved": RING_SIZE},
        "transmit": {"ready": 10, "sent": 10, "recycled": None},
    }
    assert dataplane.rings(0)["transmit"] == {"ready": 0, "sent": 0, "recycled": 0}
    dataplane.close()
    memory.close()
    ring.close()


@pytest.mark.parametrize(
    "devargs", ["net_nothing0", "", "net_null0" + "x" * 80, ",size=3", "net_af_packet9,iface=none0"]
)
def test_a_device_that_is_not_there_is_refused(pool: PacketPool, devargs: str) -> None:
    with pytest.raises(DataplaneError, match="open port"):
        Port.device(devargs, 0, pool)


def test_a_device_is_opened_once_and_again_after_it_was_closed(pool: PacketPool) -> None:
    for _ in range(3):
        port = Port.device("net_null1", 0, pool)
        with pytest.raises(DataplaneError, match="File exists"):
            Port.device("net_null1", 0, pool)
        with pytest.raises(DataplaneError, match="not supported"):
            port.give(bytes(60))
        with pytest.raises(DataplaneError, match="not supported"):
            port.take()
        port.close()
        port.close()


# -- the pool that is too small


def refusal(size: int, workers: int, device: str | None) -> str | None:
    """What is said of a pool of this size; None when it will do."""
    pool = PacketPool("small", size)
    port = Port.device(device, 0, pool) if device else Port.memory("memory", 0, pool)
    try:
        Dataplane(pool, [port], HASH_KEY, workers=workers).close()
    except DataplaneError as error:
        return str(error)
    finally:
        port.close()
        pool.close()
    return None


@pytest.mark.parametrize(
    ("size", "workers", "device", "sum_"),
    [
        (6 * BURST - 1, 1, None, 6 * BURST),  # two bursts for each of three stages
        (8 * BURST - 1, 2, None, 8 * BURST),
        (1024, 1, None, 6 * BURST + 4 * 384),  # and four caches of 256 that may hold half as much again
        (6 * BURST + 4 * 384 - 1, 1, None, 6 * BURST + 4 * 384),
        (500, 1, "net_ring2", 6 * BURST + 512),  # and what the device may have to send
    ],
)
def test_a_pool_that_is_too_small_is_refused_with_the_sum(
    size: int, workers: int, device: str | None, sum_: int
) -> None:
    said = refusal(size, workers, device)
    assert said is not None
    assert f"a packet pool of {size} is too small" in said
    assert f"take {sum_}; set packet_pool to {sum_} or more" in said


@pytest.mark.parametrize("device", [None, "net_ring3", "net_null3"])
@pytest.mark.parametrize("size", [64, 200, 500, 1000, 1023, 1024, 1500])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_pool_that_the_refusal_asks_for_will_do(size: int, workers: int, device: str | None) -> None:
    said = refusal(size, workers, device)
    if said is not None:
        (needed,) = re.findall(r"set packet_pool to (\d+)", said)
        assert refusal(int(needed), workers, device) is None


# -- the pool that AF_XDP wants


def test_a_pool_in_one_piece_is_used_like_any_other() -> None:
    """What is missing from it because somebody has it stays so, unless a closed device is known to have had it."""
    pool = PacketPool("umem", 8192, umem=True)
    port = Port.memory("memory", 0, pool)
    for number in range(3):
        port.give(flow(number))
    for held in (0, 2, 4, 8192):
        pool.take_back(held)
        assert pool.missing == 3
    assert port.take() is None
    port.close()
    assert (pool.missing, pool.available) == (0, 8192)
    pool.close()
