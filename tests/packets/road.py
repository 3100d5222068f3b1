"""The packet's road for tests: a packet pool, memory ports, a data plane, and the forwarding state over it.

Stepped by hand with a clock of its own, or running on lcores. When it closes it asserts what must hold after every
run (DESIGN 4): conservation, the laws of the ring pointers, and the packet pool whole again.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from mmap import mmap
from typing import Any, NamedTuple

from forwarder._dataplane import FATE_KINDS, Dataplane, DataplaneError, PacketPool, Port, table_bytes
from forwarder.forwarding import Forwarding
from forwarder.next_hops import KernelView, NextHops
from forwarder.settings import PortSettings
from forwarder.table_ids import TableIds
from packets.world import GATEWAY_MAC, HASH_KEY, TUNNEL, TUNNEL6

LCORES = (1, 2, 3, 4, 5)  # as conftest.py makes them; each may share its CPU with others
BURST = 64
AT_ONCE = 256  # frames in a port before the road is stepped
PATIENCE = 20.0  # seconds; never waited for unless a test is about to fail


def port_settings(mtu: int = 1500, mac: str | None = GATEWAY_MAC) -> PortSettings:
    """A port whose next hop is fixed, or the kernel's business when `mac` is None."""
    fixed = bytes.fromhex(mac.replace(":", "")) if mac else None
    return PortSettings(device="memory", driver="memory", mtu=mtu, gateways={}, mac=fixed)


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Return once it holds; fails when it does not in time."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.001)


def assert_receive_law(indices: Mapping[str, int], size: int) -> None:
    i = indices
    assert i["processed"] <= i["received"] <= i["reserved"] <= i["processed"] + size, i


def assert_transmit_law(indices: Mapping[str, int | None], size: int) -> None:
    i = {name: value or 0 for name, value in indices.items()}
    assert i["recycled"] <= i["sent"] <= i["ready"] <= i["recycled"] + size, i


class End(NamedTuple):
    """What became of one packet: why, and the names of its vip and backend as far as it had them."""

    reason: str
    vip: str | None = None
    backend: str | None = None


@dataclass
class Kept:
    """Connection tables that outlive a road, and what was noted of their numbers last."""

    tables: list[mmap]
    ids: TableIds = field(default_factory=TableIds)

    @classmethod
    def new(cls, workers: int = 1, connections: int = 16384) -> Kept:
        return cls([mmap(-1, table_bytes(connections)) for _ in range(workers)])

    def note(self, ids: TableIds) -> None:
        self.ids = ids

    def copy(self) -> Kept:
        """All of it as it is at this moment."""
        copy = Kept([mmap(-1, len(table)) for table in self.tables], TableIds.from_json(self.ids.as_json()))
        for old, new in zip(self.tables, copy.tables, strict=True):
            new[:] = old[:]
        return copy


class KernelEnd:
    """The kernel at its interface beside a port: what a tap's files do, sockets do as well, a frame at a time."""

    def __init__(self, name: str, nic: int, queues: int) -> None:
        self.name = name
        self.nic = nic
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(queues)]
        self.ends = [kernel for kernel, _ in pairs]
        self._ours = [ours for _, ours in pairs]
        for end in self.ends + self._ours:
            end.setblocking(False)
        self._got: list[bytes] = []
        self._total = 0

    def files(self) -> list[int]:
        return [ours.fileno() for ours in self._ours]

    def drain(self) -> None:
        """Take what has come, before there is no more room."""
        for end in self.ends:
            with suppress(BlockingIOError):
                while frame := end.recv(65536):
                    self._got.append(frame)
                    self._total += 1

    def take(self) -> list[bytes]:
        self.drain()
        got, self._got = self._got, []
        return got

    def total(self) -> int:
        self.drain()
        return self._total

    def go_down(self) -> None:
        """Take nothing any more."""
        self.drain()
        for end in self.ends:
            end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in self.ends + self._ours:
            end.close()


class Road:
    """One data plane over memory ports; `view` is what a kernel would know of routes and neighbors.

    `node` and `sources`, its name and tunnel sources by IP version, tell several nodes in one test apart.
    With `kept` it goes on, at clock `now`, with the tables of a road before. In layout rss its ports have a queue for
    each worker, and spread frames over them as a NIC does. The kernel has an interface `beside` some of them.
    """

    def __init__(
        self,
        *,
        ports: Sequence[PortSettings] | None = None,
        mtu: int = 1500,
        punts: bool = False,
        only_own: Sequence[int] = (),
        view: KernelView | None = None,
        pool: int = 8192,
        workers: int = 1,
        ring_size: int = 1024,
        connections: int = 16384,
        seconds: tuple[int, int, int, int] = (10, 7200, 10, 60),
        idle: str = "sleep",
        trace: bool = False,
        kept: Kept | None = None,
        now: int = 1000,
        node: str = "lb1",
        sources: Mapping[int, str] | None = None,
        layout: str = "software",
        beside: Sequence[int] = (),
    ) -> None:
        settings = ports or [port_settings(mtu)]
        addresses = {4: TUNNEL, 6: TUNNEL6} if sources is None else sources
        self.ring_size = ring_size
        self.workers = workers
        self.layout = layout
        self.now = now
        self.whole: bool | None = None
        self.given = 0
        self.taken = [0] * len(settings)
        self.running = False
        self.pool = PacketPool(f"{node}_pool", pool)
        queues = workers if layout == "rss" else 1
        self.ports = [Port.memory(f"{node}_port{i}", i, self.pool, queues) for i in range(len(settings))]
        self.kernels = [KernelEnd(f"{node}_tap{nic}", nic, queues) for nic in beside]
        for kernel in self.kernels:
            self.ports.append(Port.kernel_side(kernel.name, len(self.ports), kernel.nic, self.pool, kernel.files()))
        self.dataplane = Dataplane(
            self.pool,
            self.ports,
            HASH_KEY,
            workers=workers,
            ring_size=ring_size,
            connection_entries=connections,
            connection_seconds=seconds,
            idle=idle,
            trace=trace,
            tables=kept.tables if kept else None,
            layout=layout,
        )
        for index, port in enumerate(settings):
            self.dataplane.set_port(index, port.mtu, punts, only_own=index in only_own)
        self.hops = NextHops(settings, [None if view is None else i + 1 for i in range(len(settings))])
        self.hops.view = view or KernelView()
        own = {version: ip_address(address) for version, address in addresses.items()}
        ids, note = (kept.ids, kept.note) if kept else (None, None)
        self.forwarding = Forwarding(self.dataplane, self.hops, own, node, ids, note or (lambda ids: None))
        if kept is not None:
            vips = [number for number, _ in kept.ids.vips.values()]
            self.whole = self.dataplane.take_over(dict(kept.ids.backends.values()), vips, self.now)

    def see(self, view: KernelView) -> None:
        """The kernel's routes or neighbors have changed."""
        self.hops.view = view
        self.forwarding.follow_next_hops()

    def apply(self, state: dict[str, Any]) -> None:
        self.forwarding.apply(self.forwarding.prepare(state))

    # -- packets

    def give(self, frames: Iterable[bytes], port: int = 0) -> int:
        """Let frames arrive, as many as pool and port have room for; returns how many."""
        accepted = 0
        for frame in frames:
            try:
                self.ports[port].give(frame)
            except DataplaneError:
                break
            accepted += 1
        self.given += accepted
        return accepted

    def take(self, port: int = 0) -> list[bytes]:
        """What has been sent by a port."""
        frames = []
        while (frame := self.ports[port].take()) is not None:
            frames.append(frame)
        self.taken[port] += len(frames)
        return frames

    def step(self) -> None:
        """Turn all stages by hand until nothing moves."""
        while self.dataplane.step(self.now):
            pass

    def send_by_port(self, frames: Iterable[bytes], port: int = 0) -> list[list[bytes]]:
        """Send frames through the road, stepped by hand; returns what came out of each port."""
        out: list[list[bytes]] = [[] for _ in self.taken]
        waiting = [bytes(frame) for frame in frames]
        for at in range(0, len(waiting), AT_ONCE):
            batch = waiting[at : at + AT_ONCE]
            assert self.give(batch, port) == len(batch)
            self.step()
            for index in range(len(self.taken)):
                out[index] += self.take(index)
            for kernel in self.kernels:
                kernel.drain()
        return out

    def send(self, *frames: bytes) -> list[bytes]:
        return self.send_by_port(frames)[0]

    def kernel_sends(self, *frames: bytes, tap: int = 0, queue: int = 0) -> None:
        """Let the kernel send frames by its interface, at most AT_ONCE."""
        for frame in frames:
            self.kernels[tap].ends[queue].send(frame)
        self.given += len(frames)
        wait_until(lambda: self.step() or self.dataplane.received == self.given, "the kernel's frames have come")
        self.step()

    def kernel_got(self, tap: int = 0) -> list[bytes]:
        """What the kernel has got by its interface since the last call."""
        return self.kernels[tap].take()

    def outwait_fragments(self) -> None:
        """Let the clock go on until no fragment waits for its first one."""
        while self.dataplane.held:
            self.now += 1
            self.step()

    def assert_laws(self) -> None:
        """The six pointers of every port keep their laws; in layout rss each counts for a queue of every worker."""
        rss = self.layout == "rss"
        for index in range(len(self.ports)):
            rings = self.dataplane.rings(index)
            assert_receive_law(rings["receive"], BURST * self.workers if rss else self.ring_size)
            assert_transmit_law(rings["transmit"], self.ring_size * (self.workers if rss else 1))

    # -- counters

    def fates(self) -> dict[str, int]:
        """Fates that happened, with their counts."""
        return {fate: n for fate, n in self.dataplane.fates().items() if n}

    def fates_of(self, *frames: bytes) -> dict[str, int]:
        """Send frames; returns the fates they had."""
        before = self.dataplane.fates()
        self.send(*frames)
        return {fate: n - before[fate] for fate, n in self.dataplane.fates().items() if n != before[fate]}

    def fate_of(self, frame: bytes) -> str:
        fates = self.fates_of(frame)
        assert list(fates.values()) == [1], fates
        return next(iter(fates))

    def connections(self) -> int:
        return self.dataplane.connections(self.now)

    def ends(self) -> dict[int, End]:
        """What became of packets since the last call, by their numbers, in the order in which they ended."""
        vips, backends = self.forwarding.names()
        return {
            number: End(reason, None if vip is None else vips[vip], None if backend is None else backends[backend])
            for number, reason, vip, backend in self.dataplane.traces()
        }

    # -- running on lcores

    def start(self) -> None:
        self.dataplane.start(LCORES[: len(self.dataplane.turns())])
        self.running = True

    def stop(self) -> None:
        self.dataplane.stop()
        self.running = False

    def settled(self) -> bool:
        """Whether every packet that was given has met its fate."""
        received = self.dataplane.received
        return received == self.given and sum(self.dataplane.fates().values()) == received

    def settle(self) -> None:
        wait_until(self.settled, "every packet has a fate")

    def take_all(self) -> list[bytes]:
        """Take what the running stages send by the first port until every packet has met its fate."""
        frames: list[bytes] = []

        def done() -> bool:
            frames.extend(self.take())
            return self.settled()

        wait_until(done, "every packet has a fate")
        return frames + self.take()

    # -- the end

    def verify(self) -> None:
        """Conservation and the laws of the rings, with nothing left on the road."""
        if self.running:
            self.take_all()
            self.stop()
        else:
            self.step()
            self.outwait_fragments()
        for index in range(len(self.taken)):
            self.take(index)
        self.dataplane.step(self.now)  # recycles what was taken
        fates = self.dataplane.fates()
        leaving = sum(n for fate, n in fates.items() if FATE_KINDS[fate] in ("forwarded", "answered"))
        leaving += fates["from_kernel"]
        assert self.dataplane.received == self.given
        assert self.dataplane.received == sum(fates.values()), fates
        assert sum(self.taken) == leaving + self.dataplane.pieces, (self.taken, fates)
        if self.kernels:
            refused = sum(port.missed for port in self.ports[len(self.taken) :])
            got = sum(kernel.total() for kernel in self.kernels)
            assert got <= fates["punt"] <= got + refused
        self.assert_laws()
        for index in range(len(self.ports)):
            rings = self.dataplane.rings(index)
            assert rings["receive"]["received"] == rings["receive"]["processed"]
            assert rings["transmit"]["recycled"] == rings["transmit"]["ready"]

    def close(self) -> None:
        """Give everything back; the pool must be whole."""
        self.dataplane.close()
        for port in self.ports:
            port.close()
        for kernel in self.kernels:
            kernel.close()
        missing = self.pool.missing
        self.pool.close()
        assert missing == 0, "packets or pieces did not return to the pool"


def allowed_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))
