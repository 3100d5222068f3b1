"""One running forwarder: pool, ports, stages, and what it answers on its control socket."""

import asyncio
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from forwarder import af_xdp, environment, layout, pci
from forwarder._dataplane import ANY_SOCKET, FATE_KINDS, REASONS, STEERING_SEED, Dataplane, PacketPool, cleanup
from forwarder.canary import Canary
from forwarder.control import Handler, Request, RequestRefused, flow_of
from forwarder.forwarding import Forwarding
from forwarder.kept_tables import KeptTables
from forwarder.neighbors import Neighbors
from forwarder.next_hops import NextHops
from forwarder.ports import interface_index, link_up, open_ports, open_taps
from forwarder.settings import PortSettings, Refused, Settings
from forwarder.taps import Tap

WEIGH_PERIOD = 1.0  # seconds between looks at the load bounds
LINK_PERIOD = 0.5  # seconds between looks at the links that taps follow
REAP_PERIOD = 2.0  # seconds between looks whether removed backends have lost their last flow

log = structlog.get_logger()


class Node:
    """Owns the data plane from start to stop. Raises Refused when it cannot start as asked."""

    def __init__(self, settings: Settings, run_dir: Path) -> None:
        self._settings = settings
        self._kept = KeptTables(run_dir, settings)
        self._taps: list[Tap | None] = []
        try:
            for port in settings.ports:
                if port.driver == "pci":
                    pci.check(port.device)
            interfaces = [self._interface(port) for port in settings.ports]
            usable = environment.usable_cpus(settings.cpus)
            lcores = environment.start(settings, self._kept.new_hugepage_bytes)
            node = pci.numa_node(settings.ports)
            with pci.near(node):
                self._open(ANY_SOCKET if node is None else node, usable)
        except Refused:
            self._kept.give_up()
            self._close_taps()
            raise
        for index, port in enumerate(settings.ports):
            # A kernel may be at the other end of any wire but that of a real NIC, and leave checksums to it. Under
            # af_xdp it has kept for itself what is not ours.
            punts, unfinished = port.driver == "af_packet", port.driver != "pci"
            # The kernel keeps an interface's frames that are not for it (ports.py, xdp/ours.bpf.c). The MAC of a
            # virtual device without an interface beside it is nobody's.
            only_own = port.driver == "pci" or port.tap is not None
            self._dataplane.set_port(index, port.mtu, punts=punts, unfinished=unfinished, only_own=only_own)
        self._hops = NextHops(settings.ports, interfaces)
        self._forwarding = Forwarding(
            self._dataplane, self._hops, settings.sources, settings.node, self._kept.ids, self._kept.note
        )
        self._canary = Canary(self._dataplane, self._forwarding, self._hops, settings)
        self._neighbors = Neighbors(self._hops, self._forwarding.follow_next_hops)
        self._applying = asyncio.Lock()
        self._states_applied = 0
        self._build_seconds = 0.0
        self._last_build_seconds = 0.0
        self._kept.take_over(self._dataplane)
        self._dataplane.start(lcores if self._layout.name == "software" else lcores[1:-1])

    def _interface(self, port: PortSettings) -> int | None:
        """The kernel's interface that has what is not ours: the port itself, or a tap beside it, which is made."""
        tap = Tap(port.tap) if port.tap else None
        self._taps.append(tap)
        return tap.index if tap else interface_index(port)

    def _close_taps(self) -> None:
        for tap in filter(None, self._taps):
            tap.close()

    def _open(self, memory: int, usable: set[int]) -> None:
        """Pool, with the `memory` of a NUMA node, ports and data plane on `usable` CPUs. Raises Refused."""
        settings = self._settings
        try:
            umem = af_xdp.is_among(settings.ports)
            self._pool = PacketPool("packet_pool", settings.packet_pool, socket=memory, umem=umem)
        except Exception as error:
            raise Refused(f"the packet pool could not be made: {error}.") from error
        self._claims = af_xdp.Claims(settings.sources)
        self._ports = open_ports(settings.ports, self._pool, layout.queues(settings), self._claims)
        try:
            self._layout = layout.in_force(settings, self._ports)
        except Exception as error:
            raise Refused(f"the ports could not be given one queue each: {error}.") from error
        if self._layout.instead is not None:
            log.warning("another layout than asked for", reason=self._layout.instead)
        environment.check_cpus(self._layout.cpus, usable)
        self._tap_ports = open_taps(settings.ports, self._ports, self._taps, self._pool)
        tables = self._kept.open(self._layout.spread)
        try:
            self._dataplane = Dataplane(
                self._pool,
                [*self._ports, *self._tap_ports],
                settings.hash_key,
                workers=len(settings.worker_cpus),
                ring_size=settings.ring_size,
                connection_entries=settings.connection_entries,
                connection_seconds=settings.connection_seconds,
                idle=self._layout.idle,
                layout=self._layout.name,
                steering_seed=STEERING_SEED,
                tables=tables,
            )
        except Exception as error:
            raise Refused(f"the data plane could not be made: {error}.") from error

    @property
    def handlers(self) -> dict[str, Handler]:
        """What the control socket answers, by `op`."""
        return {
            "ping": self.ping,
            "state": self.state,
            "churn": self.churn,
            "stats": self.stats,
            "canary": self.canary,
            "lookup": self.lookup,
            "flush": self.flush,
        }

    async def run(self) -> None:
        """Follow the kernel and the links, reap drained backends and weigh the others until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._neighbors.run())
            group.create_task(self._reap())
            group.create_task(self._weigh())
            group.create_task(self._follow_links())

    async def _weigh(self) -> None:
        while True:
            await asyncio.sleep(WEIGH_PERIOD)
            self._dataplane.weigh()

    async def _follow_links(self) -> None:
        while any(self._taps):
            for port, tap in zip(self._ports, self._taps, strict=True):
                if tap is not None:
                    tap.follow(port.link_up)  # raises TapGone, which ends the forwarder
            await asyncio.sleep(LINK_PERIOD)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_PERIOD)
            try:
                self._forwarding.reap()
            except Exception:  # the forwarder goes on forwarding
                log.exception("reaping failed")

    def stop(self) -> int:
        """Stop the stages and give everything back; returns how many packets are missing from the pool."""
        self._dataplane.close()
        self._kept.end()
        self._claims.end()
        for port in [*self._tap_ports, *self._ports]:
            port.close()
        self._close_taps()
        self._claims.take_back(self._pool)
        missing = self._pool.missing
        self._pool.close()
        cleanup()
        return missing

    async def ping(self, _: Request) -> dict[str, Any]:
        """Who this is, which state it has, and whether every lcore turns."""
        applied = self._forwarding.applied
        cpus = self._layout.cpus
        return {
            "pid": os.getpid(),
            "fingerprint": self._settings.fingerprint,
            "generation": applied.generation,
            "digest": applied.digest,
            "steering": {"layout": self._layout.name, "instead": self._layout.instead},
            "lcores": [
                {"stage": stage, "index": index, "cpu": cpus[position], "turns": turns}
                for position, (stage, index, turns) in enumerate(self._dataplane.turns())
            ],
            "ports": [
                {"device": settings.device, "link": link_up(settings, port)}
                for settings, port in zip(self._settings.ports, self._ports, strict=True)
            ],
        }

    async def state(self, request: Request) -> dict[str, Any]:
        """Apply a state, whole or not at all. Tables are built on a thread, so that pings are answered meanwhile."""
        async with self._applying:
            began = time.monotonic()
            prepared = await asyncio.to_thread(self._forwarding.prepare, request.get("state") or {})
            with self._claims.turning_to(prepared.message, self._forwarding.applied.message):
                applied = self._forwarding.apply(prepared)
            self._last_build_seconds = time.monotonic() - began
            self._build_seconds += self._last_build_seconds
            self._states_applied += 1
        self._neighbors.look_soon()
        log.info(
            "state applied",
            generation=applied.generation,
            digest=applied.digest,
            vips=len(applied.message.vips),
            backends=len(applied.message.backends),
        )
        return {"generation": applied.generation, "digest": applied.digest}

    async def churn(self, request: Request) -> dict[str, Any]:
        """What a state would do to the live flows, see Churn.count(). Changes nothing, gives no numbers away."""
        prepared = await asyncio.to_thread(self._forwarding.rehearsal(), request.get("state") or {})
        return {"vips": await asyncio.to_thread(self._forwarding.churn(prepared).count)}

    async def stats(self, _: Request) -> dict[str, Any]:
        """Every counter there is."""
        vips, backends = self._forwarding.traffic()
        return {
            "received": self._dataplane.received,
            "fates": self._dataplane.fates(),
            "reasons": self._reasons(),
            "vips": vips,
            "backends": backends,
            "ports": self._port_stats(),
            "held": self._dataplane.held,
            "pool": {"size": self._pool.size, "free": self._pool.available, "pieces": self._pool.pieces},
            "workers": [self._dataplane.worker(i) for i in range(len(self._settings.worker_cpus))],
            "connections": self._kept.describe(),
            "own": {"canaries": self._dataplane.own, "pieces": self._dataplane.pieces},
            "next_hops": self._hops.describe(),
            "path_mtus": self._forwarding.path_mtus(),
            "load_bounds": self._forwarding.load_bounds(),
            "states": {
                "applied": self._states_applied,
                "build_seconds": self._build_seconds,
                "last_build_seconds": self._last_build_seconds,
            },
        }

    def _reasons(self) -> dict[str, dict[str, Any]]:
        """Why packets met their fates: the reasons that occurred, told to a reader that has no list of them."""
        told = {}
        for reason, packets in self._dataplane.reasons().items():
            if packets:
                fate, text = REASONS[reason]
                told[reason] = {"fate": fate, "kind": FATE_KINDS[fate], "packets": packets, "text": text}
        return told

    def _port_stats(self) -> list[dict[str, Any]]:
        """Of the ports of the configuration, then of the taps beside some of them: in the order of their numbers."""
        nics = list(zip(self._settings.ports, self._ports, strict=True))
        rows = [
            (settings.device, port.missed + self._claims.missed(index), port.mac, settings.mtu)
            for index, (settings, port) in enumerate(nics)
        ]
        beside = [(settings, nic) for settings, nic in nics if settings.tap]
        for port, (settings, nic) in zip(self._tap_ports, beside, strict=True):
            rows.append((port.name, port.missed, nic.mac, settings.mtu))
        return [
            {"device": device, **self._dataplane.rings(index), "missed": missed, "mac": mac.hex(":"), "mtu": mtu}
            for index, (device, missed, mac, mtu) in enumerate(rows)
        ]

    async def canary(self, _: Request) -> dict[str, Any]:
        """Fly a canary by way of every worker."""
        return asdict(await self._canary.fly())

    async def lookup(self, request: Request) -> dict[str, Any]:
        """What would happen to a packet of one flow."""
        answer = self._forwarding.lookup(*flow_of(request))
        return {
            "vip": answer.vip,
            "hash": f"{answer.hash:#018x}",
            "slot": answer.slot,
            "backend": answer.backend,
            "source": "connection" if answer.tracked else "table",
            "fate": answer.fate,
        }

    async def flush(self, request: Request) -> dict[str, Any]:
        """End the flows of a backend; null: of all."""
        backend = request.get("backend")
        if not self._forwarding.flush(None if backend is None else str(backend)):
            raise RequestRefused(f"there is no backend {backend}")
        return {}
