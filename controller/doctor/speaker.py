"""BGP: the speaker can be started, and its routers can be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from controller.config import Config
from controller.config_sections import Neighbor
from controller.doctor.facts import BGP_PORT, Reached
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.machine import Machine

MODULE = "exabgp"
BINARIES = ("/usr/sbin/bird", "/usr/local/sbin/bird", "/usr/bin/bird")


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """ExaBGP; and each router, all at a time, for each may keep one waiting."""
    if config and config.bgp.speaker == "none":
        yield ok("speaker: none, so that nothing is announced")
        return
    match machine.facts.has_module(MODULE):
        case True:
            yield ok("ExaBGP is installed")
        case False:
            yield error("ExaBGP is not installed", "without it no vip is announced", f"pip install {MODULE}")
        case None:
            yield warning(
                "whether ExaBGP is installed is not known", "it announces the vips", f"pip install {MODULE}"
            )
    if config and config.bgp.speaker == "bird":
        if any(machine.is_there(path) for path in BINARIES):
            yield ok("BIRD is installed")
        else:
            yield error("BIRD is not installed", "it speaks to the routers", "apt-get install bird2")
    if config and config.bgp.neighbors:
        if machine.facts.runs(config.node.name):
            yield ok(f"node {config.node.name} runs: `maglev status` tells of its sessions")
            return
        neighbors = config.bgp.neighbors
        with ThreadPoolExecutor(len(neighbors)) as threads:
            for neighbor, reached in zip(
                neighbors, threads.map(lambda n: _reach(machine, n), neighbors), strict=True
            ):
                yield _router(machine, str(neighbor.address), reached)


def _reach(machine: Machine, neighbor: Neighbor) -> Reached | None:
    """A router drops unsigned packets where it expects a password: its silence would tell nothing."""
    return machine.facts.reach(str(neighbor.address), ask=neighbor.password is None)


def _router(machine: Machine, address: str, reached: Reached | None) -> Finding:
    why = "until its session is up, this router has no route by this node"
    port = f"port {BGP_PORT}"
    match reached:
        case "connected":
            return ok(f"router {address}: a connection to {port} opens")
        case "not asked":
            return ok(f"there is a route to router {address}; {port} was not asked, for it wants a password")
        case "refused":
            mend = "configure this node as a neighbor there; some routers answer only then, and some never"
            return warning(f"router {address} refuses connections at {port}", why, mend)
        case "no route":
            return error(f"there is no route to router {address}", why, f"ip route add {address} dev ...")
        case "silent" if _unresolved(machine, address):
            mend = "look at the address, the VLAN and the router's own interface"
            return warning(f"router {address} does not answer ARP", why, mend)
        case "silent":
            mend = f"look at firewalls here and there, and at the route back: ip route get {address}"
            return warning(f"router {address} does not answer at {port}", why, mend)
        case None:
            return warning(f"whether router {address} can be reached is not known", why, f"ip route get {address}")


def _unresolved(machine: Machine, address: str) -> bool:
    """By the kernel's table: an entry without flags is one that is still asked for."""
    entry = rf"^{re.escape(address)}\s+0x\w+\s+0x0\s"
    return re.search(entry, machine.text("proc/net/arp"), re.MULTILINE) is not None
