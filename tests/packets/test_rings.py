"""Receive ring and transmit ring by themselves: whatever is done to them, the pointers keep the laws of DESIGN 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forwarder._dataplane import DataplaneError, PacketPool, Port, ReceiveRing, TransmitRing
from packets.road import BURST, assert_receive_law, assert_transmit_law

FRAME = bytes(60)
POOL = 100  # small, so that it runs out
CREDITS = st.one_of(st.integers(0, 80), st.sampled_from([2**32 - 1, 2**32, 2**63, 2**64 - 1]))


@dataclass
class Rig:
    """A pool, a port and the two rings."""

    pool: PacketPool
    port: Port
    receive: ReceiveRing
    transmit: TransmitRing

    def close(self) -> None:
        self.receive.close()
        self.transmit.close()
        self.port.close()
        whole = self.pool.available == self.pool.size
        self.pool.close()
        assert whole, "packets did not return to the pool"


def make_rig(receive: int = 16, transmit: int = 8) -> Rig:
    pool = PacketPool("rings", POOL)
    return Rig(pool, Port.memory("rings", 0, pool), ReceiveRing(receive), TransmitRing(transmit))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = make_rig()
    yield rig
    rig.close()


def give(rig: Rig, count: int) -> None:
    for _ in range(count):
        rig.port.give(FRAME)


def test_nothing_is_received_without_credit(rig: Rig) -> None:
    give(rig, 5)
    assert rig.receive.pull(rig.port) == 0
    rig.receive.reserve(3)
    assert rig.receive.pull(rig.port) == 3
    assert rig.receive.indices == {"received": 3, "processed": 0, "reserved": 3}


def test_credit_is_not_taken_back(rig: Rig) -> None:
    rig.receive.reserve(9)
    rig.receive.reserve(2)
    assert rig.receive.indices["reserved"] == 9


@pytest.mark.parametrize("credit", [17, 2**32, 2**64 - 1])
def test_credit_beyond_the_ring_fills_the_ring(rig: Rig, credit: int) -> None:
    give(rig, 1)
    rig.receive.reserve(1)
    assert rig.receive.pull(rig.port) == 1
    rig.receive.reserve(credit)
    assert rig.receive.indices == {"received": 1, "processed": 0, "reserved": 16}


def test_a_full_transmit_ring_leaves_the_rest_in_the_receive_ring(rig: Rig) -> None:
    give(rig, 12)
    rig.receive.reserve(12)
    assert rig.receive.pull(rig.port) == 12
    assert rig.receive.hand_over(rig.transmit, 12) == 8
    assert rig.receive.indices == {"received": 12, "processed": 8, "reserved": 12}
    assert rig.transmit.push(rig.port) == 8
    assert rig.transmit.indices == {"ready": 8, "sent": 8, "recycled": 0}
    assert rig.receive.hand_over(rig.transmit, 12) == 0, "sent is not yet recycled"
    assert rig.port.take() == FRAME
    assert rig.transmit.push(rig.port) == 0
    assert rig.transmit.indices["recycled"] == 1
    assert rig.receive.hand_over(rig.transmit, 12) == 1


def test_a_port_takes_what_it_has_room_for() -> None:
    """The port holds 4095 frames that nobody took; the rest waits in the ring, in order."""
    pool = PacketPool("rings", 5000)
    port, receive, transmit = Port.memory("rings", 0, pool), ReceiveRing(8192), TransmitRing(8192)
    for number in range(4200):
        if number == 4000:  # the port's own ring of arriving frames has its end too
            receive.reserve(8192)
            while receive.pull(port):
                pass
        port.give(number.to_bytes(2, "big") + FRAME)
    while receive.pull(port):
        pass
    assert receive.hand_over(transmit, 9999) == 4200
    while transmit.push(port):
        pass
    assert transmit.indices == {"ready": 4200, "sent": 4095, "recycled": 0}
    taken = [port.take() for _ in range(4095)]
    assert port.take() is None
    while transmit.push(port):
        pass
    taken += [port.take() for _ in range(105)]
    assert [int.from_bytes(frame[:2], "big") for frame in taken if frame] == list(range(4200))
    receive.close()
    transmit.close()
    port.close()
    assert pool.available == pool.size
    pool.close()


def test_two_transmit_rings_of_one_port_keep_the_law(rig: Rig) -> None:
    """What the port holds may be the other's; a pointer never runs ahead of the one before it."""
    other = TransmitRing(8)
    give(rig, 6)
    rig.receive.reserve(6)
    rig.receive.pull(rig.port)
    rig.receive.hand_over(rig.transmit, 5)
    rig.receive.hand_over(other, 1)
    for ring in (rig.transmit, other, rig.transmit):
        ring.push(rig.port)
        assert_transmit_law(ring.indices, 8)
    while rig.port.take():
        pass
    for ring in (rig.transmit, other):
        ring.push(rig.port)
        assert ring.indices["recycled"] == ring.indices["ready"]
    other.close()


def test_closing_a_ring_gives_its_packets_back(rig: Rig) -> None:
    give(rig, 10)
    rig.receive.reserve(10)
    rig.receive.pull(rig.port)
    rig.receive.hand_over(rig.transmit, 4)
    assert rig.pool.available == POOL - 10
    rig.receive.close()
    assert rig.pool.available == POOL - 4
    rig.transmit.close()
    assert rig.pool.available == POOL


class Rings(RuleBasedStateMachine):
    """Any order of giving, reserving, pulling, handing over, pushing and taking, beside a model in plain numbers."""

    @initialize(receive=st.sampled_from([1, 2, 16, 64]), transmit=st.sampled_from([1, 2, 8, 64]))
    def begin(self, receive: int, transmit: int) -> None:
        self.receive_size, self.transmit_size = receive, transmit
        self.rig = make_rig(receive, transmit)
        self.arriving = self.leaving = 0
        self.received = self.processed = self.reserved = 0
        self.ready = self.sent = self.recycled = 0

    @rule(count=st.integers(1, 40))
    def give(self, count: int) -> None:
        for _ in range(count):
            free = self.rig.pool.available
            try:
                self.rig.port.give(FRAME)
                self.arriving += 1
            except DataplaneError:
                assert free == 0
                break

    @rule(credit=CREDITS)
    def reserve(self, credit: int) -> None:
        self.rig.receive.reserve(credit)
        self.reserved = max(self.reserved, min(self.received + credit, self.processed + self.receive_size))

    @rule()
    def pull(self) -> None:
        came = min(BURST, self.arriving, self.reserved - self.received)
        assert self.rig.receive.pull(self.rig.port) == came
        self.arriving -= came
        self.received += came

    @rule(n=st.integers(0, 70))
    def hand_over(self, n: int) -> None:
        room = self.transmit_size - (self.ready - self.recycled)
        went = min(n, self.received - self.processed, room)
        assert self.rig.receive.hand_over(self.rig.transmit, n) == went
        self.processed += went
        self.ready += went

    @rule()
    def push(self) -> None:
        went = min(BURST, self.ready - self.sent)
        assert self.rig.transmit.push(self.rig.port) == went
        self.sent += went
        self.leaving += went
        self.recycled = self.sent - self.leaving

    @rule(n=st.integers(1, 40))
    def take(self, n: int) -> None:
        for _ in range(n):
            assert (self.rig.port.take() is None) == (self.leaving == 0)
            self.leaving -= self.leaving > 0

    @invariant()
    def laws(self) -> None:
        receive, transmit = self.rig.receive.indices, self.rig.transmit.indices
        assert_receive_law(receive, self.receive_size)
        assert_transmit_law(transmit, self.transmit_size)
        assert receive == {"received": self.received, "processed": self.processed, "reserved": self.reserved}
        assert transmit == {"ready": self.ready, "sent": self.sent, "recycled": self.recycled}

    @invariant()
    def no_packet_is_lost(self) -> None:
        inside = self.arriving + (self.received - self.processed) + (self.ready - self.sent) + self.leaving
        assert self.rig.pool.available == POOL - inside

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.close()


TestRings = Rings.TestCase
TestRings.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
