"""Which next hop a backend is sent to: decisions over a view of the kernel's routes and neighbors, without I/O."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from forwarder.settings import Address, PortSettings

# Kernel neighbor states (linux/neighbour.h) in which the MAC may be used.
REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT = 0x02, 0x04, 0x08, 0x10, 0x40, 0x80
USABLE = REACHABLE | STALE | DELAY | PROBE | NOARP | PERMANENT
FRESH = USABLE & ~STALE

NO_INTERFACE = 0
UNREACHABLE = 0  # the next-hop index that never has a MAC
MAX_HOPS = 1 << 16


@dataclass(frozen=True, slots=True)
class Route:
    """One route of the kernel; `gateway` None means that the destination itself is the neighbor.

    `interface` NO_INTERFACE: the kernel discards or refuses what goes there.
    """

    network: IPv4Network | IPv6Network
    gateway: Address | None
    interface: int
    metric: int = 0


@dataclass(frozen=True, slots=True)
class Neighbor:
    """One entry of the kernel's neighbor table."""

    mac: bytes | None
    state: int


@dataclass(frozen=True)
class KernelView:
    """What the kernel knew at one moment. Neighbors are keyed by (interface, address)."""

    routes: Sequence[Route] = ()
    neighbors: Mapping[tuple[int, Address], Neighbor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        index: dict[tuple[int, int, int], Route] = {}
        for route in self.routes:
            key = (route.network.version, route.network.prefixlen, int(route.network.network_address))
            known = index.get(key)
            if known is None or route.metric < known.metric:
                index[key] = route
        object.__setattr__(self, "_index", index)
        lengths = {4: set[int](), 6: set[int]()}
        for version, length, _ in index:
            lengths[version].add(length)
        object.__setattr__(self, "_lengths", {v: sorted(ls, reverse=True) for v, ls in lengths.items()})

    _index: dict[tuple[int, int, int], Route] = field(init=False, repr=False, compare=False)
    _lengths: dict[int, list[int]] = field(init=False, repr=False, compare=False)

    def route(self, address: Address) -> Route | None:
        """The longest matching route, of equal ones that of the smallest metric."""
        bits = address.max_prefixlen
        for length in self._lengths[address.version]:
            shift = bits - length
            route = self._index.get((address.version, length, int(address) >> shift << shift))
            if route is not None:
                return route
        return None


@dataclass(frozen=True, slots=True)
class Hop:
    """A neighbor to be sent to: by which port, its address, and its MAC where the configuration fixes it."""

    port: int
    address: Address
    mac: bytes | None = None


class NextHops:
    """Numbers the next hops in use; index 0 is the one that is never resolved.

    `interfaces[i]` is the kernel interface of port i, None where it has none.
    """

    def __init__(self, ports: Sequence[PortSettings], interfaces: Sequence[int | None]) -> None:
        self._ports = ports
        self._interfaces = interfaces
        self._indices: dict[Hop, int] = {}
        self._free = list(range(MAX_HOPS - 1, UNREACHABLE, -1))
        self.view = KernelView()

    def hop(self, address: Address) -> Hop | None:
        """The next hop of an address now, None when no port leads there."""
        for port, settings in enumerate(self._ports):
            gateway = settings.gateways.get(address.version)
            if gateway is not None or settings.mac is not None:
                return Hop(port, gateway or address, settings.mac)
        route = self.view.route(address)
        if route is None or route.interface not in self._interfaces:
            return None
        return Hop(self._interfaces.index(route.interface), route.gateway or address)

    def index(self, address: Address) -> int:
        """The index that a backend's entry carries; UNREACHABLE when no port leads there."""
        hop = self.hop(address)
        if hop is None:
            return UNREACHABLE
        if hop not in self._indices:
            if not self._free:
                return UNREACHABLE
            self._indices[hop] = self._free.pop()
        return self._indices[hop]

    def release_unless(self, used: Collection[int]) -> list[int]:
        """Let go of the hops whose index no published state carries; returns their indices, free for others now."""
        released = [hop for hop, index in self._indices.items() if index not in used]
        indices = [self._indices.pop(hop) for hop in released]
        self._free += indices
        return indices

    def neighbor(self, hop: Hop) -> Neighbor | None:
        """What the kernel knows of a hop."""
        interface = self._interfaces[hop.port]
        return None if interface is None else self.view.neighbors.get((interface, hop.address))

    def mac(self, hop: Hop) -> bytes | None:
        """The MAC to send to, None while it is not known."""
        if hop.mac is not None:
            return hop.mac
        neighbor = self.neighbor(hop)
        return neighbor.mac if neighbor is not None and neighbor.state & USABLE else None

    def resolved(self) -> list[tuple[int, Hop, bytes | None]]:
        """(index, hop, MAC or None) of every next hop in use."""
        return [(index, hop, self.mac(hop)) for hop, index in self._indices.items()]

    def to_ask(self) -> list[tuple[int, Address]]:
        """(interface, address) of hops the kernel should resolve or probe now: missing and stale ones."""
        wanted = []
        for hop in self._indices:
            interface, neighbor = self._interfaces[hop.port], self.neighbor(hop)
            if hop.mac is None and interface is not None and (neighbor is None or not neighbor.state & FRESH):
                wanted.append((interface, hop.address))
        return wanted

    def describe(self) -> list[dict[str, str | None]]:
        """For stats: address, device, mac and state of every next hop in use."""
        return [
            {
                "address": str(hop.address),
                "device": self._ports[hop.port].device,
                "mac": mac.hex(":") if mac else None,
                "state": self._state(hop, mac),
            }
            for _, hop, mac in self.resolved()
        ]

    def _state(self, hop: Hop, mac: bytes | None) -> str:
        if hop.mac is not None:
            return "static"
        neighbor = self.neighbor(hop)
        if mac is None or neighbor is None:
            return "unresolved"
        return "stale" if neighbor.state & STALE else "reachable"
