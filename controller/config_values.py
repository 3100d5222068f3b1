"""The kinds of value a configuration has. Each takes exactly what it means and says what to write instead.

Nothing is converted by guessing: "100" is text where a number belongs, and 1 is no truth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, TypeGuard, TypeVar

from pydantic import AfterValidator, BeforeValidator

from controller import durations
from controller.config_errors import one_from, show
from controller.model import ANY_PORT, Address
from forwarder.hashing.primes import is_prime, next_prime
from forwarder.hashing.slot_table import MAX_SIZE

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH_KEY = re.compile(r"[0-9a-fA-F]{32}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_INTERFACE = re.compile(r"[^\s/:,]{1,15}")
_PCI = re.compile(r"([0-9a-f]{4}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.ASCII | re.IGNORECASE)
_HTTP_PATH = re.compile(r"/([!-~]*)")
_HTTP_HOST = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,39}\])(:[0-9]{1,5})?")

VDEV_PREFIX = "net_"

_T = TypeVar("_T")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(low: int, high: int) -> BeforeValidator:
    """A whole number of a range."""

    def check(value: object) -> int:
        if not _is_whole(value):
            raise ValueError(f"{show(value)} is not a whole number; write one from {low} to {high}, without quotes")
        if not low <= value <= high:
            raise ValueError(f"{value} is out of range; write a number from {low} to {high}")
        return value

    return BeforeValidator(check)


def number(low: float, high: float) -> BeforeValidator:
    """A number of a range, with or without a fraction."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{show(value)} is not a number; write one from {low:g} to {high:g}, without quotes")
        if not low <= value <= high:
            raise ValueError(f"{value} is out of range; write a number from {low:g} to {high:g}")
        return float(value)

    return BeforeValidator(check)


def share(low: float, high: float) -> BeforeValidator:
    """A part of one."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError(f"{show(value)} is no share; write a number from {low} to {high}, such as 0.5")
        return float(value)

    return BeforeValidator(check)


def one_of(*values: str, never: Mapping[str, str] | None = None) -> BeforeValidator:
    """One of some words; `never` maps words that one might try to why they will not do."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in values:
            return value
        if isinstance(value, str) and never and value in never:
            raise ValueError(f"{show(value)} {never[value]}; write {one_from(values)}")
        raise ValueError(f"{show(value)} is not known; write {one_from(values)}")

    return BeforeValidator(check)


def duration(low: float, high: float) -> BeforeValidator:
    """A duration of a range; becomes seconds."""
    return BeforeValidator(lambda value: _seconds(value, low, high))


def whole_seconds(low: int, high: int) -> BeforeValidator:
    """A duration that the wire carries in whole seconds."""

    def check(value: object) -> float:
        seconds = _seconds(value, low, high)
        if seconds % 1:
            raise ValueError(f"{value} is not a whole number of seconds; write {int(seconds) + 1}s")
        return seconds

    return BeforeValidator(check)


def _seconds(value: object, low: float, high: float) -> float:
    seconds = durations.parse(value) if isinstance(value, str) else None
    if seconds is None:
        example = f"{value}s" if isinstance(value, int) and value > 1 else durations.spell(max(low, 1.0))
        raise ValueError(f"{show(value)} is no duration; write a number and ms, s, m or h, as in {example}")
    if not low <= seconds <= high:
        span = f"{durations.spell(low)} to {durations.spell(high)}"
        raise ValueError(f"{value} is out of range; write a duration from {span}")
    return seconds


def _text(what: str, example: str, pattern: re.Pattern[str]) -> BeforeValidator:
    def check(value: object) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        if isinstance(value, int | float):
            raise ValueError(f"{show(value)} is not {what}; write it in quotes if it is meant")
        raise ValueError(f"{show(value)} is not {what}; write {example}")

    return BeforeValidator(check)


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{show(value)} is not a switch; write true or false")


def _secret(value: object) -> str:
    """A TCP-MD5 password; the message never repeats it."""
    if isinstance(value, str) and re.fullmatch(r"[!#-&(-:<-\[\]-~]{1,80}", value):
        return value
    raise ValueError("is not a password; write 1 to 80 printable characters without space, quotes, ; and \\")


def _hash_key(value: object) -> str:
    """The message does not repeat the key: logs travel further than files."""
    if not isinstance(value, str) or not _HASH_KEY.fullmatch(value):
        length = f"{len(value)} characters" if isinstance(value, str) else "not text"
        raise ValueError(f"is {length}; write exactly 32 hex digits, such as openssl rand -hex 16 prints")
    if int(value, 16) == 0:
        raise ValueError("is all zero; write 32 random hex digits, such as openssl rand -hex 16 prints")
    return value.lower()


def _unusable(address: Address) -> str | None:
    """Why no packet can be sent to this address as to one host, if so."""
    kinds: tuple[tuple[str, bool], ...] = (
        ("unspecified", address.is_unspecified),
        ("loopback", address.is_loopback),
        ("multicast", address.is_multicast),
        ("link-local", address.is_link_local),
        ("IPv4-mapped", isinstance(address, IPv6Address) and address.ipv4_mapped is not None),
        ("broadcast", address == IPv4Address("255.255.255.255")),
        ("reserved", isinstance(address, IPv4Address) and (address.is_reserved or address.packed[0] == 0)),
    )
    return next((kind for kind, holds in kinds if holds), None)


def _address(family: type[Address] | None, example: str, loopback: bool = False) -> BeforeValidator:
    def check(value: object) -> Address:
        try:
            address = ip_address(value) if isinstance(value, str) else None
        except ValueError:
            address = None
        if address is None or (family and not isinstance(address, family)):
            kind = "address" if family is None else family.__name__.replace("Address", " address")
            raise ValueError(f"{show(value)} is no {kind}; write one such as {example}")
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise ValueError(f"{value} has a zone; write the address without %")
        wrong = _unusable(address)
        if wrong and not (loopback and address.is_loopback):
            raise ValueError(f"{value} is {wrong}; write a unicast address such as {example}")
        return address

    return BeforeValidator(check)


def _router_id(value: object) -> IPv4Address:
    try:
        identifier = IPv4Address(value) if isinstance(value, str) else IPv4Address(0)
    except ValueError:
        identifier = IPv4Address(0)
    if int(identifier) == 0:
        raise ValueError(f"{show(value)} is not a router id; write an IPv4 address such as 10.0.2.2")
    return identifier


def _mac(value: object) -> str:
    if not isinstance(value, str) or not _MAC.fullmatch(value):
        raise ValueError(f"{show(value)} is not a MAC address; write one such as 02:00:00:00:00:01")
    if int(value[:2], 16) & 1 or not int(value.replace(":", ""), 16):
        raise ValueError(f"{value} is not the MAC address of one host; write one such as 02:00:00:00:00:01")
    return value.lower()


def _vip_port(value: object) -> int:
    if value == "any" and isinstance(value, str):
        return ANY_PORT
    if _is_whole(value) and 1 <= value <= 65535:
        return value
    raise ValueError(f"{show(value)} is not a port; write a number from 1 to 65535, without quotes, or any")


def _prime(value: object) -> int:
    if not _is_whole(value):
        raise ValueError(f"{show(value)} is not a prime number; write one such as 65537, without quotes")
    if not 2 <= value <= MAX_SIZE:
        raise ValueError(f"{value} is out of range; write a prime from 2 to {MAX_SIZE}, such as 65537")
    if not is_prime(value):
        larger = next_prime(value)
        raise ValueError(f"{value} is not a prime; write {larger if larger <= MAX_SIZE else 65537}")
    return value


def power_of_two(low: int, high: int) -> BeforeValidator:
    """A power of two of a range."""

    def check(value: object) -> int:
        if not _is_whole(value) or not low <= value <= high:
            raise ValueError(f"{show(value)} is out of range; write a power of two from {low} to {high}")
        if value & (value - 1):
            raise ValueError(f"{value} is not a power of two; write {1 << value.bit_length()}")
        return value

    return BeforeValidator(check)


def _device(value: object) -> str:
    if isinstance(value, str) and (found := _PCI.fullmatch(value)):
        return (value if found[1] else f"0000:{value}").lower()
    if isinstance(value, str) and value.startswith(VDEV_PREFIX) and value.isprintable() and " " not in value:
        return value
    if isinstance(value, str) and value not in (".", "..") and _INTERFACE.fullmatch(value):
        return value
    raise ValueError(
        f"{show(value)} is no device; write an interface name such as eth1, a PCI address, or a vdev string"
    )


def _interface(value: object) -> str:
    if isinstance(value, str) and value not in (".", "..") and _INTERFACE.fullmatch(value):
        return value
    raise ValueError(f"{show(value)} is no name of an interface; write one such as maglev0, 15 characters at most")


def is_pci(device: str) -> bool:
    """Whether a device is a PCI address rather than an interface or a vdev string."""
    return _PCI.fullmatch(device) is not None


def _http_path(value: object) -> str:
    if isinstance(value, str) and (value.startswith("//") or "://" in value.split("?")[0]):
        raise ValueError(f"{show(value)} names a host; write the path alone, and the host under host")
    if not isinstance(value, str) or not _HTTP_PATH.fullmatch(value) or "#" in value:
        raise ValueError(f"{show(value)} is not a URL path; write one such as /healthz")
    return value


def distinct(kind: str) -> AfterValidator:
    """A list in which nothing stands twice."""

    def check(values: tuple[_T, ...]) -> tuple[_T, ...]:
        seen = set[_T]()
        for value in values:
            if value in seen:
                raise ValueError(f"has the {kind} {value} twice; write it once")
            seen.add(value)
        return values

    return AfterValidator(check)


Boolean = Annotated[bool, BeforeValidator(_boolean)]
Name = Annotated[str, _text("a name", "letters, digits, dot, dash and underscore, 63 at most", _NAME)]
HashKey = Annotated[str, BeforeValidator(_hash_key)]
Secret = Annotated[str, BeforeValidator(_secret)]
AnyAddress = Annotated[Address, _address(None, "192.0.2.1 or 2001:db8::1")]
PeerAddress = Annotated[Address, _address(None, "10.0.2.1 or fd00:2::1", loopback=True)]
V4Address = Annotated[IPv4Address, _address(IPv4Address, "10.0.2.2")]
V6Address = Annotated[IPv6Address, _address(IPv6Address, "fd00:2::2")]
RouterId = Annotated[IPv4Address, BeforeValidator(_router_id)]
Mac = Annotated[str, BeforeValidator(_mac)]
Port = Annotated[int, whole(1, 65535)]
VipPort = Annotated[int, BeforeValidator(_vip_port)]
Prime = Annotated[int, BeforeValidator(_prime)]
Device = Annotated[str, BeforeValidator(_device)]
Interface = Annotated[str, BeforeValidator(_interface)]
HttpPath = Annotated[str, BeforeValidator(_http_path)]
HttpHost = Annotated[str, _text("a host name", "one such as www.example.net", _HTTP_HOST)]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and a port to listen on."""

    address: Address
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"


def _loopback_endpoint(value: object) -> Endpoint:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise ValueError(f"{show(value)} is no address and port; write one such as 127.0.0.1:9465") from None
    if not address.is_loopback:
        raise ValueError(f"{address} is not loopback, and metrics are not for everybody; write 127.0.0.1:{port}")
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{show(value)} has no port from 1 to 65535; write one such as {host}:9465")
    return Endpoint(address, int(port))


LoopbackEndpoint = Annotated[Endpoint, BeforeValidator(_loopback_endpoint)]
