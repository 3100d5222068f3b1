from __future__ import annotations

import errno
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, cast

import pytest

from forwarder import canary
from forwarder._dataplane import Dataplane, DataplaneError
from forwarder.canary import Canary, Expected, Flight, ethernet, ip_packet, transport
from forwarder.forwarding import Forwarding
from forwarder.hashing import slot_table
from forwarder.hashing.flow import slot_hash
from forwarder.next_hops import NextHops
from forwarder.settings import Address, PortSettings, Settings
from forwarder.state_message import StateMessage, VipMessage, parse

KEY = bytes(range(16))
MAC = bytes.fromhex("020000000001")
SOURCES: dict[int, Address] = {4: ip_address("10.0.2.2"), 6: ip_address("fd00:2::2")}
CLIENT4, VIP4 = ip_address("198.51.100.7"), ip_address("192.0.2.1")
CLIENT6, VIP6 = ip_address("2001:db8:1::7"), ip_address("2001:db8::1")


def ones_complement_sum(data: bytes) -> int:
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    return total % 0xFFFF or 0xFFFF


@pytest.mark.parametrize("payload", [b"", b"x", bytes(1000), b"\xff" * 33])
def test_an_ipv4_packet_has_a_right_header(payload: bytes) -> None:
    packet = ip_packet(CLIENT4, VIP4, 17, payload)
    assert packet[:2] == b"\x45\x00"
    assert struct.unpack("!H", packet[2:4])[0] == len(packet) == 20 + len(payload)
    assert packet[6:10] == b"\x40\x00\x40\x11"
    assert ones_complement_sum(packet[:20]) == 0xFFFF
    assert packet[12:] == CLIENT4.packed + VIP4.packed + payload


def test_an_ipv6_packet_has_a_right_header() -> None:
    packet = ip_packet(CLIENT6, VIP6, 6, b"abc")
    assert packet == b"\x60\0\0\0" + b"\0\x03" + b"\x06\x40" + CLIENT6.packed + VIP6.packed + b"abc"


def test_transports_are_a_syn_and_an_empty_datagram() -> None:
    syn = transport(6, 40000, 80)
    assert (len(syn), syn[:4], syn[12:14]) == (20, bytes.fromhex("9c400050"), b"\x50\x02")
    assert transport(17, 40000, 53) == bytes.fromhex("9c40003500080000")


def test_a_frame_has_the_ethertype_of_its_packet() -> None:
    assert ethernet(b"S" * 6, b"D" * 6, b"\x45rest") == b"DDDDDDSSSSSS\x08\x00\x45rest"
    assert ethernet(b"S" * 6, b"D" * 6, b"\x60rest") == b"DDDDDDSSSSSS\x86\xdd\x60rest"


# What the data plane must make of a frame, written down once more and from nothing of the forwarder's.
def encapsulated(frame: bytes, source: Address, backend: Address) -> bytes:
    inner, ethertype = frame[14:], frame[12:14]
    gre = b"\0\0" + ethertype
    if source.version == 4:
        head = bytes.fromhex("4500000000004000402f0000")
        return MAC + b"\x02" * 6 + b"\x08\0" + head + source.packed + backend.packed + gre + inner
    head = bytes.fromhex("60000000") + struct.pack("!H", 4 + len(inner)) + b"\x2f\x40"
    return MAC + b"\x02" * 6 + b"\x86\xdd" + head + source.packed + backend.packed + gre + inner


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda frame: frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


@pytest.mark.parametrize("backend", ["10.0.3.2", "fd00:3::2"])
@pytest.mark.parametrize(("client", "vip"), [(CLIENT4, VIP4), (CLIENT6, VIP6)])
def test_a_packet_that_came_out_right_is_told_from_one_that_did_not(
    backend: str, client: Address, vip: Address
) -> None:
    to = ip_address(backend)
    source = SOURCES[to.version]
    sent = ethernet(bytes(6), bytes(6), ip_packet(client, vip, 6, transport(6, 1, 2)))
    expected = Expected(sent, ("hash_untracked",), MAC, (source.packed, to.packed), "web1")
    right = encapsulated(sent, source, to)
    assert expected.came_out_right(right)
    addresses = 14 + (12 if to.version == 4 else 8)
    end = addresses + 2 * len(to.packed)
    checked = [*range(6), 12, 13, *range(addresses, end + 4), *range(end + 4, len(right))]
    assert [at for at in checked if expected.came_out_right(flipped(at)(right))] == []
    for wrong in (b"", sent, right[:-1], right + b"\0", right[1:], sent[14:]):
        assert not expected.came_out_right(wrong)


def test_a_packet_for_nobody_must_come_back_as_it_was() -> None:
    sent = ethernet(bytes(6), bytes(6), ip_packet(CLIENT4, VIP4, 6, transport(6, 1, 2)))
    expected = Expected(sent, ("punt", "not_vip"))
    assert expected.came_out_right(sent)
    assert not expected.came_out_right(sent + b"\0")
    assert not expected.came_out_right(flipped(20)(sent))


STATE: dict[str, Any] = {
    "version": 1,
    "backends": {"web1": "10.0.3.2", "web2": "fd00:3::2"},
    "vips": [
        {
            "name": "www",
            "address": "192.0.2.1",
            "protocol": "tcp",
            "port": 0,
            "scheduler": "maglev",
            "affinity": "flow",
            "table_size": 7,
            "members": [["web1", 1, "up"], ["web2", 1, "up"]],
        }
    ],
}


@dataclass
class Applied:
    message: StateMessage


@dataclass
class FakeForwarding:
    applied: Applied

    def table(self, vip: VipMessage) -> slot_table.Table:
        return slot_table.build(vip.weights, vip.table_size)


Came = tuple[int, str, int, int, bytes]


@dataclass
class FakeDataplane:
    """Forwards by the state as the real one would, unless `spoil` makes something else of it."""

    state: StateMessage
    came: deque[Came] = field(default_factory=deque)
    spoil: Callable[[Came], Came | None] = lambda came: came
    injected: list[int] = field(default_factory=list)

    def inject(self, frame: bytes, worker: int) -> None:
        self.injected.append(worker)
        came = self.spoil((worker, *self.forward(frame)))
        if came is not None:
            self.came.append(came)

    def collect(self) -> Came | None:
        return self.came.popleft() if self.came else None

    def forward(self, frame: bytes) -> tuple[str, int, int, bytes]:
        for vip in self.state.vips:
            if vip.weights and vip.address.packed == frame[30:34]:
                ports = struct.unpack("!HH", frame[34:38])
                affinity = "client" if vip.client_affinity else "flow"
                hashed = slot_hash(KEY, frame[26:30], frame[30:34], *ports, frame[23], affinity)
                table = slot_table.build(vip.weights, vip.table_size)
                backend = self.state.backends[table.names[table.slots[(hashed >> 32) % table.size]]]
                return "own_untracked", 0, 0, encapsulated(frame, SOURCES[backend.version], backend)
        return "other_address", 0, 0, MAC + frame[6:]  # the data plane addresses it to itself


def flight_over(state: dict[str, Any], gateways: str = "46", workers: int = 3) -> tuple[Canary, FakeDataplane]:
    message = parse(state)
    plane = FakeDataplane(message)
    addresses: dict[int, Address] = {int(version): SOURCES[int(version)] for version in gateways}
    port = PortSettings("eth1", "vdev", 1500, addresses, MAC if gateways == "46" else None)
    settings = Settings(
        node="lb1",
        hash_key=KEY,
        sources=SOURCES,
        ports=(port,),
        steering="software",
        steering_cpu=0,
        worker_cpus=tuple(range(workers)),
        muxing_cpu=0,
        idle="sleep",
        packet_pool=1024,
        ring_size=256,
        connection_entries=64,
        connection_seconds=(1, 1, 1, 1),
        hugepages=False,
        fingerprint="",
    )
    forwarding = FakeForwarding(Applied(message))
    hops = NextHops([port], [None])
    return Canary(cast(Dataplane, plane), cast(Forwarding, forwarding), hops, settings), plane


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "PATIENCE", 0.05)


async def test_a_canary_passes_by_way_of_every_worker() -> None:
    bird, plane = flight_over(STATE)
    for _ in range(2):
        assert (await bird.fly()).passed
    assert plane.injected == [0, 1, 2, 0, 1, 2]


async def test_client_affinity_and_another_vip_first_pass_too() -> None:
    (www,) = STATE["vips"]
    empty = {**www, "name": "empty", "port": 81, "members": []}
    bird, _ = flight_over({**STATE, "vips": [empty, {**www, "affinity": "client"}]})
    flight = await bird.fly()
    assert flight.passed
    assert "by backend web" in flight.reason


async def test_without_a_backend_the_canary_goes_to_nobody() -> None:
    bird, _ = flight_over({"version": 1, "backends": {}, "vips": []})
    flight = await bird.fly()
    assert (flight.passed, flight.sick) == (True, False)
    assert "no vip has a backend" in flight.reason


async def test_an_unresolved_next_hop_is_no_sickness_of_the_forwarder() -> None:
    bird, plane = flight_over(STATE, gateways="")
    flight = await bird.fly()
    assert (flight.passed, flight.sick) == (False, False)
    assert "is not resolved" in flight.reason
    assert plane.injected == []


def lost_at_two(came: Came) -> Came | None:
    return None if came[0] == 2 else came


def wrong_fate(came: Came) -> Came:
    return (came[0], "no_neighbor", *came[2:])


def wrong_backend(came: Came) -> Came:
    return (*came[:4], flipped(14 + 19)(came[4]) if came[4][12] == 8 else flipped(14 + 39)(came[4]))


def spoilt_inner(came: Came) -> Came:
    return (*came[:4], flipped(len(came[4]) - 1)(came[4]))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lost_at_two, "no canary came back from worker 2"),
        (wrong_fate, "worker 0: fate no_neighbor (the MAC of the backend's next hop is not known), expected hash_un"),
        (wrong_backend, "worker 0: the packet for backend web"),
        (spoilt_inner, "came out wrong"),
    ],
)
async def test_a_canary_that_does_not_come_out_right_makes_the_forwarder_sick(
    spoil: Callable[[Came], Came | None], reason: str
) -> None:
    bird, plane = flight_over(STATE)
    plane.spoil = spoil
    flight: Flight = await bird.fly()
    assert (flight.passed, flight.sick) == (False, True)
    assert reason in flight.reason


async def test_late_canaries_of_a_round_given_up_are_not_counted_for_the_next() -> None:
    bird, plane = flight_over(STATE)
    plane.came.extend((worker, "no_neighbor", 0, 0, b"") for worker in range(3))
    assert (await bird.fly()).passed
    plane.spoil = lambda came: None
    plane.came.extend((worker, "own_untracked", 0, 0, b"") for worker in range(3))
    assert "no canary came back" in (await bird.fly()).reason


@pytest.mark.parametrize("fate", ["ring_full", "transmit_full"])
async def test_a_canary_that_finds_a_full_ring_is_sent_again(fate: str) -> None:
    bird, plane = flight_over(STATE)
    crowded = iter([True, True, False, True])
    plane.spoil = lambda came: (came[0], fate, *came[2:]) if next(crowded, False) else came
    flight = await bird.fly()
    assert flight.passed
    assert "by backend web" in flight.reason
    assert len(plane.injected) == 6


async def test_overload_alone_is_no_sickness() -> None:
    bird, plane = flight_over(STATE)
    plane.spoil = lambda came: (came[0], "ring_full", *came[2:])
    flight = await bird.fly()
    assert (flight.passed, flight.sick) == (True, False)
    assert "full rings" in flight.reason


async def test_a_pool_that_stays_empty_is_sickness(monkeypatch: pytest.MonkeyPatch) -> None:
    bird, plane = flight_over(STATE)

    def refuse(frame: bytes, worker: int) -> None:
        raise DataplaneError("inject a packet", errno.ENOBUFS)

    monkeypatch.setattr(plane, "inject", refuse)
    flight = await bird.fly()
    assert (flight.passed, flight.sick) == (False, True)


async def test_a_state_that_changes_in_flight_is_flown_over_again() -> None:
    bird, plane = flight_over(STATE)
    forwarding = cast(FakeForwarding, bird._forwarding)

    def changed_meanwhile(came: Came) -> Came:
        forwarding.applied = Applied(plane.state)
        plane.spoil = lambda later: later
        return wrong_fate(came)

    plane.spoil = changed_meanwhile
    assert (await bird.fly()).passed
