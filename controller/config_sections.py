"""The sections of the configuration file, key by key; attribute names are the YAML keys (DESIGN 8).

A section knows the kind and range of each value. What spans several keys is in node_rules and service_rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import ConfigDict, Discriminator, Field, Tag

from controller import config_values as values
from controller.config_values import distinct, duration, number, one_of, whole, whole_seconds
from controller.durations import DAY
from controller.probes import KINDS
from controller.probes.check import Check
from controller.section import Section
from forwarder.hashing.slot_table import MAGLEV, SCHEDULERS, WITH_HISTORY

NOT_BUILT_YET = frozenset({"shard"})
"""Keys of later versions, refused with another word than a misspelling."""


class PerFamily(Section):
    """One address of the node per address family."""

    ipv4: values.V4Address | None = None
    ipv6: values.V6Address | None = None

    def of(self, version: int) -> IPv4Address | IPv6Address | None:
        """The address of IP version 4 or 6."""
        return self.ipv4 if version == 4 else self.ipv6


class Node(Section):
    """Who this node is; `hash_key` is the same on all nodes."""

    name: values.Name = Field(examples=["lb1"])
    tunnel_source: PerFamily = PerFamily()
    hash_key: values.HashKey = Field(examples=["<32 random hex digits>"])
    drain_time: Annotated[float, duration(0, 3600)] = 10.0


class Gateway(PerFamily):
    """A next hop that is written down instead of asked from the kernel."""

    mac: values.Mac | None = None


class ForwarderPort(Section):
    """One port that packets come and go through; `mtu` is the egress path's, encapsulation included.

    `tap`: the kernel's interface beside a port that the kernel does not see.
    """

    device: values.Device = Field(examples=["eth1"])
    driver: Annotated[
        Literal["auto", "af_packet", "af_xdp", "pci", "vdev"],
        one_of("auto", "af_packet", "af_xdp", "pci", "vdev"),
    ] = "auto"
    gateway: Gateway = Gateway()
    mtu: Annotated[int, whole(576, 9216)] = 1500
    tap: values.Interface | None = None

    @property
    def kind(self) -> Literal["interface", "pci", "vdev"]:
        """What the device is: an interface of the kernel, a PCI address, or a DPDK vdev string."""
        if self.device.startswith(values.VDEV_PREFIX):
            return "vdev"
        return "pci" if values.is_pci(self.device) else "interface"

    def tap_at(self, position: int) -> str | None:
        """The kernel's interface beside the port at this position of the list; every NIC on PCI has one."""
        return self.tap or (f"maglev{position}" if self.kind == "pci" else None)


class Lcores(Section):
    """The CPU of each stage; with `steering: rss` those of steering and muxing are for the fallback."""

    steering: Annotated[int, whole(0, 1023)] = 0
    workers: Annotated[tuple[Annotated[int, whole(0, 1023)], ...], Field(min_length=1, max_length=32)] = (1,)
    muxing: Annotated[int, whole(0, 1023)] = 0


class ConnectionTable(Section):
    """Entries per worker, and how long a silent connection is remembered."""

    entries: Annotated[int, whole(64, 1 << 27)] = 1 << 20
    tcp_half_open: Annotated[float, duration(1, DAY)] = 10.0
    tcp_established: Annotated[float, duration(1, DAY)] = 7200.0
    tcp_closing: Annotated[float, duration(1, DAY)] = 10.0
    udp: Annotated[float, duration(1, DAY)] = 60.0


class Forwarder(Section):
    """The process that moves packets."""

    ports: Annotated[tuple[ForwarderPort, ...], Field(max_length=8)] = ()
    steering: Annotated[Literal["software", "rss"], one_of("software", "rss")] = "software"
    lcores: Lcores = Lcores()
    idle: Annotated[Literal["spin", "yield", "sleep"], one_of("spin", "yield", "sleep")] = "sleep"
    packet_pool: Annotated[int, whole(1024, 1 << 23)] = 16384
    ring_size: Annotated[int, values.power_of_two(64, 65536)] = 2048
    connection_table: ConnectionTable = ConnectionTable()
    hugepages: values.Boolean = True


class Neighbor(Section):
    """One BGP neighbor."""

    address: values.PeerAddress = Field(examples=["10.0.2.1"])
    remote_as: Annotated[int, whole(1, 4294967295)] = Field(examples=["65001"])
    hold_time: Annotated[float, whole_seconds(3, 65535)] = 9.0
    password: values.Secret | None = None


class Bgp(Section):
    """How addresses are announced; without this section they are not."""

    speaker: Annotated[Literal["exabgp", "bird", "none"], one_of("exabgp", "bird", "none")] = "exabgp"
    local_as: Annotated[int, whole(1, 4294967295)] | None = None
    router_id: values.RouterId | None = None
    neighbors: tuple[Neighbor, ...] = ()
    next_hop: PerFamily = PerFamily()
    lease: Annotated[float, duration(1, 3600)] = 3.0


class Metrics(Section):
    """Where Prometheus finds the metrics; null: at the control socket only."""

    listen: values.LoopbackEndpoint | None = None


class ClusterNode(Section):
    """One node of the cluster; `address` is its tunnel source."""

    name: values.Name = Field(examples=["lb2"])
    address: values.AnyAddress = Field(examples=["10.0.2.6"])


class Cluster(Section):
    """The nodes that serve the same vips: they send each datagram's fragments on to one of them."""

    nodes: Annotated[tuple[ClusterNode, ...], Field(max_length=64)] = ()


class UnknownCheck(Check):
    """A check of no kind: refused for its type, and which other keys it may have cannot be said."""

    model_config = ConfigDict(extra="ignore")

    type: Annotated[str, one_of(*KINDS)] = Field(examples=["http"])


class BackendEntry(Section):
    """One backend of a pool."""

    name: values.Name = Field(examples=["web1"])
    address: values.AnyAddress = Field(examples=["10.0.3.2"])
    weight: Annotated[int, whole(0, 1_000_000)] = 100
    drain: values.Boolean = False


class PoolEntry(Section):
    """Every backend of another pool, with that pool's checks."""

    pool: values.Name = Field(examples=["spare"])


def _kind_of_check(value: object) -> str:
    kind = value.get("type") if isinstance(value, Mapping) else None
    return f"<{KINDS[kind].section.__name__}>" if isinstance(kind, str) and kind in KINDS else "<UnknownCheck>"


def _kind_of_entry(value: object) -> str:
    return "<PoolEntry>" if isinstance(value, Mapping) and "pool" in value else "<BackendEntry>"


# The tags are class names in brackets: problems are traced to their section by them.
CHECKS: tuple[type[Check], ...] = (*(kind.section for kind in KINDS.values()), UnknownCheck)
if TYPE_CHECKING:
    HealthCheck = Check
else:
    HealthCheck = Annotated[
        Union[tuple(Annotated[section, Tag(f"<{section.__name__}>")] for section in CHECKS)],  # noqa: UP007
        Discriminator(_kind_of_check),
    ]
Entry = Annotated[
    Annotated[BackendEntry, Tag("<BackendEntry>")] | Annotated[PoolEntry, Tag("<PoolEntry>")],
    Discriminator(_kind_of_entry),
]


class Pool(Section):
    """A backend pool; a backend must pass all of `health_checks`, and is always up when there are none.

    While more than the share `panic_above` of its backends is down, the pool is kept as if it had no checks.
    """

    health_checks: Annotated[tuple[values.Name, ...], distinct("health check")] = ()
    panic_above: Annotated[float, values.share(0.01, 0.99)] | None = None
    backends: tuple[Entry, ...] = ()


class VipEntry(Section):
    """One vip; `port` is 0 for any."""

    name: values.Name = Field(examples=["www"])
    address: values.AnyAddress = Field(examples=["192.0.2.1"])
    protocol: Annotated[Literal["tcp", "udp"], one_of("tcp", "udp")] = "tcp"
    port: values.VipPort = Field(examples=["80"])
    pools: Annotated[tuple[values.Name, ...], Field(min_length=1, examples=["[web]"]), distinct("pool")]
    scheduler: Annotated[
        str,
        one_of(*SCHEDULERS, never=dict.fromkeys(WITH_HISTORY, "depends on its past, so that nodes would not agree")),
    ] = MAGLEV
    table_size: values.Prime = 65537
    affinity: Annotated[Literal["flow", "client"], one_of("flow", "client")] = "flow"
    load_bound: Annotated[float, number(1.01, 10)] | None = None
    min_healthy: Annotated[int, whole(1, 65534)] = 1


class Sections(Section):
    """The whole file."""

    node: Node = Field(examples=["{name: lb1, ...}"])
    forwarder: Forwarder = Forwarder()
    cluster: Cluster = Cluster()
    bgp: Bgp = Bgp(speaker="none")
    metrics: Metrics = Metrics()
    health_checks: Mapping[values.Name, HealthCheck] = {}
    backend_pools: Mapping[values.Name, Pool] = {}
    vips: tuple[VipEntry, ...] = ()
