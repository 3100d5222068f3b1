"""The forwarder as the node sees it: its process, its fitness, and the state that it has acknowledged."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

import structlog

from controller.fitness import STARTING, Fitness
from controller.forwarder_client import ForwarderClient, Json
from controller.forwarder_watch import ForwarderWatch
from controller.process import Exit, Process, Program
from controller.rundir import RunDir, write_private
from controller.supervisor import Supervisor
from controller.tasks import background
from forwarder.hashing.digest import fingerprint, state_digest

log = structlog.get_logger(__name__)

COMMAND = (sys.executable, "-m", "forwarder")
STOP_GRACE = 5.0
REFUSED = 2
"""The exit status of a forwarder that does not accept its settings."""


class ForwarderUnit:
    """`on_change()` tells that fitness or process have changed; it must not block."""

    def __init__(
        self,
        run_dir: RunDir,
        settings: Json,
        on_change: Callable[[], None],
        *,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.client = ForwarderClient(run_dir.forwarder_socket)
        self.fingerprint = fingerprint(settings)
        self.acknowledged: Json | None = None
        self.generation = 0
        self._run_dir = run_dir
        self._settings = settings
        self._on_change = on_change
        self._stopped = Fitness(False, "not started")
        self._refusal: Exit | None = None
        self._answered = False
        self._watch: ForwarderWatch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        argv = (*command, str(run_dir.path))
        program = Program("forwarder", argv, run_dir.forwarder_pid, run_dir.forwarder_log)
        self.supervisor = Supervisor(program, on_start=self._started, on_exit=self._ended)

    @property
    def fitness(self) -> Fitness:
        """Whether it may attract traffic."""
        return self._watch.fitness if self._watch else self._stopped

    @property
    def ping(self) -> Json | None:
        """What the running process answered to the last ping."""
        return self._watch.ping if self._watch else None

    @property
    def canary(self) -> str:
        """What the last canary found."""
        return self._watch.canary.reason if self._watch else "not sent yet"

    @property
    def adopted(self) -> bool:
        """Whether the running process was started by an earlier controller."""
        return self.supervisor.process is not None and self.supervisor.process.adopted

    async def start(self) -> None:
        """Adopt the running forwarder or start one; returns when one of the two is done."""
        write_private(self._run_dir.forwarder_settings, json.dumps(self._settings))
        self.supervisor.start()
        await self._until(lambda: self.supervisor.starts > 0 or self.supervisor.last_exit is not None)

    async def first_answer(self) -> Json | Exit:
        """The first answer to a ping, or how it ended when it refuses its settings at the first start."""
        await self._until(lambda: self.ping is not None or self._refusal is not None)
        answer = self.ping or self._refusal
        assert answer
        self._answered = True
        return answer

    async def has(self, state: Json) -> bool:
        """Whether it runs on this state; an adopted forwarder is known by its digest."""
        if self.acknowledged is not None:
            return self.acknowledged == state
        known = self.ping["digest"] if self.ping and self.adopted else None
        if known is None or known != await asyncio.to_thread(state_digest, state):
            return False
        self.acknowledged = state
        return True

    async def push(self, state: Json) -> None:
        """Make this the forwarding state; raises ForwarderError and then nothing has changed."""
        process = self.supervisor.process
        answer = await self.client.push(state)
        if process is not self.supervisor.process or self._watch is None:
            return  # another process runs by now; it knows nothing of this state
        self.acknowledged = state
        self.generation = int(answer["generation"])
        self._watch.ask_canary()

    async def restart(self, reason: str) -> None:
        """Stop it in good order; it is started again with our settings."""
        await self.supervisor.restart(STOP_GRACE, reason)

    async def stop(self) -> None:
        """End it."""
        self._forget()
        await self.supervisor.stop(STOP_GRACE)

    def _started(self, process: Process) -> None:
        self._watch = ForwarderWatch(self.client, adopted=process.adopted, on_change=self._fitness_changed)
        self._watching = background(self._watch.run(), "watch forwarder")
        self._watching.add_done_callback(self._watch_ended)
        self._tell()

    def _watch_ended(self, watching: asyncio.Task[None]) -> None:
        """A fault of ours ended the watch: what is not watched attracts nothing, and a new process gets a new one."""
        if not watching.cancelled() and watching is self._watching:
            self._watch, self._stopped = None, Fitness(False, "its watch has failed", sick=True)
            self._fitness_changed()

    def _ended(self, ended: Exit) -> None:
        self._forget()
        self._stopped = Fitness(False, str(ended))
        if ended.code == REFUSED and not self._answered:
            self._refusal = ended
        self._tell()

    def _fitness_changed(self) -> None:
        if self.ping and self.acknowledged is None:
            self.generation = int(self.ping["generation"])
        if self.fitness is not STARTING:
            log.info("forwarder", fit=self.fitness.fit, reason=self.fitness.reason)
        self._tell()
        if self.fitness.sick:  # told first: what it cannot serve is withdrawn before it is killed
            self.supervisor.kill(self.fitness.reason)

    def _forget(self) -> None:
        if self._watching:
            self._watching.cancel()
        self._watch = self._watching = None
        self.acknowledged = None
        self.generation = 0

    def _tell(self) -> None:
        self._changed.set()
        self._on_change()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()
