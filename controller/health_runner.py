"""Runs the probes: one per (address, check), each at its beat, and tells of transitions only."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from controller.agenda import Agenda
from controller.file_limit import most_at_once
from controller.health import Health
from controller.model import Address, CheckKey, Verdict
from controller.probes.check import Check
from controller.probes.probe import Outcome, Probe, ProbeResult
from controller.tasks import background

log = structlog.get_logger(__name__)

JITTER = 0.1
"""Each probe starts up to this part of its interval after its beat, so that no two things stay in step for long."""


@dataclass(slots=True, eq=False)
class Target:
    """One probed thing: its check as it is now, what is known of it, and when it is its turn."""

    key: CheckKey
    check: Check
    health: Health = field(default_factory=Health)
    since: float = field(default_factory=time.time)
    reason: str = "not probed yet"
    not_probed: bool = False
    """The last time, this node could not ask; `reason` says why."""
    probe: Probe | None = None
    beat: float = 0.0
    due: float = 0.0
    """When the next probe starts, or the one under way should have: some time after its beat, which is steady."""
    task: asyncio.Task[None] | None = None

    @property
    def pace(self) -> float:
        """Seconds from this beat to the next."""
        return self.check.pace(self.health.in_doubt)


@dataclass(slots=True)
class Counts:
    """Of one check since the node runs: probes by outcome, the seconds that they took, verdicts that changed."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    seconds: float = 0.0
    transitions: int = 0


class HealthRunner:
    """`make_probe` turns a target and its check into a probe; `on_change` must not block.

    `own_trouble` says why this node's packets go nowhere now: what fails meanwhile tells nothing of a backend.

    A target waits in the agenda until it is due, and has a task only while it is probed: thousands that wait cost
    nothing. At most `at_once` are probed at a time, each with one open file; others that are due come after them.
    """

    def __init__(
        self,
        make_probe: Callable[[CheckKey, Check], Probe],
        on_change: Callable[[CheckKey, Verdict, str], None],
        at_once: int,
        own_trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._make_probe = make_probe
        self._on_change = on_change
        self._own_trouble = own_trouble
        self.at_once = at_once
        self.targets: dict[CheckKey, Target] = {}
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        self.not_probed = 0
        self.too_many = False
        self._running: set[asyncio.Task[None]] = set()
        self._agenda = Agenda[Target](self._start, lambda: len(self._running) < self.at_once)

    def verdicts(self) -> dict[CheckKey, Verdict]:
        """What is known now."""
        return {key: target.health.verdict for key, target in self.targets.items()}

    def set_targets(self, wanted: Mapping[CheckKey, Check], trusted: Collection[Address] = ()) -> None:
        """Probe exactly these. What is known of a target that stays is kept, even when its check has changed:
        a verdict is better than none, and the next results correct it. A new target at a `trusted` address, one
        that serves now, begins as up: a check that was added takes nothing away until it has failed."""
        gone = [self.targets.pop(key) for key in self.targets.keys() - wanted.keys()]
        new = []
        for key, check in wanted.items():
            target = self.targets.get(key)
            if target is None:
                health = Health(Verdict.UP if key.address in trusted else Verdict.UNKNOWN)
                new.append(Target(key, check, health))
            elif target.check != check:
                gone.append(target)
                new.append(Target(key, check, Health(target.health.verdict), target.since, target.reason))
        if not gone and not new:
            return
        for target in gone:
            self._note(target, not_probed=False)
            if target.task:
                target.task.cancel()
        for target in new:  # anywhere within the first pace, so that the probes of all targets are spread evenly
            target.beat = target.due = asyncio.get_running_loop().time() + random.uniform(0, target.pace)
            self.targets[target.key] = target
        # Made anew: what is gone is not looked for entry by entry.
        self._agenda.replace((t.due, t) for t in self.targets.values() if t.task is None)
        self._tell_if_too_many()

    async def close(self) -> None:
        """Stop all probes and wait until none is under way."""
        self._agenda.replace(())
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _tell_if_too_many(self) -> None:
        before = self.too_many
        self.too_many = most_at_once(target.check for target in self.targets.values()) > self.at_once
        if self.too_many and not before:
            log.warning(
                "when many probes fail, some start late: the limit of open files is too low, raise the hard one",
                targets=len(self.targets),
                at_once=self.at_once,
            )

    def _start(self, target: Target) -> None:
        target.task = background(self._watch(target), "probe")
        self._running.add(target.task)
        target.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._agenda.wind()

    async def _watch(self, target: Target) -> None:
        result = await self._ask(target)
        target.task = None
        self._take(target, result)
        self._schedule(target)

    async def _ask(self, target: Target) -> ProbeResult:
        trouble = self._own_trouble()
        try:
            if target.probe is None:
                target.probe = self._make_probe(target.key, target.check)
            result = await target.probe.probe()
            if result.outcome is Outcome.FAILED and (trouble := trouble or self._own_trouble()):
                return ProbeResult(Outcome.NOT_PROBED, f"not probed: {trouble}", result.seconds)
            return result
        except Exception as error:  # a fault of ours in one probe must not end the watch unseen
            log.exception("probe failed")
            return ProbeResult(Outcome.FAILED, f"fault in the probe: {error!r}", 0.0)

    def _take(self, target: Target, result: ProbeResult) -> None:
        target.reason = result.reason
        counts = self.counts[target.key.check]
        counts.outcomes[result.outcome] += 1
        counts.seconds += result.seconds
        self._note(target, not_probed=result.outcome is Outcome.NOT_PROBED)
        if target.not_probed:
            return
        before = target.health.verdict
        target.health = target.health.after(result.passed, target.check.rise, target.check.fall)
        if target.health.verdict is not before:
            target.since = time.time()
            counts.transitions += 1
            self._on_change(target.key, target.health.verdict, result.reason)

    def _note(self, target: Target, *, not_probed: bool) -> None:
        """Count the targets that this node could not ask; the first one and the end of it are told."""
        before = self.not_probed
        self.not_probed += not_probed - target.not_probed
        target.not_probed = not_probed
        if self.not_probed and not before:
            log.warning("this node cannot probe; verdicts stay as they are", reason=target.reason)
        elif before and not self.not_probed:
            log.info("this node can probe again")

    def _schedule(self, target: Target) -> None:
        """A slow probe skips beats rather than shift them or run twice at once.

        One that ends as the next is due, as at a timeout of a whole interval, has missed none.
        """
        pace = target.pace
        now = asyncio.get_running_loop().time()
        missed = max(0, int((now - target.beat) / pace - 0.5))
        target.beat += (1 + missed) * pace
        target.due = target.beat + random.uniform(0, JITTER * pace)
        self._agenda.add(target.due, target)
