"""Rules that span several keys of vips, pools and checks, and what these need from the node."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from controller.config_errors import KeyPath, instead_of, show
from controller.config_sections import BackendEntry, PoolEntry, Sections
from controller.model import ANY_PORT, Address
from controller.node_rules import Finding, own_addresses
from controller.pools import Reached, reach
from forwarder.hashing.slot_table import MAX_MEMBERS

_MIN_IPV6_MTU = 1280
ENCAPSULATION = {4: 24, 6: 44}
"""Bytes of the outer headers, by their IP version."""


def service_findings(config: Sections) -> Iterator[Finding]:
    """What is wrong with what the node shall serve."""
    yield from _checks(config)
    yield from _references(config)
    yield from _cycles(config)
    yield from _pool_contents(config)
    yield from _identities(config)
    yield from _nodes(config)
    yield from _vips(config)
    yield from _load_bounds(config)
    reached = cache(lambda names: list(reach(names, config.backend_pools)))
    served = [reached(vip.pools) for vip in config.vips]
    yield from _conflicts(config, served)
    yield from _sizes(config, served)
    yield from _families(config, served)


def _checks(config: Sections) -> Iterator[Finding]:
    for name, check in config.health_checks.items():
        if check.timeout > check.interval:
            message = "is longer than the interval; write a timeout of at most the interval"
            yield ("health_checks", name, "timeout"), message
        if check.fast_interval and check.fast_interval > check.interval:
            message = "is longer than the interval; write one of at most the interval, or leave it out"
            yield ("health_checks", name, "fast_interval"), message


def _missing(kind: str, name: str, known: Collection[str], section: str) -> str:
    otherwise = f"one of {section}" if known else f"it under {section} first"
    return f"there is no {kind} {name}; write {instead_of(name, known, otherwise)}"


def _references(config: Sections) -> Iterator[Finding]:
    pools = config.backend_pools
    for name, pool in pools.items():
        path: KeyPath = ("backend_pools", name)
        for position, check in enumerate(pool.health_checks):
            if check not in config.health_checks:
                message = _missing("health check", check, config.health_checks, "health_checks")
                yield (*path, "health_checks", position), message
        for position, entry in enumerate(pool.backends):
            if isinstance(entry, PoolEntry) and entry.pool not in pools:
                message = _missing("pool", entry.pool, pools.keys() - {name}, "backend_pools")
                yield (*path, "backends", position, "pool"), message
    for position, vip in enumerate(config.vips):
        for index, name in enumerate(vip.pools):
            if name not in pools:
                yield ("vips", position, "pools", index), _missing("pool", name, pools, "backend_pools")


def _cycles(config: Sections) -> Iterator[Finding]:
    """Each cycle once, at the entry that closes it. No recursion: a chain may be as long as the file."""
    inner = {
        name: [(i, e.pool) for i, e in enumerate(pool.backends) if isinstance(e, PoolEntry)]
        for name, pool in config.backend_pools.items()
    }
    finished: set[str] = set()
    for start in inner:
        trail = {start: None}
        ways = [iter(inner[start])] if start not in finished else []
        while ways:
            position, target = next(ways[-1], (-1, ""))
            if position < 0:
                ways.pop()
                finished.add(trail.popitem()[0])
            elif target in trail:
                names = list(trail)
                cycle = " -> ".join([*names[names.index(target) :], target])
                path = ("backend_pools", names[-1], "backends", position, "pool")
                yield path, f"makes a cycle of pools, {cycle}; leave this entry out"
            elif target in inner and target not in finished:
                trail[target] = None
                ways.append(iter(inner[target]))


def _pool_contents(config: Sections) -> Iterator[Finding]:
    """Within one pool every name, address and inner pool stands once."""
    for name, pool in config.backend_pools.items():
        seen: dict[tuple[str, str], int] = {}
        for position, entry in enumerate(pool.backends):
            if isinstance(entry, BackendEntry):
                keys = [("name", entry.name), ("address", str(entry.address))]
            else:
                keys = [("pool", entry.pool)]
            for kind, value in keys:
                first = seen.setdefault((kind, value), position)
                if first != position:
                    message = f"{value} is already entry {first} of this pool; write each {kind} once"
                    yield ("backend_pools", name, "backends", position, kind), message


def _backends(config: Sections) -> Iterator[tuple[KeyPath, BackendEntry]]:
    for name, pool in config.backend_pools.items():
        for position, entry in enumerate(pool.backends):
            if isinstance(entry, BackendEntry):
                yield ("backend_pools", name, "backends", position), entry


def _identities(config: Sections) -> Iterator[Finding]:
    """One name has one address and one address one name, in all pools; and none is a vip or the node."""
    addresses: dict[str, Address] = {}
    names: dict[Address, str] = {}
    vips = {vip.address: vip.name for vip in config.vips}
    own = own_addresses(config)
    for path, entry in _backends(config):
        name, address = entry.name, entry.address
        if addresses.setdefault(name, address) != address:
            message = f"backend {name} also has the address {addresses[name]}; write one address per name"
            yield (*path, "address"), message
        if names.setdefault(address, name) != name:
            message = f"address {address} is also named {names[address]}; write one name per address"
            yield (*path, "name"), message
        if address in vips:
            message = f"{address} is the address of vip {vips[address]}; write the server's own address"
            yield (*path, "address"), message
        if address in own:
            message = f"{address} is this node ({own[address]}); write the address of a server"
            yield (*path, "address"), message


def _nodes(config: Sections) -> Iterator[Finding]:
    """A node of the cluster is neither a vip nor a backend."""
    taken = {entry.address: f"backend {entry.name}" for _, entry in _backends(config)}
    taken |= {vip.address: f"vip {vip.name}" for vip in config.vips}
    for position, node in enumerate(config.cluster.nodes):
        if node.address in taken:
            message = f"{node.address} is the address of {taken[node.address]}; write the node's tunnel source"
            yield ("cluster", "nodes", position, "address"), message


def _vips(config: Sections) -> Iterator[Finding]:
    names: dict[str, int] = {}
    endpoints: dict[tuple[Address, str, int], int] = {}
    own = own_addresses(config)
    for position, vip in enumerate(config.vips):
        path: KeyPath = ("vips", position)
        if names.setdefault(vip.name, position) != position:
            yield (*path, "name"), f"{vip.name} is already vip {names[vip.name]}; write another name"
        first = endpoints.setdefault((vip.address, vip.protocol, vip.port), position)
        if first != position:
            port = "any port" if vip.port == ANY_PORT else f"port {vip.port}"
            name = config.vips[first].name
            message = f"{vip.address} {vip.protocol} {port} is already vip {name}; write another port"
            yield (*path, "port"), message
        if vip.address in own:
            message = f"{vip.address} is this node ({own[vip.address]}); write an address of its own"
            yield (*path, "address"), message


def _load_bounds(config: Sections) -> Iterator[Finding]:
    for position, vip in enumerate(config.vips):
        path: KeyPath = ("vips", position, "load_bound")
        if vip.load_bound is None:
            continue
        if vip.protocol != "tcp":
            message = f"is for tcp, where a SYN begins a flow, and the protocol is {vip.protocol}; leave it out"
            yield path, message
        if vip.affinity == "client":
            message = "would tear the flows of a client apart, which affinity: client keeps together; leave one out"
            yield path, message


def _conflicts(config: Sections, served: list[list[Reached]]) -> Iterator[Finding]:
    """A backend that one vip reaches twice must be the same both times."""
    told: set[KeyPath] = set()
    for vip, reaches in zip(config.vips, served, strict=True):
        first: dict[str, Reached] = {}
        for reached in reaches:
            name = reached.entry.name
            earlier = first.setdefault(name, reached)
            for key in ("weight", "drain"):
                path, before = (*reached.path, key), getattr(earlier.entry, key)
                if getattr(reached.entry, key) != before and path not in told:
                    told.add(path)
                    where = f"vip {vip.name} reaches {name} also by {earlier.path[1]} with another {key}"
                    yield path, f"{where}; write {show(before)} in both"


def _sizes(config: Sections, served: list[list[Reached]]) -> Iterator[Finding]:
    for position, (vip, reaches) in enumerate(zip(config.vips, served, strict=True)):
        count = len({reached.entry.name for reached in reaches})
        if count > MAX_MEMBERS:
            yield ("vips", position, "pools"), f"has {count} backends; write at most {MAX_MEMBERS}"
        elif count > vip.table_size:
            message = f"{vip.table_size} slots are too few for {count} backends; write a prime above {count}"
            yield ("vips", position, "table_size"), message


def _families(config: Sections, served: list[list[Reached]]) -> Iterator[Finding]:
    """A source for every outer family, a next hop for every announced one, and room for IPv6."""
    missing: dict[KeyPath, str] = {}
    to_nodes = {node.address.version for node in config.cluster.nodes}
    smallest = 0
    tunnel = {name for name, check in config.health_checks.items() if check.through_tunnel}
    for vip, reaches in zip(config.vips, served, strict=True):
        family = vip.address.version
        if config.node.tunnel_source.of(family) is None and any(tunnel.intersection(r.checks) for r in reaches):
            message = f"health checks through the tunnel to vip {vip.name} come from it; write the node's IPv{family}"
            missing.setdefault(("node", "tunnel_source", f"ipv{family}"), f"{message} address")
        if config.bgp.speaker != "none" and config.bgp.next_hop.of(family) is None:
            path: KeyPath = ("bgp", "next_hop", f"ipv{family}")
            message = f"vip {vip.name} is announced with it; write the node's IPv{family} address"
            missing.setdefault(path, message)
        for reached in reaches:
            outer = reached.entry.address.version
            if config.node.tunnel_source.of(outer) is None:
                path = ("node", "tunnel_source", f"ipv{outer}")
                message = f"backend {reached.entry.name} needs it; write the node's IPv{outer} address"
                missing.setdefault(path, message)
        for outer in to_nodes.union(reached.entry.address.version for reached in reaches):
            if family == 6 or outer == 6:
                inside = ENCAPSULATION[outer] if family == 6 else 0
                smallest = max(smallest, _MIN_IPV6_MTU + inside)
    yield from missing.items()
    for position, port in enumerate(config.forwarder.ports):
        if port.mtu < smallest:
            message = f"{port.mtu} is too small for IPv6 as configured; write at least {smallest}"
            yield ("forwarder", "ports", position, "mtu"), message
