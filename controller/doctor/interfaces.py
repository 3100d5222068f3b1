"""Kernel interfaces that ports are: there, up, and with no offload that makes packets larger than the MTU."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.machine import Machine
from forwarder import offloads
from forwarder.settings import parse

NET = "sys/class/net"
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
CUTTING = ("tso", "gso")
"""With these the sender leaves it to others to cut its packets to the MTU."""


def of_ports(config: Config) -> list[tuple[str, int]]:
    """Every kernel interface that packets come in by, with the MTU of its port."""
    ports = parse(config.forwarder_settings()).ports
    return [(name, port.mtu) for port in ports for name in offloads.interfaces(port)]


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """Each interface of a port; without a configuration, what each one would need to be a port."""
    if config is None:
        yield from (_told(machine, name) for name in _usable(machine))
        return
    names = [name for name, _ in of_ports(config)]
    if not names:
        yield ok("no port is a kernel interface")
    for name in names:
        if not machine.is_there(f"{NET}/{name}"):
            there = ", ".join(_usable(machine)) or "none"
            why = "a port of the configuration is this interface"
            yield error(f"there is no interface {name}", why, f"write one of these as the device: {there}")
            continue
        yield from _link(machine, name)
        yield from _offloads(machine, name)
        yield from _other_end(machine, name)
    for name in _under_af_xdp(config):
        yield from _queues(machine, name)


def _usable(machine: Machine) -> list[str]:
    flags = {name: machine.number(f"{NET}/{name}/flags") or 0 for name in machine.names(NET)}
    return [name for name, value in flags.items() if not value & IFF_LOOPBACK]


def _told(machine: Machine, name: str) -> Finding:
    state, mtu = ("up" if _is_up(machine, name) else "down"), machine.word(f"{NET}/{name}/mtu") or "-"
    on = [offload for offload in offloads.MERGING if machine.facts.offload(name, offload)]
    needs = f"; as a port it would need {' and '.join(f'{offload} off' for offload in on)}" if on else ""
    return ok(f"{name}: {state}, MTU {mtu}{needs}")


def _is_up(machine: Machine, name: str) -> bool:
    return bool((machine.number(f"{NET}/{name}/flags") or 0) & IFF_UP)


def _link(machine: Machine, name: str) -> Iterator[Finding]:
    if not _is_up(machine, name):
        yield error(f"{name} is down", "no packet comes or goes by it", f"ip link set {name} up")
    elif machine.text(f"{NET}/{name}/carrier") == "0":
        why = "no packet comes or goes by it, and the node announces nothing"
        yield error(f"{name} has no link", why, f"look at cable, transceiver and switch: ethtool {name}")
    else:
        yield ok(f"{name} is up")


def _offloads(machine: Machine, name: str) -> Iterator[Finding]:
    asked = {offload: machine.facts.offload(name, offload) for offload in offloads.MERGING}
    on = [offload for offload, value in asked.items() if value]
    off = f"ethtool -K {name} {' '.join(f'{offload} off' for offload in on or offloads.MERGING)}"
    if on:
        why = "the forwarder does not start: packets that the kernel merged are larger than any path behind takes"
        yield error(f"{' and '.join(on)} of {name} merge packets that come in", why, off)
    elif None in asked.values():
        unknown = " and ".join(offload for offload, value in asked.items() if value is None)
        yield warning(f"whether {unknown} of {name} is on is not known", "the forwarder does not start with it", off)
    else:
        yield ok(f"no packets are merged on {name} (gro, lro)")


def _under_af_xdp(config: Config) -> list[str]:
    return [port.device for port in parse(config.forwarder_settings()).ports if port.driver == "af_xdp"]


def _queues(machine: Machine, name: str) -> Iterator[Finding]:
    found = machine.facts.channels(name)
    why = "the forwarder does not start: under af_xdp a port takes packets of one"
    if found is None:
        yield warning(f"how many receive queues {name} has is not known", why, f"ethtool -L {name} combined 1")
    elif found.receive > 1:
        yield error(f"{name} has {found.receive} receive queues", why, f"ethtool -L {name} {found.one}")
    else:
        yield ok(f"{name} has one receive queue, as af_xdp needs it")


def _other_end(machine: Machine, name: str) -> Iterator[Finding]:
    """Of a veth, when it is in this namespace too: what it sends is not cut by any NIC before it comes here."""
    ours, theirs = (machine.number(f"{NET}/{name}/{file}") for file in ("ifindex", "iflink"))
    for peer in machine.names(NET):
        index, link = (machine.number(f"{NET}/{peer}/{file}") for file in ("ifindex", "iflink"))
        if peer == name or ours is None or (index, link) != (theirs, ours):
            continue
        on = [offload for offload in CUTTING if machine.facts.offload(peer, offload)]
        if on:
            yield warning(
                f"{' and '.join(on)} of {peer}, the other end of {name}, send packets larger than the MTU",
                "they cannot be forwarded, and TCP through the node stalls",
                f"ethtool -K {peer} {' '.join(f'{offload} off' for offload in on)}",
            )
