"""Which layout is in force: the one that was asked for, or `software` where a port cannot do what `rss` needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from forwarder._dataplane import STEERING_SEED, Port
from forwarder.settings import Settings

RSS_KEY = 0x6D5A  # over and over, as csrc/rss.c has it


@dataclass(frozen=True, slots=True)
class Layout:
    """`instead`: why it is not the one that was asked for, in one sentence. `cpus`: of each stage, in their order.

    `spread`: a number for the way in which flows are spread over the workers; each has its own connection table.
    """

    name: str
    instead: str | None
    cpus: tuple[int, ...]
    idle: str
    spread: int


def queues(settings: Settings) -> int:
    """Queues that every port is asked to have."""
    return len(settings.worker_cpus) if settings.steering == "rss" else 1


def _software(settings: Settings, instead: str | None = None) -> Layout:
    return Layout("software", instead, settings.cpus, settings.idle, STEERING_SEED)


def _fallback(settings: Settings, device: str, lacks: str) -> Layout:
    """Nobody wrote CPUs for this layout with care: where stages have to share one they may not spin."""
    workers = len(settings.worker_cpus)
    why = f"steering: software in place of rss: port {device} {lacks}; {workers} workers need RSS over as many queues"
    if settings.idle == "sleep" or len(set(settings.cpus)) == len(settings.cpus):
        return _software(settings, why)
    shared = next(cpu for cpu in settings.cpus if settings.cpus.count(cpu) > 1)
    instead = f"{why}. And idle: sleep in place of {settings.idle}, since CPU {shared} has several stages"
    return Layout("software", instead, settings.cpus, "sleep", STEERING_SEED)


def in_force(settings: Settings, ports: Sequence[Port]) -> Layout:
    """The layout over these ports, which were asked for `queues`; where it is not `rss` each has one from here on."""
    if settings.steering != "rss":
        return _software(settings)
    for configured, port in zip(settings.ports, ports, strict=True):
        if port.lacks is not None:
            for other in ports:
                if other.queues > 1:
                    other.narrow()
            return _fallback(settings, configured.device, port.lacks)
    if len(settings.worker_cpus) == 1:
        return Layout("rss", None, settings.worker_cpus, settings.idle, STEERING_SEED)  # all flows are one worker's
    spread = RSS_KEY << 16 | min(port.buckets for port in ports)
    return Layout("rss", None, settings.worker_cpus, settings.idle, spread)
