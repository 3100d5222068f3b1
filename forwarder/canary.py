"""The canary: a packet of our own through every stage and every worker, checked at the end and never sent.

It is what "the forwarder works" rests on: the answer is computed here from the state, not asked from the data plane.
"""

import asyncio
import struct
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import islice

from forwarder._dataplane import REASONS, Dataplane, DataplaneError
from forwarder.forwarding import Forwarding
from forwarder.hashing.flow import slot_hash
from forwarder.next_hops import NextHops
from forwarder.settings import Address, Settings
from forwarder.state_message import VipMessage

PATIENCE = 1.0  # seconds, for the packets and for a next hop to be resolved
POLL = 0.001
CROWDED = ("ring_full", "transmit_full")
# Addresses of the benchmarking networks (RFC 2544, RFC 5180): no client has them.
CLIENTS: dict[int, Address] = {4: ip_address("198.18.0.1"), 6: ip_address("2001:2::1")}
NOWHERE: Address = ip_address("198.18.255.254")
FIRST_PORT, TRIES = 40000, 256
VIPS_TRIED = 16  # when no next hop is resolved, asking for thousands of vips would hold the loop up
IPV4_TYPE, IPV6_TYPE = b"\x08\x00", b"\x86\xdd"


@dataclass(frozen=True, slots=True)
class Flight:
    """How a round went. `sick`: the forwarder is to blame, and not the network around it."""

    passed: bool
    reason: str
    sick: bool = False


def _sick(reason: str) -> Flight:
    return Flight(False, reason, sick=True)


@dataclass(frozen=True, slots=True)
class Expected:
    """What must come back: the fate, and for a forwarded packet the frame's start."""

    frame: bytes
    fates: tuple[str, ...]
    mac: bytes = b""
    outer: tuple[bytes, bytes] = (b"", b"")  # source and destination address
    backend: str | None = None

    def came_out_right(self, frame: bytes) -> bool:
        """Whether MAC, ethertype, outer addresses, GRE and the inner packet of `frame` are what they must be."""
        inner = self.frame[14:]
        if self.backend is None:
            return frame[6:] == self.frame[6:]  # the data plane has addressed it to itself
        source, destination = self.outer
        at = 14 + (12 if len(source) == 4 else 8)
        head = frame[: len(frame) - len(inner)]
        return (
            head[:6] == self.mac
            and head[12:14] == (IPV4_TYPE if len(source) == 4 else IPV6_TYPE)
            and head[at : at + 2 * len(source)] == source + destination
            and len(head) == 14 + (24 if len(source) == 4 else 44)
            and head[-4:] == bytes(2) + self.frame[12:14]
            and frame.endswith(inner)
        )


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def ip_packet(source: Address, destination: Address, protocol: int, payload: bytes) -> bytes:
    """An IPv4 (DF set) or IPv6 packet."""
    if isinstance(source, IPv6Address):
        return struct.pack("!IHBB", 0x60000000, len(payload), protocol, 64) + (
            source.packed + destination.packed + payload
        )
    addresses = source.packed + destination.packed
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0)
    return head[:10] + struct.pack("!H", _checksum(head + addresses)) + addresses + payload


def transport(protocol: int, source_port: int, destination_port: int) -> bytes:
    """A TCP SYN, or a UDP datagram with nothing in it. Checksums are the endpoints' business."""
    if protocol == 6:
        return struct.pack("!HHIIBBHHH", source_port, destination_port, 0, 0, 0x50, 0x02, 65535, 0, 0)
    return struct.pack("!HHHH", source_port, destination_port, 8, 0)


def ethernet(source: bytes, destination: bytes, packet: bytes) -> bytes:
    """An untagged frame around an IP packet."""
    return destination + source + (IPV4_TYPE if packet[0] >> 4 == 4 else IPV6_TYPE) + packet


def _takes_flows(vip: VipMessage) -> bool:
    return bool(vip.weights)


class Canary:
    """Sends canaries through a running data plane; one round at a time."""

    def __init__(self, dataplane: Dataplane, forwarding: Forwarding, hops: NextHops, settings: Settings) -> None:
        self._dataplane = dataplane
        self._forwarding = forwarding
        self._hops = hops
        self._settings = settings
        self._lock = asyncio.Lock()

    async def fly(self) -> Flight:
        """One canary by way of each worker."""
        async with self._lock:
            while True:
                applied, macs = self._forwarding.applied, self._hops.resolved()
                flight = await self._fly_once()
                if not flight.sick or (applied is self._forwarding.applied and macs == self._hops.resolved()):
                    return flight  # else it was judged by a state, or a MAC, that changed while it flew

    async def _fly_once(self) -> Flight:
        while self._dataplane.collect() is not None:
            pass  # late ones of a round that was given up
        expected = await self._expected()
        if isinstance(expected, str):
            return Flight(False, expected)
        return await self._collect(expected, set(range(len(self._settings.worker_cpus))))

    async def _collect(self, expected: Expected, missing: set[int]) -> Flight:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        to_send, crowded = set(missing), False
        while missing and loop.time() < deadline:
            to_send -= {worker for worker in to_send if self._sent(expected, worker)}
            came = self._dataplane.collect()
            if came is None:
                await asyncio.sleep(POLL)
                continue
            worker, reason, _, _, frame = came
            fate, words = REASONS[reason]
            if fate in CROWDED:  # a flood is no fault of the forwarder: it had no room, so once more
                crowded = True
                to_send.add(worker)
                await asyncio.sleep(POLL)
                continue
            missing.discard(worker)
            if fate not in expected.fates:
                return _sick(f"worker {worker}: fate {fate} ({words}), expected {' or '.join(expected.fates)}")
            if not expected.came_out_right(frame):
                return _sick(f"worker {worker}: the packet for backend {expected.backend} came out wrong")
        if missing and crowded:
            return Flight(True, "not judged: the forwarder drops by full rings, a canary found no room")
        if missing:
            return _sick(f"no canary came back from worker {min(missing)} within {PATIENCE:g} s")
        if expected.backend is None:
            return Flight(True, "passed; no vip has a backend that takes new flows")
        return Flight(True, f"passed, by backend {expected.backend}")

    def _sent(self, expected: Expected, worker: int) -> bool:
        try:
            self._dataplane.inject(expected.frame, worker)
        except DataplaneError:  # no buffer is free: later
            return False
        return True

    async def _expected(self) -> Expected | str:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        unresolved = None
        while True:
            for vip in islice(filter(_takes_flows, self._forwarding.applied.message.vips), VIPS_TRIED):
                found = self._through(vip)
                if isinstance(found, Expected):
                    return found
                unresolved = found
            if unresolved is None:
                return self._to_nobody()
            if loop.time() > deadline:
                return unresolved
            await asyncio.sleep(PATIENCE / 20)

    def _to_nobody(self) -> Expected:
        packet = ip_packet(CLIENTS[4], NOWHERE, 6, transport(6, FIRST_PORT, 1))
        return Expected(ethernet(bytes(6), bytes(6), packet), ("punt", "not_vip"))

    def _through(self, vip: VipMessage) -> Expected | str:
        """A flow of the vip whose backend can be reached, or why there is none."""
        client = CLIENTS[vip.address.version]
        table = self._forwarding.table(vip)
        port = vip.port or 80
        affinity = "client" if vip.client_affinity else "flow"
        unresolved = ""
        for source_port in range(FIRST_PORT, FIRST_PORT + TRIES):
            hashed = slot_hash(
                self._settings.hash_key, client.packed, vip.address.packed, source_port, port, vip.protocol, affinity
            )
            name = table.names[table.slots[(hashed >> 32) % table.size]]
            backend = self._forwarding.applied.message.backends[name]
            mac = self._mac(backend)
            if mac is not None:
                packet = ip_packet(client, vip.address, vip.protocol, transport(vip.protocol, source_port, port))
                outer = (self._settings.sources[backend.version].packed, backend.packed)
                return Expected(ethernet(bytes(6), bytes(6), packet), ("hash_untracked",), mac, outer, name)
            unresolved = name
        return f"the next hop of backend {unresolved} is not resolved: no route by a port, or no neighbor there"

    def _mac(self, backend: Address) -> bytes | None:
        hop = self._hops.hop(backend)
        return self._hops.mac(hop) if hop is not None else None
