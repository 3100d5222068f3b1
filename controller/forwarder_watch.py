"""Watches one running forwarder: pings it, sends canaries, and tells when its fitness changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from controller.fitness import ADOPTED, NO_CANARY, STARTING, Canary, Fitness, Turns, judge, unreachable
from controller.forwarder_client import PING_TIMEOUT, Forwarder, ForwarderError, Json

PING_INTERVAL = 0.25
STARTING_INTERVAL = 0.05
CANARY_INTERVAL = 1.0
CANARY_RETRY = 0.25
OWN_STALL = 0.1
"""A timeout that comes so much too late tells of this process, not of the forwarder."""
START_PATIENCE = 30.0
"""How long a new forwarder may take before it answers at all: hugepages are cleared, links come up."""


class ForwarderWatch:
    """Made anew for every forwarder process. `on_change()` tells that `fitness` is another one now.

    One that was adopted is trusted until it is judged, and has no excuse for not answering.
    """

    def __init__(self, forwarder: Forwarder, *, adopted: bool, on_change: Callable[[], None]) -> None:
        self.fitness = ADOPTED if adopted else STARTING
        self.canary = Canary()
        self.ping: Json | None = None
        self._forwarder = forwarder
        self._on_change = on_change
        self._turns = Turns()
        self._stalled: list[str] = []
        self._silence: Fitness | None = None
        self._clock = asyncio.get_running_loop().time
        self._heard = self._clock()
        self._patience = 0.0 if adopted else START_PATIENCE
        self._asked = asyncio.Event()

    def ask_canary(self) -> None:
        """Send a canary now: a new state was applied."""
        self._asked.set()

    async def run(self) -> None:
        """Watch for ever; cancelled when the process ends. A canary may take its time: pings go on beside it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_pings())
            group.create_task(self._send_canaries())

    async def _send_pings(self) -> None:
        while True:
            now = self._clock()
            try:
                ping = await self._forwarder.ping()
                self._stalled = self._turns.stalled(ping["lcores"], now)
                self._look(judge(self._stalled, ping["ports"], self.canary), ping)
            except ForwarderError as error:
                if self._clock() - now > PING_TIMEOUT + OWN_STALL:
                    # We stood still, over a large file perhaps: its answer came while nobody looked.
                    self._heard = self._clock()
                    continue
                self._miss(str(error))
            except (KeyError, TypeError) as error:
                self._miss(f"the forwarder answered a ping without {error}")
            await asyncio.sleep(PING_INTERVAL if self.ping else STARTING_INTERVAL)

    async def _send_canaries(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                passed, reason, sick = await self._forwarder.canary()
            except ForwarderError as error:
                passed, reason, sick = False, str(error), True
            self.canary = self.canary.after(passed, reason, sick)
            if self.ping and not self._silence:
                self._tell(judge(self._stalled, self.ping["ports"], self.canary))
            with suppress(TimeoutError):
                async with asyncio.timeout(CANARY_INTERVAL if passed else CANARY_RETRY):
                    await self._asked.wait()
            self._asked.set()

    def _look(self, fitness: Fitness, ping: Json) -> None:
        """Take an answered ping."""
        self._heard = self._clock()
        self._silence = None
        self.ping = ping
        if ping["generation"] and self.canary.passed is None:
            self._asked.set()
            if fitness == NO_CANARY and self.fitness == ADOPTED:
                return
        self._tell(fitness)

    def _miss(self, reason: str) -> None:
        """Take a ping without a good answer."""
        silent_for = self._clock() - self._heard
        if self.ping is None and silent_for < self._patience:
            return
        self._silence = unreachable(reason, silent_for)
        self._tell(self._silence)

    def _tell(self, fitness: Fitness) -> None:
        if fitness != self.fitness:
            self.fitness = fitness
            self._on_change()
