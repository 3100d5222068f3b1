"""The settings that a forwarder starts with: `forwarder.json` in its run directory, written by the controller."""

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from forwarder.hashing.digest import fingerprint

Address = IPv4Address | IPv6Address


KERNEL_DRIVERS = ("af_packet", "af_xdp")
"""Those whose device is an interface of the kernel."""


class Refused(Exception):
    """The forwarder cannot start as it was asked to; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class PortSettings:
    """One NIC port; `gateways` and `mac` override what the kernel knows of routes and neighbors.

    `tap`: the kernel's interface beside a port that the kernel does not see.
    """

    device: str
    driver: str
    mtu: int
    gateways: dict[int, Address]
    mac: bytes | None
    tap: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that only a restart can change. Timeouts are whole seconds, in the order of the data plane."""

    node: str
    hash_key: bytes
    sources: dict[int, Address]
    ports: tuple[PortSettings, ...]
    steering: str
    steering_cpu: int
    worker_cpus: tuple[int, ...]
    muxing_cpu: int
    idle: str
    packet_pool: int
    ring_size: int
    connection_entries: int
    connection_seconds: tuple[int, int, int, int]
    hugepages: bool
    fingerprint: str

    @property
    def cpus(self) -> tuple[int, ...]:
        """CPU of each stage in layout `software`: steering, workers, muxing."""
        return (self.steering_cpu, *self.worker_cpus, self.muxing_cpu)


def _by_version(values: dict[str, Any]) -> dict[int, Address]:
    addresses = (values.get("ipv4"), values.get("ipv6"))
    return {address.version: address for address in (ip_address(value) for value in addresses if value)}


def _port(raw: dict[str, Any]) -> PortSettings:
    gateway = raw.get("gateway") or {}
    mac = gateway.get("mac")
    return PortSettings(
        device=raw["device"],
        driver=raw["driver"],
        mtu=int(raw["mtu"]),
        gateways=_by_version(gateway),
        mac=bytes.fromhex(mac.replace(":", "")) if mac else None,
        tap=raw.get("tap"),
    )


def _steering(word: str) -> str:
    if word not in ("software", "rss"):
        raise ValueError(f"steering: {word}")
    return word


def parse(raw: dict[str, Any]) -> Settings:
    """Settings from the JSON object. Raises Refused when a key is missing or has the wrong type."""
    try:
        lcores, table = raw["lcores"], raw["connection_table"]
        timeouts = ("tcp_half_open", "tcp_established", "tcp_closing", "udp")
        seconds = tuple(max(1, round(table[name])) for name in timeouts)
        return Settings(
            node=raw["node"],
            hash_key=bytes.fromhex(raw["hash_key"]),
            sources=_by_version(raw["tunnel_source"]),
            ports=tuple(_port(port) for port in raw["ports"]),
            steering=_steering(raw["steering"]),
            steering_cpu=int(lcores["steering"]),
            worker_cpus=tuple(int(cpu) for cpu in lcores["workers"]),
            muxing_cpu=int(lcores["muxing"]),
            idle=raw["idle"],
            packet_pool=int(raw["packet_pool"]),
            ring_size=int(raw["ring_size"]),
            connection_entries=int(table["entries"]),
            connection_seconds=(seconds[0], seconds[1], seconds[2], seconds[3]),
            hugepages=bool(raw["hugepages"]),
            fingerprint=fingerprint(raw),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Refused(f"the forwarder's settings are not complete or not valid: {error!r}") from error


def load(path: Path) -> Settings:
    """Settings from a file. Raises Refused."""
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read the forwarder's settings in {path}: {error}") from error
    return parse(raw)
