"""Keeps one program running: adopts or starts it, restarts it with backoff, stops it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog

from controller.backoff import Backoff
from controller.process import Exit, Process, Program, adopt, spawn
from controller.tasks import background, end

log = structlog.get_logger(__name__)


class Supervisor:
    """The life of one program. Callbacks are plain functions: they are called at once and must not block.

    `on_start(process)` comes after every start or adoption, `on_exit(ended)` when the process is gone.
    """

    def __init__(
        self,
        program: Program,
        *,
        on_start: Callable[[Process], None] = lambda process: None,
        on_exit: Callable[[Exit], None] = lambda ended: None,
        backoff: Backoff | None = None,
    ) -> None:
        self.program = program
        self.process: Process | None = None
        self.starts = 0
        self.last_exit: Exit | None = None
        self._on_start = on_start
        self._on_exit = on_exit
        self._backoff = backoff or Backoff()
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the program while it runs."""
        return self.process.pid if self.process else None

    @property
    def restarts(self) -> int:
        """How often it had to be started again."""
        return max(0, self.starts - 1)

    def start(self) -> None:
        """Begin to keep the program running."""
        self._task = background(self._keep_running(), f"supervise {self.program.name}")

    def kill(self, reason: str) -> None:
        """Kill the program at once; it is started again."""
        if self.process:
            log.warning("killing", program=self.program.name, pid=self.process.pid, reason=reason)
            self.process.send(signal.SIGKILL)

    async def restart(self, grace: float, reason: str) -> None:
        """Stop the program in good order; it is started again."""
        if self.process:
            log.info("restarting", program=self.program.name, pid=self.process.pid, reason=reason)
            await self.process.stop(grace)

    async def stop(self, grace: float) -> None:
        """Stop the program and keep it stopped."""
        await end(self._task)
        if self.process:
            ended = await self.process.stop(grace)
            self.process = None
            if ended.code is not None and ended.code > 0:
                log.error("not ended well", program=self.program.name, how=str(ended))

    async def _keep_running(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                ended = await self._run_once()
            except OSError as error:
                ended = Exit(None, f"cannot start: {error.strerror}")
            self.last_exit = ended
            wait = self._backoff.after(clock() - began)
            log.warning("ended", program=self.program.name, how=str(ended), restart_in=wait)
            self._on_exit(ended)
            await asyncio.sleep(wait)

    async def _run_once(self) -> Exit:
        process = adopt(self.program) or spawn(self.program)
        self.process = process
        self.starts += 1
        log.info("adopted" if process.adopted else "started", program=self.program.name, pid=process.pid)
        self._on_start(process)
        ended = await process.wait()
        self.process = None
        return ended
