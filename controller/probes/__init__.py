"""Health checks: one kind per file, its section of the configuration and its probe, and a row of KINDS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from controller.model import Address, CheckKey
from controller.probes.check import Check
from controller.probes.dial import Dial, dial
from controller.probes.http import HttpCheck, HttpProbe
from controller.probes.https import HttpsCheck, HttpsProbe
from controller.probes.icmp import IcmpCheck, IcmpProbe
from controller.probes.probe import Probe
from controller.probes.tcp import TcpCheck, TcpProbe
from controller.probes.udp import UdpCheck, UdpProbe


class Kind(NamedTuple):
    """`probe` is made of an address, a check that is a `section`, and a way to connect."""

    section: type[Check]
    probe: Callable[[Address, Any, Dial], Probe]


KINDS = {
    "http": Kind(HttpCheck, HttpProbe),
    "https": Kind(HttpsCheck, HttpsProbe),
    "tcp": Kind(TcpCheck, TcpProbe),
    "udp": Kind(UdpCheck, UdpProbe),
    "icmp": Kind(IcmpCheck, IcmpProbe),
}
"""By the word that `type` has in the configuration."""


def make_probe(key: CheckKey, check: Check, dial: Dial = dial) -> Probe:
    """The probe of one target, as its check wants it; to a vip, `dial` is the way by the target's address."""
    return KINDS[check.type].probe(key.vip or key.address, check, dial)
