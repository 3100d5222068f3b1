"""The scenario of `maglev lab run`: a day in the life of two nodes, with what must hold at each step."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lab import counters, laboratory, nodes, traffic
from lab.counters import Counters
from lab.laboratory import Say, settled, wait_until
from lab.load import PERIOD, Results
from lab.namespaces import LabError
from lab.report import Step
from lab.routes import RouteWatch
from lab.topology import BACKENDS, NODES, Host
from lab.traffic import Traffic

RATE: Final = 200.0  # requests a second beside the long connections
ROUTE_LIMIT_MS: Final = 1000.0
PATIENCE: Final = 20.0  # seconds for anything to happen
LINGER: Final = 3 * PERIOD  # so that every long connection exchanges once more after a change


@dataclass(frozen=True, slots=True)
class Size:
    """How much load a run makes."""

    requests: int = 10_000
    connections: int = 200

    @property
    def burst(self) -> int:
        """Requests that look where new connections go after a change."""
        return max(60, self.requests // 20)

    def traffic(self) -> Traffic:
        """Long connections, and requests beside them."""
        return Traffic(connections=self.connections, rate=RATE)


def spread(step: Step, size: Size) -> None:
    """Every request is answered, the backends share them, and everybody counted the same packets."""
    before = Counters.read()
    results = step.add(traffic.burst(size.requests))
    step.expect_whole()
    _expect_no_retry(step, results)
    shares = [results.per_backend.get(backend.name, 0) for backend in laboratory.POOL]
    # A hash is a fair die, not an even one: the difference of two shares has this deviation by chance alone, and once
    # in a hundred thousand runs it is 4.5 times that.
    deviation = math.sqrt(2 * size.requests / len(shares))
    apart = max(shares) - min(shares)
    step.expect(apart <= 4.5 * deviation, f"shares {shares} are further apart than {4.5 * deviation:.0f}")
    found = counters.when_settled(before, results.opened)
    step.notes.append(found.sentence(results.opened))
    step.expect(found.agree(results.opened), f"the counters disagree: {found.sentence(results.opened)}")


def membership(step: Step, size: Size) -> None:
    """A backend joins, another is taken out of the pool: new connections follow, old ones stay."""
    b1, b2, b3, b4 = BACKENDS
    with size.traffic() as load:
        _change_pool(step, (b1, b2, b3, b4))
        joined = step.add(traffic.burst(size.burst))
        step.expect(b4.name in joined.per_backend, f"no new connection went to {b4.name} after it joined")
        _change_pool(step, (b1, b3, b4))
        left = step.add(traffic.burst(size.burst))
        step.expect(b2.name not in left.per_backend, f"new connections went to {b2.name}, which was taken out")
        time.sleep(LINGER)
        results = step.add(load.finish())
    drained = sum(connection.backend == b2.name for connection in results.connections)
    step.notes.append(f"{drained} connections stayed on {b2.name} while it drained")
    step.expect_whole()
    for part in (joined, left, results):
        _expect_no_retry(step, part)


def backend_death(step: Step, size: Size) -> None:
    """A backend's server is killed, is taken out by its health checks, comes back and is used again."""
    victim = BACKENDS[2]
    pool = set(nodes.slots(NODES[0]))
    with size.traffic() as load:
        pid = laboratory.server_pid(victim)
        if pid is None:
            raise LabError(f"the server of {victim.name} does not run.")
        os.kill(pid, signal.SIGKILL)
        out = wait_until(lambda: settled(pool - {victim.name}), PATIENCE, f"{victim.name} is taken out")
        gone = time.monotonic()
        without = step.add(traffic.burst(size.burst))
        laboratory.start_server(victim)
        back = wait_until(lambda: settled(pool), PATIENCE, f"{victim.name} is back")
        again = step.add(traffic.burst(size.burst))
        results = load.finish()
    others = [connection for connection in results.connections if connection.backend != victim.name]
    lost = len(results.connections) - len(others)
    results.connections = others
    step.add(results)
    step.notes.append(f"{victim.name} was out {out:.1f} s after the kill, back {back:.1f} s after its start")
    step.notes.append(f"its own {lost} connections ended with it and are not counted")
    step.expect_whole()
    _expect_no_retry(step, results, after=gone)
    _expect_no_retry(step, without)
    _expect_no_retry(step, again)
    step.expect(victim.name in again.per_backend, f"no new connection went to {victim.name}, which is back")


def forwarder_death(step: Step, size: Size) -> None:
    """A forwarder is killed: its route goes at once, the other node carries on, it comes back."""
    victim, other = NODES
    _wait_for_both()
    with size.traffic() as load, RouteWatch() as routes:
        before = _forwarded(other)
        pid = nodes.forwarder_pid(victim)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        lost = routes.wait(_without(victim), PATIENCE, f"{victim.name} is withdrawn")
        step.route_ms = (lost - killed) * 1000
        back = routes.wait(_with(victim), PATIENCE, f"{victim.name} is announced again")
        step.expect(_forwarded(other) > before, f"{other.name} forwarded nothing meanwhile")
        time.sleep(LINGER)
        forwarder = nodes.status(victim)["forwarder"]
        step.expect(forwarder["pid"] != pid, f"{victim.name} still names the dead forwarder")
        step.expect(forwarder["canary"].startswith("passed"), f"canary: {forwarder['canary']}")
        step.expect(_forwarded(victim) > 0, f"{victim.name} forwards nothing after its return")
        results = step.add(load.finish())
    step.notes.append(f"{victim.name} was announced again {back - killed:.1f} s after the kill")
    _expect_route(step)
    step.expect_whole()
    _expect_no_retry(step, results, after=lost)


def node_drain(step: Step, size: Size) -> None:
    """A node is told to stop: it withdraws, forwards what still comes, and nobody notices."""
    victim = NODES[1]
    _wait_for_both()
    with size.traffic() as load, RouteWatch() as routes:
        pid = int(nodes.status(victim)["pid"])
        told = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        step.route_ms = (routes.wait(_without(victim), PATIENCE, f"{victim.name} is withdrawn") - told) * 1000
        wait_until(lambda: pid not in victim.namespace.processes(), PATIENCE, f"{victim.name} has ended")
        step.notes.append(f"{victim.name} ended {time.monotonic() - told:.1f} s after it was told to")
        time.sleep(LINGER)
        results = step.add(load.finish())
    _expect_route(step)
    step.expect_whole()
    _expect_no_retry(step, results)


STEPS: Final[Sequence[tuple[str, Callable[[Step, Size], None]]]] = (
    ("spread", spread),
    ("membership", membership),
    ("backend death", backend_death),
    ("forwarder death", forwarder_death),
    ("node drain", node_drain),
)


def play(size: Size, say: Say) -> list[Step]:
    """Play the steps in order; one that cannot be finished ends the run, since the next ones build on it."""
    steps = []
    for name, perform in STEPS:
        say(name)
        step = Step(name)
        steps.append(step)
        try:
            perform(step, size)
        except LabError as error:
            step.unmet.append(str(error))
            break
    return steps


def _change_pool(step: Step, pool: Sequence[Host]) -> None:
    names = [backend.name for backend in pool]
    nodes.change_pool(pool)
    took = wait_until(lambda: settled(set(names)), PATIENCE, f"the pool is {', '.join(names)}")
    step.notes.append(f"pool {', '.join(names)}: in use on all nodes {took:.1f} s after the reload")


def _wait_for_both() -> None:
    """Both nodes carry traffic and agree on every table, so that a flow may move between them."""
    wait_until(laboratory.all_announced, PATIENCE, "the router has a route to every node")
    wait_until(lambda: settled(set(nodes.slots(NODES[0]))), PATIENCE, "the nodes have the same tables")


def _forwarded(node: Host) -> int:
    fates = nodes.fates(node)
    return sum(fates[fate] for fate in counters.FORWARDED)


def _without(node: Host) -> Callable[[frozenset[str]], bool]:
    return lambda hops: str(node.address) not in hops


def _with(node: Host) -> Callable[[frozenset[str]], bool]:
    return lambda hops: str(node.address) in hops


def _expect_no_retry(step: Step, results: Results, after: float = 0.0) -> None:
    """No attempt failed, or with `after` none that began later than that."""
    late = [retry.reason for retry in results.retries if retry.began > after]
    step.expect(not late, f"{len(late)} attempts of requests failed: {', '.join(sorted(set(late)))}")


def _expect_route(step: Step) -> None:
    ms = step.route_ms
    step.expect(ms is not None and ms < ROUTE_LIMIT_MS, f"the route stayed for {ms} ms")
