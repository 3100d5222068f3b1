"""From the controller's desired state to the data plane's forwarding state.

Keeps what must outlive a state: the numbers of vips and backends, the tables, and the backends that left a vip but
still have flows there.
"""

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from forwarder._dataplane import Dataplane, State
from forwarder.churn import GONE, Churn, Side
from forwarder.hashing.digest import state_digest
from forwarder.hashing.slot_table import MAGLEV, Table
from forwarder.next_hops import UNREACHABLE, NextHops
from forwarder.settings import Address
from forwarder.stable_ids import Counted, IdsExhausted
from forwarder.state_message import StateMessage, StateRefused, VipMessage, parse
from forwarder.table_ids import MAX_BACKENDS, MAX_VIPS, BackendKey, TableIds, VipKey
from forwarder.tables import Tables

if TYPE_CHECKING:
    from forwarder._dataplane import ClusterEntry, LoadBound

NO_SLOTS: "array[int]" = array("H")
CLUSTER_SLOTS = 5003
"""Of the table that shares fragments out; the same on all nodes, and a prime."""
Backends = frozenset[BackendKey]
Former = dict[VipKey, Backends]


@dataclass(frozen=True, slots=True)
class Members:
    """What a vip's members come to. Vips with the same members have the same objects, so that work is done once."""

    table: Table
    known: Backends
    usable: Backends
    """Those that old flows may use: all but the ones that are down."""


@dataclass(frozen=True)
class Prepared:
    """A state message that was found good, its tables built: what needs time without needing the state in force."""

    message: StateMessage
    digest: str
    members: dict[VipKey, Members]


@dataclass(frozen=True)
class Applied:
    """What is in force: the message, its digest, and how many states came before."""

    message: StateMessage
    digest: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What would happen to a packet of one flow."""

    vip: str | None
    hash: int
    slot: int
    backend: str | None
    tracked: bool

    @property
    def fate(self) -> str:
        """The fate that the packet would get."""
        if self.vip is None:
            return "not_vip"
        if self.backend is None:
            return "no_backend"
        return "conn_hit" if self.tracked else "hash_new"


class Forwarding:
    """Builds and publishes forwarding states. For the control thread alone.

    `ids` are those of the connection tables, where they hold another process's flows. `note(ids)` is told before a
    state that brings new ones is published, so that the process after this one can know them.
    """

    def __init__(
        self,
        dataplane: Dataplane,
        hops: NextHops,
        sources: dict[int, Address],
        node: str,
        ids: TableIds | None = None,
        note: Callable[[TableIds], None] = lambda ids: None,
    ) -> None:
        ids = ids or TableIds()
        self._node = node
        self._dataplane = dataplane
        self._hops = hops
        self._sources = sources
        self._tables = Tables()
        self._note = note
        self._vips: Counted[VipKey] = Counted(MAX_VIPS, dataplane.vip_traffic, dataplane.vip_flows, ids.vips)
        self._backends: Counted[BackendKey] = Counted(
            MAX_BACKENDS, dataplane.backend_traffic, dataplane.backend_flows, ids.backends
        )
        self._former: Former = {}  # left the vip, still have flows
        # What old flows of each vip may use. A family may have lost its tunnel source since another process.
        self._usable: Former = {
            vip: frozenset(b for b in keys if b[1].version in sources) for vip, keys in ids.usable.items()
        }
        self._hop_of: dict[Address, int] = {}
        self._prepared = Prepared(StateMessage({}, ()), "", {})
        self.applied = Applied(self._prepared.message, None, 0)

    def prepare(self, raw: dict[str, Any]) -> Prepared:
        """Check a state message and build its tables; the long part of applying it. Raises StateRefused.

        May run on a thread of its own, one at a time and before its own `apply`: it only adds tables.
        """
        return self._prepare(raw, self._tables)

    def rehearsal(self) -> Callable[[dict[str, Any]], Prepared]:
        """A `prepare` of messages that will not be applied, for a thread of its own: its tables go with it."""
        return partial(self._prepare, tables=self._tables.copy())

    def _prepare(self, raw: dict[str, Any], tables: Tables) -> Prepared:
        message = parse(raw)
        for name, address in message.backends.items():
            if address.version not in self._sources:
                raise StateRefused(f"backend {name}: no tunnel_source of family ipv{address.version}")
        if message.cluster and self._node not in message.cluster:
            raise StateRefused(f"the cluster has no node {self._node}, which is this one")
        for address in message.cluster.values():
            if address.version not in self._sources:
                raise StateRefused(f"the cluster: no tunnel_source of family ipv{address.version}")
        return Prepared(message, state_digest(raw, tables.build), self._members(message, tables))

    def apply(self, prepared: Prepared) -> Applied:
        """Apply a state whole. Raises StateRefused; then nothing has changed."""
        former = self._still_draining(prepared)
        try:
            self._publish(prepared, former)
        except IdsExhausted as error:
            raise StateRefused(f"too many vips or backends: {error}") from error
        self._former = former
        self._prepared = prepared
        self.applied = Applied(prepared.message, prepared.digest, self.applied.generation + 1)
        self._tables.forget_unused()
        return self.applied

    def follow_next_hops(self) -> None:
        """After a new view of the kernel: rewrite MACs, and the state where a route leads elsewhere."""
        moved = any(self._hops.index(address) != index for address, index in self._hop_of.items())
        self._write_macs()
        if moved:
            self._publish(self._prepared, self._former)

    def reap(self) -> None:
        """Let go of what has left and whose flows have ended. To be called now and then."""
        with_flows = cache(lambda backends: frozenset(b for b in backends if self._backends.flows(b) > 0))
        still = {vip: with_flows(backends) for vip, backends in self._former.items()}
        kept = {vip: backends for vip, backends in still.items() if backends}
        if kept != self._former:
            self._former = kept
            self._publish(self._prepared, kept)
        self._release()

    def flush(self, name: str | None) -> bool:
        """Forget every flow of the backend, or, with None, of all; False when there is none of this name."""
        if name is None:
            self._dataplane.flush(None)
            return True
        numbers = [number for (known, _), number in self._backends.items() if known == name]
        for number in numbers:
            self._dataplane.flush(number)
        return bool(numbers)

    def lookup(
        self, protocol: int, source: Address, source_port: int, destination: Address, destination_port: int
    ) -> Answer:
        """What would happen to a packet of this flow now."""
        vip, hashed, slot, backend, tracked = self._dataplane.lookup(
            protocol, source.packed, source_port, destination.packed, destination_port
        )
        vips, backends = self.names()
        return Answer(
            vips.get(vip) if vip is not None else None,
            hashed,
            slot,
            backends.get(backend) if backend is not None else None,
            tracked,
        )

    def names(self) -> tuple[dict[int, str], dict[int, str]]:
        """Names by the data plane's numbers: of vips, and of backends, former ones included."""
        by_key = {vip.key: vip.name for vip in self.applied.message.vips}
        vips = {number: by_key[key] for key, number in self._vips.items() if key in by_key}
        backends = {number: name for (name, _), number in self._backends.items()}
        return vips, backends

    def traffic(self) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
        """Packets and bytes forwarded: ({vip: ...}, {backend: ...}), former backends included."""
        by_key = {vip.key: vip.name for vip in self.applied.message.vips}
        vips = {by_key[key]: traffic for key, traffic in self._vips.traffic() if key in by_key}
        backends: dict[str, Counter[str]] = {}
        for (name, _), traffic in self._backends.traffic():  # one name may have a former address beside its own
            backends.setdefault(name, Counter()).update(traffic)
        return vips, {name: dict(traffic) for name, traffic in backends.items()}

    def load_bounds(self) -> dict[str, dict[str, Any]]:
        """Of each vip that has a load bound: {"bound", "over": names of the backends that are over it now}."""
        _, backends = self.names()
        return {
            vip.name: {
                "bound": vip.load_bound,
                "over": sorted(backends[number] for number in self._dataplane.over(self._vips.assign(vip.key)[0])),
            }
            for vip in self.applied.message.vips
            if vip.load_bound is not None
        }

    def path_mtus(self) -> list[dict[str, Any]]:
        """What was learned of the ways to backends: {"backend", "address", "mtu", "seconds"} each."""
        found = []
        for (name, address), number in self._backends.items():
            learned = self._dataplane.path_mtu(number)
            if learned is not None:
                mtu, seconds = learned
                found.append({"backend": name, "address": str(address), "mtu": mtu, "seconds": seconds})
        return found

    def table(self, vip: VipMessage) -> Table:
        """The table of a vip of the state in force."""
        return self._prepared.members[vip.key].table

    def churn(self, prepared: Prepared) -> Churn:
        """What applying this would do to the live flows. Nothing gets a number by it."""
        usable = self._usable_with(prepared, self._still_draining(prepared))
        then = {vip.key: self._side(vip, prepared, usable[vip.key]) for vip in prepared.message.vips}
        numbers = dict(self._vips.items())
        vips = [
            (vip, numbers[vip.key], self._side(vip, self._prepared, self._usable[vip.key]), then.get(vip.key, GONE))
            for vip in self.applied.message.vips
        ]
        return Churn(self._dataplane, vips, self._backends.held())

    @staticmethod
    def _side(vip: VipMessage, prepared: Prepared, usable: Backends) -> Side:
        members = prepared.members[vip.key]
        return Side(members.table, members.known, usable, vip.client_affinity)

    def _members(self, message: StateMessage, tables: Tables) -> dict[VipKey, Members]:
        keys = {name: (name, address) for name, address in message.backends.items()}
        shared: dict[Backends, Backends] = {}

        def one(backends: Backends) -> Backends:
            return shared.setdefault(backends, backends)

        return {
            vip.key: Members(
                tables.build(vip.weights, vip.table_size, vip.scheduler),
                one(frozenset(keys[m.backend] for m in vip.members)),
                one(frozenset(keys[m.backend] for m in vip.members if m.status != "down")),
            )
            for vip in message.vips
        }

    def _still_draining(self, prepared: Prepared) -> Former:
        """Per vip, the backends of the state in force that the message no longer names."""
        # Whether they have flows is looked at by reap(): a worker may be making the last one right now.
        gone = cache(lambda usable, known: usable - known)
        left = {vip: gone(self._usable[vip], m.known) for vip, m in prepared.members.items() if vip in self._usable}
        return {vip: keys for vip, keys in left.items() if keys}

    @staticmethod
    def _usable_with(prepared: Prepared, former: Former) -> Former:
        """What old flows of each vip may use: its members, and those that left it."""
        both = cache(lambda members, left: members | left if left else members)
        return {vip: both(members.usable, former.get(vip, frozenset())) for vip, members in prepared.members.items()}

    def _publish(self, prepared: Prepared, former: Former) -> None:
        message = prepared.message
        usable = self._usable_with(prepared, former)
        keys = set(message.backends.items()).union(*former.values())
        numbers = {key: self._backends.assign(key) for key in sorted(keys, key=lambda key: key[0])}
        others = (address for name, address in message.cluster.items() if name != self._node)
        addresses = {address for _, address in keys}.union(others)
        hop_of = {address: self._hops.index(address) for address in addresses}
        backends = [(*numbers[key], *self._tunnel(key[1], hop_of)) for key in numbers]
        by_name = {name: numbers[name, address][0] for name, address in message.backends.items()}
        numbers_of = cache(lambda backends: array("H", sorted(numbers[key][0] for key in backends)))
        slots_of = self._slots_of(prepared, by_name)
        vips = [self._vip_entry(vip, slots_of[vip.key], numbers_of(usable[vip.key])) for vip in message.vips]
        bounds = self._bounds(message.vips, by_name)
        state = State(vips, backends, self._cluster_entry(message.cluster, hop_of), bounds)
        self._write_macs()
        # First: a process that is killed between the two has made no entry that its successor could not read.
        self._note(TableIds(self._vips.held(), self._backends.held(), usable))
        self._dataplane.publish(state)
        self._usable = usable
        self._hop_of = hop_of
        for index in self._hops.release_unless(set(hop_of.values())):
            self._dataplane.set_next_hop(index, 0, None)

    def _release(self) -> None:
        message = self.applied.message
        self._vips.release_unless({vip.key for vip in message.vips})
        self._backends.release_unless(set(message.backends.items()).union(*self._former.values()))

    def _write_macs(self) -> None:
        for index, hop, mac in self._hops.resolved():
            self._dataplane.set_next_hop(index, hop.port, mac)

    def _tunnel(self, address: Address, hop_of: dict[Address, int]) -> tuple[int, bytes, bytes]:
        return hop_of.get(address, UNREACHABLE), address.packed, self._sources[address.version].packed

    def _cluster_entry(self, nodes: dict[str, Address], hop_of: dict[Address, int]) -> "ClusterEntry | None":
        """The nodes in the order of their names, and which of them has the fragments of a slot.

        No next hop leads to this node: nothing is sent there.
        """
        if not nodes:
            return None
        names = sorted(nodes, key=str.encode)
        table = self._tables.build(dict.fromkeys(names, 1), CLUSTER_SLOTS, MAGLEV)
        slots = self._tables.slots(table, {name: position for position, name in enumerate(names)})
        return [self._tunnel(nodes[name], hop_of) for name in names], names.index(self._node), slots

    def _slots_of(self, prepared: Prepared, numbers: dict[str, int]) -> dict[VipKey, "array[int]"]:
        different = {id(members.table): members.table for members in prepared.members.values()}
        slots = {key: self._tables.slots(t, numbers) if t.names else NO_SLOTS for key, t in different.items()}
        return {vip: slots[id(members.table)] for vip, members in prepared.members.items()}

    def _bounds(self, vips: tuple[VipMessage, ...], numbers: dict[str, int]) -> "dict[int, LoadBound]":
        return {
            self._vips.assign(vip.key)[0]: (
                vip.load_bound,
                array("H", [numbers[name] for name in vip.weights]),
                array("I", vip.weights.values()),
            )
            for vip in vips
            if vip.load_bound is not None
        }

    def _vip_entry(self, vip: VipMessage, slots: "array[int]", usable: "array[int]") -> tuple[Any, ...]:
        number, _ = self._vips.assign(vip.key)
        return number, vip.address.packed, vip.protocol, vip.port, vip.client_affinity, slots, usable
