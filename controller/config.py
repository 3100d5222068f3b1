"""The configuration: one YAML file, loaded whole or refused whole with every problem named (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controller.config_errors import ConfigError, Problem
from controller.config_sections import ForwarderPort, PerFamily, Sections, VipEntry
from controller.config_shape import shape_problems
from controller.model import Address, Vip, check_keys
from controller.node_rules import node_findings
from controller.pools import flatten, members_of, reach, through_tunnel
from controller.service_rules import service_findings
from controller.yaml_lines import Document, parse, read

__all__ = ["Config", "ConfigError", "Problem", "load", "loads"]


class Config(Sections):
    """A configuration in which everything fits together."""

    @cached_property
    def all_services(self) -> tuple[Vip, ...]:
        """Every vip with its backends, sorted by name: the same for any order of the file."""
        return self.services_without(())

    def services_without(self, unchecked: Collection[str]) -> tuple[Vip, ...]:
        """As `all_services`, but pools that are `unchecked` count as if they had no checks.

        Vips of the same pools have the same object for their members, so that work on these can be done once.
        """
        tunnel = {name for name, check in self.health_checks.items() if check.through_tunnel}
        members = cache(lambda names: members_of(names, self.backend_pools, unchecked))
        vips = (flatten(vip, through_tunnel(members(vip.pools), tunnel, vip.address)) for vip in self.vips)
        return tuple(sorted(vips, key=lambda vip: vip.name))

    def probes_through_tunnel(self) -> bool:
        """Whether any probe goes to a vip by way of a backend."""
        return any(key.vip for key in check_keys(self.all_services))

    def vips_of(self, pool: str) -> list[VipEntry]:
        """The vips that reach a pool with a backend."""
        return [v for v in self.vips if any(r.pool == pool for r in reach(v.pools, self.backend_pools))]

    def cluster_nodes(self) -> dict[str, Address]:
        """The tunnel address of every node, this one's too; none when no other node is listed."""
        listed = {node.name: node.address for node in self.cluster.nodes}
        others = [address for name, address in listed.items() if name != self.node.name]
        own = self.node.tunnel_source.of(others[0].version) if others else None
        return {self.node.name: own} | listed if own else {}

    def forwarder_settings(self) -> dict[str, Any]:
        """What a forwarder is started with: all that is not forwarding state, as plain JSON values."""
        forwarder = self.forwarder
        return {
            "node": self.node.name,
            "hash_key": self.node.hash_key,
            "tunnel_source": _per_family(self.node.tunnel_source),
            "ports": [_port(position, port) for position, port in enumerate(forwarder.ports)],
            "steering": forwarder.steering,
            "lcores": forwarder.lcores.model_dump(mode="json"),
            "idle": forwarder.idle,
            "packet_pool": forwarder.packet_pool,
            "ring_size": forwarder.ring_size,
            "connection_table": forwarder.connection_table.model_dump(mode="json"),
            "hugepages": forwarder.hugepages,
        }


def load(path: Path) -> Config:
    """The configuration in a file; raises ConfigError with every problem found."""
    return _config(read(path))


def loads(text: str, file: str = "configuration") -> Config:
    """The configuration in a text, whose problems are reported as of `file`; raises ConfigError."""
    return _config(parse(text, file))


def _config(document: Document) -> Config:
    """Rules that span keys are looked at only when every key by itself is right: else they would guess."""
    problems = list(document.problems)
    try:
        config = Config.model_validate(document.value)
    except ValidationError as error:
        raise ConfigError([*problems, *shape_problems(document, error)]) from None
    for findings in (node_findings, service_findings):
        problems += (document.problem(path, message) for path, message in findings(config))
    if problems:
        raise ConfigError(problems)
    return config


def _per_family(addresses: PerFamily) -> dict[str, str | None]:
    return {
        "ipv4": str(addresses.ipv4) if addresses.ipv4 else None,
        "ipv6": str(addresses.ipv6) if addresses.ipv6 else None,
    }


def _port(position: int, port: ForwarderPort) -> dict[str, Any]:
    driver = port.driver
    if driver == "auto":
        driver = "af_packet" if port.kind == "interface" else port.kind
    gateway = {**_per_family(port.gateway), "mac": port.gateway.mac}
    tap = port.tap_at(position)
    return {"device": port.device, "driver": driver, "gateway": gateway, "mtu": port.mtu, "tap": tap}
