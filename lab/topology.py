"""The lab's network: one router, and a wire of its own from it to every other host.

client --- router === lb1, lb2     (BGP, ECMP; a node gets and sends on one port)
              |====== b1 .. b4     (GRE from the nodes; answers go straight back to the client)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from typing import Final

from lab.namespaces import LabError, Namespace

VIP: Final = IPv4Address("192.0.2.1")
PORT: Final = 80
DEVICE: Final = "eth1"  # the one interface of every host but the router
DECAP_DEVICE: Final = "decap0"  # where the inner packets come out at a backend
CLIENT_MTU: Final = 1500
TUNNEL_MTU: Final = 1600  # a full inner packet of 1500 bytes and the GRE encapsulation

# A backend answers from the vip, whose route points at the nodes: no reverse path filter fits.
NO_FILTER: Final = ("net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
# ECMP by the 5-tuple as the headers have it. Policy 1 would do on a real wire; over veth it takes the hash that
# the client's socket left on the packet, which is random and changes when the socket retransmits.
ROUTER_SYSCTLS: Final = (
    *NO_FILTER,
    "net.ipv4.ip_forward=1",
    "net.ipv4.fib_multipath_hash_policy=3",
    "net.ipv4.fib_multipath_hash_fields=0x37",
)
CLIENT_SYSCTLS: Final = ("net.ipv4.ip_forward=0", "net.ipv4.ip_local_port_range=1024 65535")
NODE_SYSCTLS: Final = (*NO_FILTER, "net.ipv4.ip_forward=0")
# ARP requests must carry the backend's own address, not the vip that it answers from. A backend that forwards would
# send what is for a vip that it lacks back to the routers, and so to the nodes again; new namespaces take that over
# from the machine.
BACKEND_SYSCTLS: Final = (
    *NO_FILTER,
    "net.ipv4.ip_forward=0",
    "net.ipv4.conf.all.arp_announce=2",
    "net.core.somaxconn=4096",
)


@dataclass(frozen=True, slots=True)
class Host:
    """A host on its own wire to the router, which has the first address of that network."""

    name: str
    interface: IPv4Interface
    sysctls: tuple[str, ...] = ()

    @property
    def address(self) -> IPv4Address:
        """The host's own address."""
        return self.interface.ip

    @property
    def gateway(self) -> IPv4Address:
        """The router's address on this wire."""
        return self.interface.network[1]

    @property
    def namespace(self) -> Namespace:
        """The namespace the host is."""
        return Namespace(self.name)


ROUTER: Final = Namespace("router")
CLIENT: Final = Host("client", IPv4Interface("198.51.100.7/24"), CLIENT_SYSCTLS)
# More than one, so that of thousands of connections hardly two have the same 5-tuple.
CLIENT_ADDRESSES: Final = tuple(CLIENT.address + i for i in range(16))
NODES: Final = tuple(
    Host(name, IPv4Interface(address), sysctls=NODE_SYSCTLS)
    for name, address in (("lb1", "10.0.2.2/24"), ("lb2", "10.0.6.2/24"))
)
BACKENDS: Final = tuple(
    Host(name, IPv4Interface(address), sysctls=BACKEND_SYSCTLS)
    for name, address in (
        ("b1", "10.0.3.2/24"), ("b2", "10.0.4.2/24"), ("b3", "10.0.5.2/24"), ("b4", "10.0.7.2/24"),
    )
)  # fmt: skip


def build(tunnel_mtu: int = TUNNEL_MTU, nodes: Sequence[Host] = NODES) -> None:
    """Create every namespace, link, address and route of the lab; nodes and backends are on links of `tunnel_mtu`."""
    ROUTER.create(*ROUTER_SYSCTLS)
    _connect(CLIENT, CLIENT_MTU)
    for host in (*nodes, *BACKENDS):
        _connect(host, tunnel_mtu)
    for address in CLIENT_ADDRESSES[1:]:
        CLIENT.namespace.ip("address", "add", f"{address}/24", "dev", DEVICE)
    for backend in BACKENDS:
        _add_decapsulation(backend)
        backend.namespace.ip("address", "add", f"{VIP}/32", "dev", "lo")


def _connect(host: Host, mtu: int) -> None:
    """Wire a host to the router and make that its default route."""
    host.namespace.create(*host.sysctls)
    size = ("mtu", str(mtu))
    host.namespace.ip(
        "link", "add", DEVICE, *size, "type", "veth",
        "peer", "name", host.name, *size, "netns", ROUTER.full_name,
    )  # fmt: skip
    gateway = f"{host.gateway}/{host.interface.network.prefixlen}"
    for namespace, device, address in (
        (host.namespace, DEVICE, str(host.interface)),
        (ROUTER, host.name, gateway),
    ):
        # A forwarder sees packets before the kernel would finish their checksums or cut them to the MTU.
        namespace.run("ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        namespace.ip("address", "add", address, "dev", device)
        namespace.ip("link", "set", device, "up")
    host.namespace.ip("route", "add", "default", "via", str(host.gateway))


def _add_decapsulation(backend: Host) -> None:
    """GRE by the kernel where it can, else a TUN device for `lab.decap`. Either counts what comes out."""
    namespace = backend.namespace
    try:
        namespace.ip("link", "add", DECAP_DEVICE, "type", "gre", "local", str(backend.address), "remote", "any")
    except LabError:
        namespace.ip("tuntap", "add", DECAP_DEVICE, "mode", "tun")
    namespace.ip("link", "set", DECAP_DEVICE, "up")


def narrow(host: Host, mtu: int | None) -> None:
    """Let the router carry at most `mtu` bytes towards a host, and say so to who sends more; None: as built."""
    limit = [] if mtu is None else ["mtu", str(mtu)]
    ROUTER.ip(
        "route", "replace", str(host.interface.network), "dev", host.name,
        "proto", "kernel", "scope", "link", "src", str(host.gateway), *limit,
    )  # fmt: skip


def path_mtu(host: Host, to: IPv4Address, source: IPv4Address) -> int | None:
    """What a host's kernel has learned of the way to an address; None: nothing."""
    (route,) = host.namespace.show("route", "get", str(to), "from", str(source))
    mtus = [metric["mtu"] for metric in route.get("metrics", []) if "mtu" in metric]
    return int(mtus[0]) if mtus else None


def forget_path_mtus(host: Host) -> None:
    """Let a host's kernel forget what it has learned of the ways to anywhere."""
    host.namespace.ip("route", "flush", "cache")


def decapsulates_itself(backend: Host) -> bool:
    """Whether the backend's kernel decapsulates, so that it needs no `lab.decap`."""
    (link,) = backend.namespace.show("-d", "link", "show", DECAP_DEVICE)
    return bool(link["linkinfo"]["info_kind"] != "tun")


def decapsulated(backend: Host) -> int:
    """Packets that came out of the encapsulation at a backend so far."""
    (link,) = backend.namespace.show("-s", "link", "show", DECAP_DEVICE)
    return int(link["stats64"]["rx"]["packets"])


def segments_sent() -> int:
    """TCP segments the client's kernel has sent so far; it counts retransmitted ones apart."""
    lines = CLIENT.namespace.run("cat", "/proc/net/snmp").splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
    tcp = dict(zip(names, map(int, values), strict=True))
    return tcp["OutSegs"] + tcp["RetransSegs"]


def next_hops() -> frozenset[str]:
    """The nodes that the router's kernel spreads the vip over, by their address."""
    routes = []
    with contextlib.suppress(LabError):  # no such route
        routes = ROUTER.show("route", "show", f"{VIP}/32")
    hops = [hop for route in routes for hop in route.get("nexthops", [route])]
    return frozenset(hop["gateway"] for hop in hops if "gateway" in hop)
