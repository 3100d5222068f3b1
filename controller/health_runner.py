"""Runs the probes: one per (address, check), at a steady interval, and tells of transitions only."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from controller.config_sections import HealthCheck
from controller.health import Health
from controller.model import Address, CheckKey, Verdict
from controller.probes.result import Probe, ProbeResult
from controller.tasks import background

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Target:
    """One probed thing: its check as it was when its task was started, and what is known of it."""

    check: HealthCheck
    health: Health = field(default_factory=Health)
    since: float = field(default_factory=time.time)
    reason: str = "not probed yet"
    task: asyncio.Task[None] | None = None


class HealthRunner:
    """`make_probe` turns a target and its check into a probe; `on_change` must not block."""

    def __init__(
        self,
        make_probe: Callable[[CheckKey, HealthCheck], Probe],
        on_change: Callable[[CheckKey, Verdict, str], None],
    ) -> None:
        self._make_probe = make_probe
        self._on_change = on_change
        self.targets: dict[CheckKey, Target] = {}

    def verdicts(self) -> dict[CheckKey, Verdict]:
        """What is known now."""
        return {key: target.health.verdict for key, target in self.targets.items()}

    def set_targets(self, wanted: Mapping[CheckKey, HealthCheck], trusted: Collection[Address] = ()) -> None:
        """Probe exactly these. What is known of a target that stays is kept, even when its check has changed:
        a verdict is better than none, and the next results correct it. A new target at a `trusted` address, one
        that serves now, begins as up: a check that was added takes nothing away until it has failed."""
        for key in self.targets.keys() - wanted.keys():
            self._cancel(self.targets.pop(key))
        for key, check in wanted.items():
            target = self.targets.get(key)
            if target is not None and target.check == check:
                continue
            if target is None:
                target = self.targets[key] = Target(check)
                if key.address in trusted:
                    target.health = Health(Verdict.UP)
            else:
                self._cancel(target)
                target.check = check
                target.health = Health(target.health.verdict)
            target.task = background(self._watch(key, target), f"probe {key}")

    async def close(self) -> None:
        """Stop all probes and wait until none is under way."""
        tasks = [target.task for target in self.targets.values() if target.task]
        for target in self.targets.values():
            self._cancel(target)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, key: CheckKey, target: Target) -> None:
        check = target.check
        probe = self._make_probe(key, check)
        clock = asyncio.get_running_loop().time
        due = clock() + random.uniform(0, check.interval)  # spreads the probes of all targets evenly
        while True:
            await asyncio.sleep(due - clock())
            self._take(key, target, await self._ask(probe))
            # A slow probe skips beats rather than shift them or run twice at once.
            # One that ends as the next is due, as at a timeout of a whole interval, has missed none.
            missed = max(0, int((clock() - due) / check.interval - 0.5))
            due += (1 + missed) * check.interval

    async def _ask(self, probe: Probe) -> ProbeResult:
        try:
            return await probe.probe()
        except Exception as error:  # a fault of ours in one probe must not end the watch unseen
            log.exception("probe failed")
            return ProbeResult(False, f"fault in the probe: {error!r}", 0.0)

    def _take(self, key: CheckKey, target: Target, result: ProbeResult) -> None:
        before = target.health.verdict
        target.health = target.health.after(result.passed, target.check.rise, target.check.fall)
        target.reason = result.reason
        if target.health.verdict is not before:
            target.since = time.time()
            self._on_change(key, target.health.verdict, result.reason)

    @staticmethod
    def _cancel(target: Target) -> None:
        if target.task:
            target.task.cancel()
