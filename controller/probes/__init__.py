"""Health probes: one kind per file, all behind `async probe() -> ProbeResult`."""

from __future__ import annotations

import aiohttp

from controller.config_sections import HealthCheck, HttpCheck
from controller.model import CheckKey
from controller.probes.http import HttpProbe
from controller.probes.result import Probe
from controller.probes.tcp import TcpProbe


def make_probe(session: aiohttp.ClientSession, key: CheckKey, check: HealthCheck) -> Probe:
    """The probe of one target, as its check wants it."""
    if isinstance(check, HttpCheck):
        return HttpProbe(
            session,
            key.address,
            check.port,
            path=check.path,
            host=check.host,
            expect_status=check.expect_status,
            timeout=check.timeout,
        )
    return TcpProbe(key.address, check.port, timeout=check.timeout)
