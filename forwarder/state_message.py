"""The state message of the controller, checked and typed. Nothing of a message that fails is applied."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from forwarder.hashing.flow import PROTOCOLS
from forwarder.hashing.primes import is_prime
from forwarder.hashing.slot_table import MAX_SIZE, MAX_WEIGHT, SCHEDULERS
from forwarder.settings import Address

VERSION = 1
STATUSES = ("up", "drain", "down")
AFFINITIES = ("flow", "client")
LOAD_BOUNDS = (1.01, 10.0)


class StateRefused(Exception):
    """The message is not a state that this forwarder can apply; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Member:
    """A backend of a vip: `up` takes new flows by its weight, `drain` keeps old ones, `down` loses them."""

    backend: str
    weight: int
    status: str


@dataclass(frozen=True, slots=True)
class VipMessage:
    """One vip with all its members. Port 0 stands for any port."""

    name: str
    address: Address
    protocol: int
    port: int
    client_affinity: bool
    scheduler: str
    table_size: int
    members: tuple[Member, ...]
    load_bound: float | None = None
    """New flows avoid a backend that has more than so many times its share of the live ones."""

    @property
    def key(self) -> tuple[Address, int, int]:
        """What makes it this vip, whatever its name."""
        return (self.address, self.protocol, self.port)

    @property
    def weights(self) -> dict[str, int]:
        """{name: weight} of the members that own slots."""
        return {m.backend: m.weight for m in self.members if m.status == "up" and m.weight > 0}


@dataclass(frozen=True, slots=True)
class StateMessage:
    """The whole state: addresses of all backends, the vips, and the nodes (this one too) that share fragments out."""

    backends: dict[str, Address]
    vips: tuple[VipMessage, ...]
    cluster: dict[str, Address] = field(default_factory=dict)


def _name(raw: Any, what: str) -> str:
    if not isinstance(raw, str):
        raise StateRefused(f"not a state message: the name {raw!r} of a {what} is not text")
    raw.encode()  # tables and digests need it as bytes; half a surrogate pair is a ValueError
    return raw


def _member(raw: list[Any], backends: dict[str, Address], where: str) -> Member:
    name, weight, status = raw
    if name not in backends:
        raise StateRefused(f"{where}: member {name} is not among the backends")
    if status not in STATUSES:
        raise StateRefused(f"{where}: member {name} has status {status!r}; known: {', '.join(STATUSES)}")
    if not isinstance(weight, int) or not 0 <= weight <= MAX_WEIGHT:
        raise StateRefused(f"{where}: member {name} has weight {weight!r}")
    return Member(name, weight, status)


def _load_bound(raw: dict[str, Any], where: str) -> float | None:
    bound = raw.get("load_bound")
    if bound is None:
        return None
    low, high = LOAD_BOUNDS
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not low <= bound <= high:
        raise StateRefused(f"{where}: load_bound {bound!r} is not a number from {low:g} to {high:g}")
    if raw["protocol"] != "tcp" or raw["affinity"] != "flow":
        raise StateRefused(f"{where}: load_bound is for protocol tcp with affinity flow")
    return float(bound)


def _vip(raw: dict[str, Any], backends: dict[str, Address]) -> VipMessage:
    name = _name(raw["name"], "vip")
    where = f"vip {name}"
    if raw["protocol"] not in PROTOCOLS:
        raise StateRefused(f"{where}: protocol {raw['protocol']!r} is not known")
    if raw["scheduler"] not in SCHEDULERS:
        raise StateRefused(f"{where}: scheduler {raw['scheduler']!r} is not known")
    if raw["affinity"] not in AFFINITIES:
        raise StateRefused(f"{where}: affinity {raw['affinity']!r} is not known")
    if not isinstance(raw["table_size"], int) or not isinstance(raw["port"], int):
        raise StateRefused(f"not a state message: {where}: table_size and port are whole numbers")
    if raw["table_size"] > MAX_SIZE or not is_prime(raw["table_size"]):
        raise StateRefused(f"{where}: table_size {raw['table_size']} is not a prime of at most {MAX_SIZE}")
    if not 0 <= raw["port"] <= 65535:
        raise StateRefused(f"{where}: port {raw['port']} is out of range")
    members = tuple(_member(member, backends, where) for member in raw["members"])
    if len({member.backend for member in members}) != len(members):
        raise StateRefused(f"{where}: a member is named twice")
    return VipMessage(
        name=name,
        address=ip_address(raw["address"]),
        protocol=PROTOCOLS[raw["protocol"]],
        port=raw["port"],
        client_affinity=raw["affinity"] == "client",
        scheduler=raw["scheduler"],
        table_size=raw["table_size"],
        members=members,
        load_bound=_load_bound(raw, where),
    )


def parse(raw: Any) -> StateMessage:
    """Raises StateRefused."""
    try:
        if raw["version"] != VERSION:
            raise StateRefused(f"state version {raw['version']} is not {VERSION}: forwarder and controller differ")
        backends = {_name(name, "backend"): ip_address(address) for name, address in raw["backends"].items()}
        vips = tuple(_vip(vip, backends) for vip in raw["vips"])
        cluster = {_name(name, "node"): ip_address(address) for name, address in raw.get("cluster", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateRefused(f"not a state message: {error!r}") from error
    if len({vip.key for vip in vips}) != len(vips) or len({vip.name for vip in vips}) != len(vips):
        raise StateRefused("two vips have the same name or the same address, protocol and port")
    if len({address.version for address in cluster.values()}) > 1:
        raise StateRefused("the nodes of the cluster have addresses of two families")
    if len(set(cluster.values())) != len(cluster):
        raise StateRefused("two nodes of the cluster have the same address")
    return StateMessage(backends, vips, cluster)
