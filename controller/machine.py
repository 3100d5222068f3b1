"""What this machine must have before a node starts on it, asked of the kernel."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path

from controller.config import Config

NET = Path("/sys/class/net")
_NEEDED_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13}


def obstacle(config: Config) -> str | None:
    """What keeps this configuration from running here, as one sentence; None when nothing does."""
    kernel_ports = [port.device for port in config.forwarder.ports if port.kind == "interface"]
    privileged = [port.device for port in config.forwarder.ports if port.kind != "vdev" or port.tap]
    interfaces = {name for _, name in socket.if_nameindex()}
    for device in kernel_ports:
        if device not in interfaces:
            present = ", ".join(sorted(interfaces - {"lo"})) or "none"
            return f"forwarder.ports: there is no interface {device} here (there are: {present})"
    if config.bgp.speaker == "bird" and shutil.which("bird", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        return "bgp.speaker: bird needs BIRD 2: apt-get install bird2, or write exabgp"
    missing = lacking(_effective())
    if privileged and missing:
        return f"packets on {', '.join(privileged)} need {' and '.join(missing)}: run it as root"
    return None


def without_carrier(config: Config) -> str | None:
    """Why nothing leaves by the taps beside the ports now: no forwarder is behind one, or its port has no link."""
    for tap in filter(None, (port.tap_at(i) for i, port in enumerate(config.forwarder.ports))):
        try:
            if (NET / tap / "carrier").read_text() == "1\n":
                continue
        except OSError:  # not there, or not up
            pass
        return f"{tap} has no carrier"
    return None


def lacking(effective: int) -> list[str]:
    """The capabilities for packets on kernel interfaces that are not among these."""
    return [name for name, bit in _NEEDED_CAPABILITIES.items() if not effective >> bit & 1]


def capabilities(status: str) -> int:
    """The effective ones, from the text of /proc/self/status; all when it does not say."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(found[1], 16) if found else -1


def _effective() -> int:
    return capabilities(Path("/proc/self/status").read_text())
