"""A running node: brings forwarder, probes and speaker together and keeps them in line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import structlog

from controller.announce import desired_announcements
from controller.changes import changes, restart_needed
from controller.churn import expected_verdicts, refusal, trusting, with_flows
from controller.config import Config, load
from controller.file_limit import probes_at_once, raise_file_limit
from controller.forwarder_client import ForwarderError, Json
from controller.forwarder_unit import COMMAND, ForwarderUnit
from controller.health_runner import HealthRunner
from controller.machine import without_carrier
from controller.model import Address, CheckKey, Verdict, check_keys
from controller.overrides import Overrides
from controller.panic import Panic, panics
from controller.plan import Situation, slots_that_move
from controller.probe_tunnel import ProbeTunnel, ProbeTunnelError
from controller.probes import make_probe
from controller.probes.check import Check
from controller.probes.probe import Probe
from controller.process import Exit
from controller.reconcile import desired_state, serving_addresses
from controller.rundir import RunDir, read_json, write_private
from controller.speakers import end_others, make_speaker
from controller.tasks import background, end
from controller.warmup import grace, is_warm

log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
CONFIRM_SECONDS = 2.0
"""How long to wait for the speaker's word that it has taken a withdrawal."""


class StartError(Exception):
    """The node cannot start; one sentence. `wrong`: with these settings it never will on this machine."""

    def __init__(self, message: str, *, wrong: bool = False) -> None:
        super().__init__(message)
        self.wrong = wrong


class ReloadRefusedError(Exception):
    """The new configuration is valid, but a running node cannot take it."""


class TooMuchChurnError(Exception):
    """The new configuration is right, but would move more than the reload was allowed to."""


class Node:
    """One node from start to end. All decisions are in pure functions; this class feeds them and acts."""

    def __init__(
        self,
        path: Path,
        config: Config,
        run_dir: RunDir,
        *,
        forwarder_command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.path = path
        self.config = config
        self.run_dir = run_dir
        self._checked = config.all_services  # with all their checks, also those of pools in panic
        self.vips = self._checked
        self.overrides = Overrides(run_dir.overrides)
        self.forwarder = ForwarderUnit(
            run_dir, config.forwarder_settings(), self._forwarder_changed, command=forwarder_command
        )
        self.speaker = make_speaker(config.bgp, run_dir)
        self.panics: dict[str, Panic] = {}
        self.tunnel = ProbeTunnel(config.node.tunnel_source)
        self.health = HealthRunner(
            self._make_probe,
            self._verdict_changed,
            probes_at_once(raise_file_limit()),
            partial(without_carrier, config),
        )
        self.announced: frozenset[Address] = frozenset()
        self.announcements = 0  # addresses so far, as are withdrawals
        self.withdrawals = 0
        self.warming = True
        self.draining = False
        self.trouble: str | None = None
        self._standing: frozenset[Address] = frozenset()
        self._known: frozenset[Address] = frozenset()
        self._wake = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> str:
        """`warming`, `running` or `draining`."""
        if self.draining or self.overrides.drain_self:
            return "draining"
        return "warming" if self.warming else "running"

    async def start(self) -> None:
        """Adopt or start everything; what stands is kept. Raises StartError when the forwarder refuses."""
        remembered = _remembered(read_json(self.run_dir.announced))
        await self.forwarder.start()
        await end_others(self.speaker.kind, self.run_dir)
        await self.speaker.start()
        standing = await self.speaker.standing(self.config.bgp.lease)
        self._known = remembered | (standing or frozenset())
        if self.forwarder.adopted:
            self._standing = (remembered if standing is None else standing) & self._configured()
        self._announce(self._goal() & self._standing, always=True)
        self._tasks.append(background(self._reconcile_for_ever(), "reconcile"))
        try:
            if self.config.probes_through_tunnel():
                await self.tunnel.start()
        except ProbeTunnelError as error:
            raise StartError(str(error)) from error
        self.health.set_targets(self._targets())
        await self._check_forwarder()
        self._tasks.append(background(self._end_warmup(), "end warm-up"))

    async def withdraw(self) -> None:
        """Take this node out of all routes; returns when the speaker has confirmed it, or after a while."""
        self.draining = True
        self._announce(frozenset())
        if not await self.speaker.settled(CONFIRM_SECONDS):
            log.warning("the speaker has not confirmed the withdrawal")

    async def stop(self) -> None:
        """End everything, in reverse order of the start, and leave nothing behind."""
        await self._end_tasks()
        await self.speaker.stop()
        await self.forwarder.stop()
        self.run_dir.remove()

    async def reload(self, *, dry_run: bool = False, max_churn: float | None = None) -> Json:
        """Follow the configuration file as it is now; returns what changes, and with an option what that moves.

        `max_churn`: the percentage of a vip's slots, and of its live flows, that may move. Raises ConfigError,
        ReloadRefusedError, ProbeTunnelError or TooMuchChurnError, and then nothing has changed.
        """
        async with self._reloading:
            new = await asyncio.to_thread(load, self.path)
            if keys := restart_needed(self.config, new):
                raise ReloadRefusedError(
                    f"{', '.join(keys)} cannot change while the node runs: restart it, or take the change back"
                )
            told: Json = {"applied": not dry_run, "changes": changes(self.config, new)}
            if dry_run or max_churn is not None:
                told |= await self._rehearse(new)
            if max_churn is not None and (sentence := refusal(told["vips"], max_churn)):
                raise TooMuchChurnError(sentence)
            if not dry_run:
                await self._follow(new)
                log.info("reloaded", changes=told["changes"])
        return told

    async def _follow(self, new: Config) -> None:
        if new.probes_through_tunnel():
            await self.tunnel.start()
        self._known |= self._configured()
        serving = serving_addresses(self.vips, self.health.verdicts())
        self.config, self._checked = new, new.all_services
        self.health.set_targets(self._targets(), serving)
        self._see_panics(reloaded=True)
        if not new.probes_through_tunnel():
            await self.tunnel.stop()
        self.wake()

    async def _rehearse(self, new: Config) -> Json:
        """What following it would move: slots, and the flows that the forwarder has now."""
        verdicts, drained = self.health.verdicts(), self.overrides.drained
        now = Situation(self.vips, new.node.hash_key, trusting(verdicts) if self.warming else verdicts, drained)
        expected = expected_verdicts(new.all_services, now.verdicts)
        services = new.services_without(panics(new.backend_pools, expected, drained))
        then = replace(now, vips=services, verdicts=expected)
        plans = await asyncio.to_thread(slots_that_move, now, then)
        try:
            state = desired_state(services, then.verdicts, drained, new.cluster_nodes())
            return {"vips": with_flows(plans, await self.forwarder.client.churn(state)), "flows_unknown": None}
        except ForwarderError as error:
            return {"vips": [vip | {"flows": None} for vip in plans], "flows_unknown": str(error)}

    def wake(self) -> None:
        """Something that decisions depend on has changed."""
        self._wake.set()

    def _configured(self) -> frozenset[Address]:
        return frozenset(vip.address for vip in self.vips)

    def _targets(self) -> dict[CheckKey, Check]:
        """Those of a pool in panic too: they tell when it ends."""
        return {key: self.config.health_checks[key.check] for key in check_keys(self._checked)}

    def _make_probe(self, key: CheckKey, check: Check) -> Probe:
        return make_probe(key, check, self.tunnel.to(key.address)) if key.vip else make_probe(key, check)

    def _verdict_changed(self, key: CheckKey, verdict: Verdict, reason: str) -> None:
        vip = {"vip": str(key.vip)} if key.vip else {}
        log.info("health", address=str(key.address), check=key.check, **vip, verdict=verdict.value, reason=reason)
        self.wake()

    def _see_panics(self, *, reloaded: bool = False) -> None:
        """Serve the vips as the verdicts of the moment are to be believed, and tell of pools that are kept."""
        before = self.panics
        self.panics = panics(self.config.backend_pools, self.health.verdicts(), self.overrides.drained)
        if reloaded or before.keys() != self.panics.keys():
            self.vips = self.config.services_without(self.panics) if self.panics else self._checked
        for name in sorted(self.panics.keys() - before.keys()):
            panic = self.panics[name]
            log.error("panic: all backends of the pool are kept in service", pool=name, down=panic.down, of=panic.of)
        for name in sorted(before.keys() - self.panics.keys()):
            log.info("panic is over: the checks of the pool count again", pool=name)

    def _forwarder_changed(self) -> None:
        """A forwarder that is not fit attracts nothing from this instant on, whatever else is going on."""
        if not self.forwarder.fitness.fit:
            self._announce(frozenset())
        self.wake()

    async def _check_forwarder(self) -> None:
        answer = await self.forwarder.first_answer()
        if isinstance(answer, Exit):
            raise StartError(answer.message or "the forwarder refused its settings", wrong=True)
        if self.forwarder.adopted and answer["fingerprint"] != self.forwarder.fingerprint:
            self._standing = frozenset()
            self._announce(frozenset())
            await self.speaker.settled(CONFIRM_SECONDS)
            await self.forwarder.restart("its settings have changed")

    async def _end_warmup(self) -> None:
        await asyncio.sleep(grace(self._targets().values()))
        if self.warming:
            self.warming = False
            self.wake()

    async def _reconcile_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._reconcile()
                self.trouble = None
            except ForwarderError as error:
                self._retry(str(error))
            except Exception as error:  # a fault of ours must not leave the node without its controller
                log.exception("reconcile failed")
                self._retry(f"fault in the controller: {error!r}")

    def _retry(self, trouble: str) -> None:
        if trouble != self.trouble:
            log.warning("not in line", reason=trouble)
        self.trouble = trouble
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def _reconcile(self) -> None:
        """Withdraw first, then push, then announce: an address is announced only while it is served."""
        if self.warming and is_warm(self.health.verdicts().values()):
            self.warming = False
        if self.warming:  # what stands may stay, and nothing is new
            self._announce(self.announced & self._goal())
            return
        self._see_panics()
        await self._withdraw_unwanted()
        if self.forwarder.ping is None:
            return
        state = desired_state(self.vips, self.health.verdicts(), self.overrides.drained, self.config.cluster_nodes())
        if not await self.forwarder.has(state):
            await self.forwarder.push(state)
        if self.forwarder.acknowledged == state:
            self._announce(self._goal() & _addresses(vip["address"] for vip in state["vips"]))

    async def _withdraw_unwanted(self) -> None:
        unwanted = self.announced - self._goal()
        self._announce(self.announced - unwanted)
        if unwanted - self._configured():  # it leaves the forwarder next: let the routers hear of it first
            await self.speaker.settled(CONFIRM_SECONDS)

    def _goal(self) -> frozenset[Address]:
        """What should be announced, as far as is known."""
        draining = self.draining or self.overrides.drain_self
        fit = self.forwarder.fitness.fit
        if self.warming:
            return self._standing if fit and not draining else frozenset()
        verdicts = self.health.verdicts()
        return desired_announcements(self.vips, verdicts, self.overrides.drained, fit, draining)

    def _announce(self, addresses: frozenset[Address], *, always: bool = False) -> None:
        if addresses == self.announced and not always:
            return
        differences = {"announce": addresses - self.announced, "withdraw": self.announced - addresses}
        for verb, some in differences.items():
            if some:
                log.info(verb, addresses=sorted(map(str, some)), forwarder=self.forwarder.fitness.reason)
        self.announcements += len(differences["announce"])
        self.withdrawals += len(differences["withdraw"])
        self.announced = addresses
        self.speaker.want(addresses, self._known | self._configured())
        try:
            write_private(self.run_dir.announced, json.dumps(sorted(map(str, addresses))))
        except OSError as error:  # only a controller after a crash would have read it
            log.error("cannot note what is announced", reason=error.strerror)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            await end(task)
        await self.health.close()
        await self.tunnel.stop()


def _remembered(stored: Any) -> frozenset[Address]:
    """What a controller before us noted; anything else that stands in the file is nothing."""
    try:
        return _addresses(str(text) for text in stored) if isinstance(stored, list) else frozenset()
    except ValueError:
        return frozenset()


def _addresses(texts: Iterable[str]) -> frozenset[Address]:
    return frozenset(ip_address(text) for text in texts)
