"""The controller process: one node, its API and its signals, from start to a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import structlog

from controller.api import Api
from controller.app import Node, ReloadRefusedError, StartError
from controller.collector import collect_seldom
from controller.config import Config, ConfigError
from controller.forwarder_unit import COMMAND
from controller.metrics_listener import MetricsListener
from controller.pid_file import AlreadyLockedError, PidFile
from controller.probe_tunnel import ProbeTunnelError
from controller.rundir import RunDir
from controller.tasks import background, end

log = structlog.get_logger(__name__)


async def serve(path: Path, config: Config, run_dir: RunDir, *, forwarder_command: tuple[str, ...] = COMMAND) -> None:
    """Run the node until it is told to end. Raises StartError when it cannot start."""
    os.umask(0o027)
    collect_seldom()
    run_dir.create()
    pid_file = PidFile(run_dir.controller_pid)
    try:
        pid_file.lock()
    except AlreadyLockedError as error:
        raise StartError(f"node {run_dir.name} is already running as pid {error.pid}") from error
    try:
        await _run(Node(path, config, run_dir, forwarder_command=forwarder_command))
    finally:
        pid_file.release()
        run_dir.remove_if_empty()


async def _run(node: Node) -> None:
    stop = _Stop()
    api = Api(node)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    reloads = _Reloads(node)
    loop.add_signal_handler(signal.SIGHUP, reloads.begin)
    listener = MetricsListener(node)
    await api.start()
    await listener.start()
    starting = asyncio.create_task(node.start())
    try:
        await stop.first_or(starting)
        if starting.done():
            await starting
            log.info("ready", node=node.config.node.name)
            await stop.first.wait()
        if node.announced:
            await _drain(node, stop)
    finally:
        await end(starting)
        await listener.stop()
        await api.stop()
        await node.stop()


async def _drain(node: Node, stop: _Stop) -> None:
    """Withdraw, then forward for the drain time what routers and clients still send."""
    drain_time = node.config.node.drain_time
    log.info("draining", seconds=drain_time)
    drained = background(_withdraw_and_wait(node, drain_time), "drain")
    await stop.second_or(drained)
    await end(drained)


async def _withdraw_and_wait(node: Node, drain_time: float) -> None:
    await node.withdraw()
    await asyncio.sleep(drain_time)


class _Stop:
    """The first signal asks for a clean end, the second for one at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def ask(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    async def first_or(self, task: asyncio.Task[None]) -> None:
        await _either(self.first, task)

    async def second_or(self, task: asyncio.Task[None]) -> None:
        await _either(self.second, task)


async def _either(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


class _Reloads:
    """Reloads on SIGHUP; a bad file is logged and changes nothing."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = background(self._reload(), "reload")

    async def _reload(self) -> None:
        try:
            await self._node.reload()
        except (ConfigError, ReloadRefusedError, ProbeTunnelError) as error:
            log.error("reload refused, the old configuration goes on", reason=str(error))
