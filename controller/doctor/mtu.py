"""MTUs: what the link of a port takes, and whether a full packet fits with the outer headers around it."""

from __future__ import annotations

from collections.abc import Iterator

from controller.config import Config
from controller.doctor.finding import Finding, error, ok, warning
from controller.doctor.interfaces import NET, of_ports
from controller.doctor.machine import Machine
from controller.node_rules import KERNEL_PORT_MTU
from controller.service_rules import ENCAPSULATION

FULL = 1500
"""The IP packet that clients send when nobody tells them of less."""


def examine(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """Each kernel interface of a port."""
    if config is None:
        yield ok(
            f"a full packet needs {FULL + ENCAPSULATION[4]} at the port (IPv6 tunnel: {FULL + ENCAPSULATION[6]})"
        )
        return
    around = max((ENCAPSULATION[version] for version in _outer_versions(config)), default=0)
    for name, mtu in of_ports(config):
        link = machine.number(f"{NET}/{name}/mtu")
        if link is not None and link < mtu:
            yield error(
                f"the link of {name} takes {link} bytes, and the configuration says {mtu}",
                "the kernel refuses what the forwarder sends beyond it, and those packets are lost",
                f"ip link set {name} mtu {mtu}, or write `mtu: {link}` for this port",
            )
        elif mtu < FULL + around:
            yield warning(
                f"a full packet of {FULL} bytes and {around} of outer headers do not fit the {mtu} of {name}",
                "each one is answered with too big, or leaves in fragments, which the backend must put together",
                f"ip link set {name} mtu {FULL + around}, write `mtu: {FULL + around}` for this port (at most "
                f"{KERNEL_PORT_MTU}), and see that the way to the backends takes it",
            )
        else:
            yield ok(f"{name}: a full packet fits with its outer headers ({FULL} + {around} in {mtu})")


def _outer_versions(config: Config) -> set[int]:
    return {member.backend.address.version for vip in config.all_services for member in vip.members}
