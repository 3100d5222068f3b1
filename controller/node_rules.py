"""Rules that span several keys of node, forwarder and bgp."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from controller.config_errors import KeyPath
from controller.config_sections import ForwarderPort, Sections
from controller.model import Address

Finding = tuple[KeyPath, str]


def node_findings(config: Sections) -> Iterator[Finding]:
    """What is wrong with the node itself, whatever it serves."""
    yield from _ports(config)
    yield from _lcores(config)
    if config.bgp.speaker != "none":
        yield from _bgp(config)
    yield from _neighbors(config)
    yield from _cluster(config)


def own_addresses(config: Sections) -> dict[Address, str]:
    """{address: the key that gives it to this node}."""
    bgp, source = config.bgp, config.node.tunnel_source
    keys = (
        (bgp.next_hop.ipv4, "bgp.next_hop.ipv4"),
        (bgp.next_hop.ipv6, "bgp.next_hop.ipv6"),
        (bgp.router_id, "bgp.router_id"),
        (source.ipv4, "node.tunnel_source.ipv4"),
        (source.ipv6, "node.tunnel_source.ipv6"),
    )
    return {address: key for address, key in keys if address is not None}


def _ports(config: Sections) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for position, port in enumerate(config.forwarder.ports):
        path: KeyPath = ("forwarder", "ports", position)
        if first.setdefault(port.device, position) != position:
            message = f"{port.device} is already port {first[port.device]}; write each device once"
            yield (*path, "device"), message
        yield from _driver(path, port)
    yield from _beside_nics(config)


def _driver(path: KeyPath, port: ForwarderPort) -> Iterator[Finding]:
    if port.driver not in ("auto", *DRIVERS[port.kind]):
        what = {"interface": "the interface", "pci": "the PCI device", "vdev": "the vdev"}[port.kind]
        message = f"{port.driver} cannot open {what} {port.device}; write {', '.join(DRIVERS[port.kind])} or auto"
        yield (*path, "driver"), message
    if port.device.startswith("net_af_xdp"):
        message = "takes every packet of its interface, the kernel's too; write device: eth1 and driver: af_xdp"
        yield (*path, "device"), message
    if port.kind == "interface" and port.mtu > KERNEL_PORT_MTU:
        yield (*path, "mtu"), f"is more than a port on a kernel interface can carry; write at most {KERNEL_PORT_MTU}"


def _beside_nics(config: Sections) -> Iterator[Finding]:
    ports = config.forwarder.ports
    taken = {port.device: f"port {position}" for position, port in enumerate(ports)}
    for position, port in enumerate(ports):
        path: KeyPath = ("forwarder", "ports", position)
        tap = port.tap_at(position)
        if port.kind == "interface" and tap:
            yield (*path, "tap"), f"{port.device} is an interface of the kernel already; leave tap out"
        elif tap and taken.setdefault(tap, f"the tap of port {position}") != f"the tap of port {position}":
            yield (*path, "tap"), f"{tap} is {taken[tap]} already; write another name"
        if port.driver == "af_xdp" and any(other.kind == "pci" for other in ports):
            yield (*path, "driver"), "af_xdp and NICs on PCI have no packet pool in common; write af_packet"
    if not config.forwarder.hugepages and any(port.kind == "pci" for port in ports):
        yield ("forwarder", "hugepages"), "is false, and a NIC on PCI needs memory that stays in place; write true"


DRIVERS = {"interface": ("af_packet", "af_xdp"), "pci": ("pci",), "vdev": ("vdev",)}
"""What opens each kind of device."""

KERNEL_PORT_MTU = 1900
"""What fits a packet buffer of 2 KB behind the kernel's own header of each ring slot."""


def _lcores(config: Sections) -> Iterator[Finding]:
    if config.forwarder.idle == "sleep":
        return
    lcores = config.forwarder.lcores
    beside = () if config.forwarder.steering == "rss" else (lcores.steering, lcores.muxing)
    stages = Counter([*lcores.workers, *beside])
    for cpu in sorted(cpu for cpu, count in stages.items() if count > 1):
        message = f"CPU {cpu} has several stages; write a CPU for each, or idle: sleep"
        yield ("forwarder", "lcores"), message


def _bgp(config: Sections) -> Iterator[Finding]:
    bgp = config.bgp
    if bgp.local_as is None:
        yield ("bgp", "local_as"), "is missing; write local_as: 65002, or speaker: none"
    if bgp.router_id is None:
        yield ("bgp", "router_id"), "is missing; write router_id: 10.0.2.2, or speaker: none"
    if not bgp.neighbors:
        yield ("bgp", "neighbors"), "is missing; write at least one neighbor, or speaker: none"


def _neighbors(config: Sections) -> Iterator[Finding]:
    first: dict[Address, int] = {}
    own = own_addresses(config)
    for position, neighbor in enumerate(config.bgp.neighbors):
        path: KeyPath = ("bgp", "neighbors", position, "address")
        if first.setdefault(neighbor.address, position) != position:
            message = f"{neighbor.address} is already neighbor {first[neighbor.address]}; write it once"
            yield path, message
        if neighbor.address in own:
            message = f"{neighbor.address} is this node ({own[neighbor.address]}); write the router's address"
            yield path, message


def _cluster(config: Sections) -> Iterator[Finding]:
    """Names and addresses once each, of one family; this node may be listed, as it is."""
    nodes = config.cluster.nodes
    first: dict[tuple[str, str], int] = {}
    for position, node in enumerate(nodes):
        path: KeyPath = ("cluster", "nodes", position)
        for key, value in (("name", node.name), ("address", str(node.address))):
            if first.setdefault((key, value), position) != position:
                yield (*path, key), f"{value} is already node {first[key, value]}; write each {key} once"
        own = config.node.tunnel_source.of(node.address.version)
        family = f"ipv{node.address.version}"
        if own is None:
            yield (*path, "address"), f"needs node.tunnel_source.{family} here too; write it, or another address"
        elif (node.name == config.node.name) != (node.address == own):
            message = f"this node is {config.node.name} with {own}; write both here, or leave this entry out"
            yield (*path, "address"), message
        if node.address.version != nodes[0].address.version:
            yield (*path, "address"), f"is of another family than that of {nodes[0].name}; write one of the same"
