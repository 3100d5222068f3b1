"""Addresses of this machine, and what its kernel does with packets: those of the vips are the forwarder's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network

from controller.config import Config
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.interfaces import of_ports
from controller.doctor.machine import Machine
from forwarder.settings import parse

NET_SETTINGS = "proc/sys/net"


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """The vips, the node's own addresses, and forwarding; only with a configuration."""
    if config is None:
        return
    local = [*_local_v4(machine), *_local_v6(machine)]
    yield from _vips(config, local)
    yield from _own(config, local)
    names = [name for name, _ in of_ports(config)]
    if names:
        yield from _forwarding(machine, names, {vip.address.version for vip in config.vips})
        yield from _reverse_path(machine, names)


def _local_v4(machine: Machine) -> Iterator[IPv4Network | IPv6Network]:
    """What the kernel takes for itself, by its trie of routes: an address, then a line for each length."""
    address = ""
    for line in machine.text("proc/net/fib_trie").splitlines():
        if found := re.fullmatch(r"\s*\|-- ([\d.]+)", line, re.ASCII):
            address = found[1]
        elif found := re.fullmatch(r"\s*(/\d{1,2}) host LOCAL", line, re.ASCII):
            yield from _network(address + found[1])


def _local_v6(machine: Machine) -> Iterator[IPv4Network | IPv6Network]:
    for line in machine.text("proc/net/if_inet6").splitlines():
        if found := re.match(r"[0-9a-f]{32}\b", line):
            yield from _network(str(IPv6Address(int(found[0], 16))))


def _network(text: str) -> Iterator[IPv4Network | IPv6Network]:
    try:
        yield ip_network(text)
    except ValueError:
        return


def _vips(config: Config, local: list[IPv4Network | IPv6Network]) -> Iterator[Finding]:
    taken = sorted({str(vip.address) for vip in config.vips if any(vip.address in network for network in local)})
    for address in taken:
        yield error(
            f"the vip {address} is an address of this machine",
            "its kernel answers clients itself, with resets, beside the forwarder",
            f"ip address show to {address} tells where; then ip address del {address} dev ...",
        )
    if not taken:
        yield ok("no vip is an address of this machine")


def _own(config: Config, local: list[IPv4Network | IPv6Network]) -> Iterator[Finding]:
    keys = {"bgp.next_hop": config.bgp.next_hop, "node.tunnel_source": config.node.tunnel_source}
    ports = parse(config.forwarder_settings()).ports
    device = next((port.tap or port.device for port in ports if port.tap or port.driver != "vdev"), "INTERFACE")
    mine = [(key, address) for key, both in keys.items() for address in (both.ipv4, both.ipv6) if address]
    for key, address in mine:
        if not any(address in network for network in local):
            yield warning(
                f"{key} {address} is no address of this machine",
                "nobody answers for it when a router asks for its MAC, be it to send packets or errors about them",
                f"ip address add {address}/LENGTH dev {device}, with its network's length; or write one that it has",
            )


def _forwarding(machine: Machine, names: list[str], versions: set[int]) -> Iterator[Finding]:
    settings = {f"ipv4/conf/{name}/forwarding" for name in names}
    settings |= {"ipv6/conf/all/forwarding"} if 6 in versions else set()
    on = sorted(setting for setting in settings if machine.number(f"{NET_SETTINGS}/{setting}"))
    for setting in on:
        yield error(
            f"the kernel forwards packets too: {_dotted(setting)} is 1",
            "under af_packet it sees every packet that the forwarder sees, and would send it on a second time",
            f"sysctl -w {_dotted(setting)}=0   # for good: in /etc/sysctl.d/80-maglev.conf",
        )
    if not on:
        yield ok("the kernel does not forward packets of the ports")


def _reverse_path(machine: Machine, names: list[str]) -> Iterator[Finding]:
    """The stricter of the two settings is in force. With one port there is only one way to come by."""
    for name in sorted(names):
        both = [machine.number(f"{NET_SETTINGS}/ipv4/conf/{which}/rp_filter") or 0 for which in ("all", name)]
        if len(names) > 1 and max(both) == 1:
            yield warning(
                f"rp_filter of {name} is strict",
                "answers to health checks and BGP that come by another port than the kernel's route are dropped",
                f"sysctl -w {_dotted(f'ipv4/conf/{name}/rp_filter')}=2",
            )


def _dotted(setting: str) -> str:
    """As sysctl takes it: dots for slashes, and slashes for the dots in the name of an interface (a VLAN's)."""
    return f"net/{setting}".translate(str.maketrans("/.", "./"))
