"""ExaBGP as the speaker: its configuration, its process, and our end of the lease."""

from __future__ import annotations

import asyncio
import base64
import os
import pwd
import sys
from collections.abc import Collection
from ipaddress import ip_address, ip_network
from pathlib import Path

from controller.config_sections import Bgp, Neighbor
from controller.model import Address
from controller.process import Process, Program
from controller.rundir import RunDir, write_private
from controller.speakers import lease_helper
from controller.speakers.lease import LeaseServer
from controller.supervisor import Supervisor
from controller.tasks import background, end

STOP_GRACE = 3.0
DEAF_SECONDS = 5.0
"""A speaker that confirms nothing for this long, and for two leases, is started anew."""
START_PATIENCE = 25.0
"""So much longer it may take when it was just started: on a slow machine it only loads for many seconds."""
QUIET_SECONDS = 3.0
"""One that confirms nothing for this long does not count as connected."""


class ExabgpSpeaker:
    """Runs ExaBGP in a session of its own and speaks to its helper."""

    kind = "exabgp"

    def __init__(self, bgp: Bgp, run_dir: RunDir) -> None:
        self._bgp = bgp
        self._run_dir = run_dir
        self._lease = LeaseServer(run_dir.lease_socket, bgp.lease)
        self._supervisor = Supervisor(program(run_dir), on_start=self._started)
        self._configuration = render_configuration(bgp, run_dir)
        self._adopted = asyncio.Event()
        self._first: Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """ExaBGP's pid while it runs."""
        return self._supervisor.pid

    @property
    def connected(self) -> bool:
        """Whether ExaBGP and its helper listen and answer."""
        return self._lease.connected and self._lease.silent_for < QUIET_SECONDS

    @property
    def sessions(self) -> dict[str, str]:
        """By neighbor: "up", "down - REASON", or "unknown" while nothing was heard of it."""
        heard = self._lease.report.sessions if self._lease.report else {}
        return {str(n.address): heard.get(str(n.address), "unknown") for n in self._bgp.neighbors}

    async def start(self) -> None:
        """Listen for the helper, then start ExaBGP or adopt it; one with other settings is restarted."""
        path = self._run_dir.exabgp_configuration
        same = path.exists() and path.read_text(encoding="utf-8") == self._configuration
        write_private(path, self._configuration)
        write_private(self._run_dir.exabgp_environment, render_environment())
        await self._lease.start()
        self._supervisor.start()
        await self._adopted.wait()
        if self._first and self._first.adopted and not same:
            await self._supervisor.restart(STOP_GRACE, "its configuration has changed")
            self._first = None
        self._watch = background(self._restart_when_deaf(), "watch speaker")

    async def standing(self, within: float) -> frozenset[Address] | None:
        """What an adopted ExaBGP announces; a new one announces nothing."""
        if self._first is None or not self._first.adopted:
            return frozenset()
        report = await self._lease.greeted(within)
        if report is None or report.announced is None:
            return None
        return frozenset(ip_address(prefix.partition("/")[0]) for prefix in report.announced)

    def want(self, addresses: Collection[Address], known: Collection[Address]) -> None:
        """Announce exactly these; an address without a next hop of its family cannot be announced."""
        routes = {}
        for address in addresses:
            next_hop = self._bgp.next_hop.of(address.version)
            if next_hop is not None:
                routes[str(ip_network(address))] = str(next_hop)
        self._lease.want(routes, [str(ip_network(address)) for address in known])

    async def settled(self, within: float) -> bool:
        """Whether ExaBGP has taken the last wish."""
        return await self._lease.settled(within)

    async def stop(self) -> None:
        """End ExaBGP: its sessions close, its routes go with them."""
        await end(self._watch)
        await self._supervisor.stop(STOP_GRACE)
        await self._lease.close()
        self._run_dir.speaker_pid.unlink(missing_ok=True)

    def _started(self, process: Process) -> None:
        self._lease.excuse(0.0 if process.adopted else START_PATIENCE)
        if not self._adopted.is_set():
            self._first = process
            self._adopted.set()

    async def _restart_when_deaf(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.pid is not None and self._lease.silent_for > max(DEAF_SECONDS, 2 * self._bgp.lease):
                self._supervisor.kill("it does not answer")


def render_configuration(bgp: Bgp, run_dir: RunDir) -> str:
    """ExaBGP's configuration file: one process, the helper, and the neighbors. No graceful restart, ever."""
    helper = Path(lease_helper.__file__).absolute()
    command = f'"{sys.executable}" -I -S "{helper}" "{run_dir.lease_socket}" {bgp.lease:g}'
    families = [version for version in (4, 6) if bgp.next_hop.of(version) is not None] or [4]
    blocks = [f"process lease {{\n    run {command};\n    encoder text;\n}}\n"]
    blocks += [_render_neighbor(bgp, neighbor, families) for neighbor in bgp.neighbors]
    return "\n".join(blocks)


def _render_neighbor(bgp: Bgp, neighbor: Neighbor, families: list[int]) -> str:
    lines = [
        f"router-id {bgp.router_id};",
        "local-address auto;",  # the kernel's choice, made at each connect
        f"local-as {bgp.local_as};",
        f"peer-as {neighbor.remote_as};",
        f"hold-time {neighbor.hold_time:.0f};",
        "adj-rib-in false;",
        "capability { route-refresh enable; graceful-restart disable; }",
        f"family {{ {' '.join(f'ipv{version} unicast;' for version in families)} }}",
        "api { processes [ lease ]; neighbor-changes; }",
    ]
    if neighbor.password is not None:  # base64: the file's syntax cannot quote every character
        encoded = base64.b64encode(neighbor.password.encode()).decode()
        lines += [f'md5-password "{encoded}";', "md5-base64 true;"]
    return f"neighbor {neighbor.address} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def render_environment() -> str:
    """ExaBGP's settings: in the foreground, as the same user, no file, no pipe, no port of its own."""
    return (
        f"[exabgp.daemon]\ndaemonize = false\ndrop = false\nuser = '{_user()}'\npid = ''\n"
        "umask = '0137'\n\n"
        "[exabgp.api]\nack = true\ncli = false\nrespawn = true\nterminate = false\n\n"
        "[exabgp.log]\ndestination = 'stderr'\nlevel = WARNING\nshort = false\n\n"
        "[exabgp.tcp]\nbind = ''\n"
    )


def _user() -> str:
    """The user to stay: ExaBGP started by root becomes whoever it is told, whatever `drop` says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "nobody"  # without a name we are not root, and ExaBGP stays what it is


def program(run_dir: RunDir) -> Program:
    """How ExaBGP is run, and known again."""
    exabgp = (sys.executable, "-m", "exabgp", "server", str(run_dir.exabgp_configuration))
    return Program(
        name="exabgp",
        argv=(sys.executable, "-m", "controller.locked_exec", str(run_dir.speaker_pid), *exabgp),
        pid_file=run_dir.speaker_pid,
        log=run_dir.speaker_log,
        environment={"EXABGP_ENVFILE": str(run_dir.exabgp_environment)},
    )
