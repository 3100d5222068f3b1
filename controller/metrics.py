"""A node's state and counters as Prometheus metrics. Names are stable, units are base units, and no label has a
client.

Per backend and per vip there is one series of each kind, never one per pair: a thousand vips of a hundred backends
would make a hundred thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from controller.app import Node
from controller.forwarder_client import Json
from controller.model import Verdict
from controller.probes.probe import Outcome
from controller.reconcile import member_status

CONTENT_TYPE = CONTENT_TYPE_LATEST
STATES = ("warming", "running", "draining")
STATUSES = ("up", "drain", "down")
RECEIVE_POINTERS, TRANSMIT_POINTERS = ("received", "processed", "reserved"), ("ready", "sent", "recycled")


@dataclass(frozen=True)
class _Snapshot(Collector):
    """Families that were gathered already, for the library to write."""

    families: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.families


def exposition(node: Node, stats: Json | None) -> bytes:
    """The text of all metrics; `stats` are the forwarder's, None while it cannot be reached."""
    families = (
        *_node(node),
        *_vips(node),
        *_health(node),
        *_forwarder(node),
        *(_packet_path(stats) if stats else ()),
    )
    return generate_latest(_Snapshot(families))


def _node(node: Node) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "maglev_build", "This node.", {"version": version("maglev"), "node": node.config.node.name}
    )
    yield _labelled("maglev_node_state", "Which state the node is in.", "state", {s: s == node.state for s in STATES})
    yield _gauge("maglev_node_in_line", "1 while what should be is what is.", node.trouble is None)
    yield _gauge("maglev_state_generation", "Of the forwarding state in force.", node.forwarder.generation)
    drained = len(node.overrides.drained)
    yield _gauge("maglev_backends_drained_by_operator", "Backends that maglev drain has drained.", drained)
    speaker = node.speaker
    yield _gauge("maglev_speaker_connected", "1 while the BGP speaker listens and answers.", speaker.connected)
    yield _gauge("maglev_addresses_announced", "Addresses that are announced now.", len(node.announced))
    yield CounterMetricFamily("maglev_announcements", "Addresses announced so far.", node.announcements)
    yield CounterMetricFamily("maglev_withdrawals", "Addresses withdrawn so far.", node.withdrawals)
    up = {neighbor: state == "up" for neighbor, state in speaker.sessions.items()}
    yield _labelled("maglev_bgp_session_up", "1 while the session is established.", "neighbor", up)


def _vips(node: Node) -> Iterator[Metric]:
    announced = GaugeMetricFamily(
        "maglev_vip_announced", "1 while the address is announced.", labels=("vip", "address")
    )
    needed = GaugeMetricFamily("maglev_vip_min_healthy", "Healthy backends that it needs.", labels=("vip",))
    members = GaugeMetricFamily(
        "maglev_vip_backends", "Backends of a vip, by what they get.", labels=("vip", "status")
    )
    verdicts, drained = node.health.verdicts(), node.overrides.drained
    for vip in node.vips:
        announced.add_metric((vip.name, str(vip.address)), vip.address in node.announced)
        needed.add_metric((vip.name,), vip.min_healthy)
        counts = Counter(member_status(member, verdicts, drained) for member in vip.members)
        for status in STATUSES:
            members.add_metric((vip.name, status), counts[status])  # type: ignore[index]
    yield from (announced, needed, members)


def _health(node: Node) -> Iterator[Metric]:
    """By check: of how many probed things what is known, and how their probes went."""
    verdicts = GaugeMetricFamily("maglev_check_targets", "Probed addresses by verdict.", labels=("check", "verdict"))
    changes = CounterMetricFamily("maglev_check_transitions", "Verdicts that changed so far.", labels=("check",))
    probes = CounterMetricFamily("maglev_check_probes", "Probes so far by outcome.", labels=("check", "outcome"))
    seconds = CounterMetricFamily("maglev_check_probe_seconds", "Time that probes took.", labels=("check",))
    known = Counter((key.check, target.health.verdict) for key, target in node.health.targets.items())
    for check in sorted({key.check for key in node.health.targets}):
        for verdict in Verdict:
            verdicts.add_metric((check, verdict.value), known[check, verdict])
    for check, counts in sorted(node.health.counts.items()):
        changes.add_metric((check,), counts.transitions)
        seconds.add_metric((check,), counts.seconds)
        for outcome in Outcome:
            probes.add_metric((check, outcome.value.replace(" ", "_")), counts.outcomes[outcome])
    yield from (verdicts, changes, probes, seconds)
    yield _gauge("maglev_checks_not_probed", "Targets that this node itself cannot probe.", node.health.not_probed)
    panics = dict.fromkeys(node.panics, 1)
    yield _labelled("maglev_pool_in_panic", "1 while more is down than is believed.", "pool", panics)


def _forwarder(node: Node) -> Iterator[Metric]:
    forwarder = node.forwarder
    yield _gauge("maglev_forwarder_fit", "1 while the forwarder may attract traffic.", forwarder.fitness.fit)
    restarts = forwarder.supervisor.restarts
    yield CounterMetricFamily("maglev_forwarder_restarts", "How often it had to be started again.", restarts)
    ports = {port["device"]: port["link"] for port in forwarder.ping["ports"]} if forwarder.ping else {}
    yield _labelled("maglev_port_link_up", "1 while the port has a link.", "port", ports)


def _packet_path(stats: Json) -> Iterator[Metric]:
    yield CounterMetricFamily("maglev_packets_received", "Packets from all ports.", stats["received"])
    fates = CounterMetricFamily("maglev_packets", "Packets by what became of them.", labels=("fate",))
    for fate, packets in stats["fates"].items():
        fates.add_metric((fate,), packets)
    reasons = CounterMetricFamily("maglev_reasons", "Packets by why they met their fate.", labels=("fate", "reason"))
    for reason, told in stats["reasons"].items():
        reasons.add_metric((told["fate"], reason), told["packets"])
    yield from (fates, reasons)
    yield from _traffic("vip", stats["vips"])
    yield from _traffic("backend", stats["backends"])
    yield from _connections(stats["workers"])
    yield from _ports(stats["ports"])
    pool = stats["pool"]
    yield _gauge("maglev_pool_packets", "Buffers of the packet pool.", pool["size"])
    yield _gauge("maglev_pool_packets_free", "Of these, nobody has.", pool["free"])
    yield _gauge("maglev_fragments_held", "Fragments that wait for their first ones.", stats["held"])
    over = {vip: len(load["over"]) for vip, load in stats["load_bounds"].items()}
    yield _labelled("maglev_vip_backends_over_bound", "Backends that new flows avoid.", "vip", over)
    states = stats["states"]
    yield CounterMetricFamily("maglev_states_applied", "Forwarding states so far.", states["applied"])
    yield CounterMetricFamily("maglev_state_build_seconds", "Time spent on building them.", states["build_seconds"])
    yield _gauge("maglev_state_last_build_seconds", "Time that the last one took.", states["last_build_seconds"])


def _traffic(what: str, things: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    packets = CounterMetricFamily(f"maglev_{what}_packets", "Packets forwarded.", labels=(what,))
    octets = CounterMetricFamily(f"maglev_{what}_bytes", "Of them, inner IP length.", labels=(what,))
    flows = GaugeMetricFamily(f"maglev_{what}_flows", "Entries of connection tables.", labels=(what,))
    for name, traffic in things.items():
        packets.add_metric((name,), traffic["packets"])
        octets.add_metric((name,), traffic["bytes"])
        if "flows" in traffic:
            flows.add_metric((name,), traffic["flows"])
    yield from (packets, octets, flows)


def _connections(workers: list[Mapping[str, int]]) -> Iterator[Metric]:
    for key, what in (("entries", "Places for flows."), ("live", "Flows remembered.")):
        by_worker = {str(index): worker[key] for index, worker in enumerate(workers)}
        yield _labelled(f"maglev_connections_{key}", what, "worker", by_worker)
    happened = {
        "inserted": "Flows that were new.",
        "evicted": "Closing or half-open flows that made room for another.",
        "refused": "Flows that found no room.",
    }
    for key, what in happened.items():
        family = CounterMetricFamily(f"maglev_connections_{key}", what, labels=("worker",))
        for index, worker in enumerate(workers):
            family.add_metric((str(index),), worker[key])
        yield family


def _ports(ports: list[Json]) -> Iterator[Metric]:
    pointers = CounterMetricFamily(
        "maglev_ring_pointer", "Where a pointer of a port's ring stands.", labels=("port", "ring", "pointer")
    )
    missed = CounterMetricFamily("maglev_port_missed", "Packets that the port had no room for.", labels=("port",))
    for port in ports:
        missed.add_metric((port["device"],), port["missed"])
        for ring, names in (("receive", RECEIVE_POINTERS), ("transmit", TRANSMIT_POINTERS)):
            for name in names:
                if port[ring][name] is not None:
                    pointers.add_metric((port["device"], ring, name), port[ring][name])
    yield from (pointers, missed)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _labelled(name: str, what: str, label: str, values: Mapping[str, Any]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
