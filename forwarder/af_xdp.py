"""Ports under af_xdp: what an interface must be like, and which of its packets are ours while a state is in force."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from forwarder import xdp, xsk
from forwarder._dataplane import DataplaneError, PacketPool, Port
from forwarder.channels import channels
from forwarder.settings import Address, PortSettings, Refused
from forwarder.state_message import StateMessage

DRIVER = "af_xdp"


def is_among(ports: Sequence[PortSettings]) -> bool:
    """Whether the packet pool has to be as this driver needs it."""
    return any(port.driver == DRIVER for port in ports)


def devargs(port: PortSettings, index: int) -> str:
    """The device string that DPDK is given.

    The kernel copies packets into the pool and out of it. A NIC that did so itself could not use a buffer that lies
    across two pages which are no neighbors in its view of memory, and the driver would lose such a one silently.
    """
    return f"net_af_xdp{index},iface={port.device},queue_count=1,force_copy=1,xdp_prog={xdp.OBJECT}"


def prepare(port: PortSettings) -> None:
    """Make sure that the driver can have the interface. Raises Refused."""
    if not xdp.OBJECT.exists():
        raise Refused(f"the program for {port.device} is not there ({xdp.OBJECT}): run `make build`.")
    try:
        _clear(port.device)
    except OSError as error:
        raise Refused(f"XDP programs cannot be used here ({error}): af_xdp needs libbpf1 and root.") from error
    found = channels(port.device)
    if found.receive > 1:
        raise Refused(
            f"{port.device} has {found.receive} receive queues, and a port under af_xdp takes packets of one: "
            f"run `ethtool -L {port.device} {found.one}`."
        )


def _clear(device: str) -> None:
    """A start that was killed half way may have left our program there; another's stays."""
    interface = socket.if_nametoindex(device)
    program = xdp.program_at(interface)
    if not program:
        return
    name = xdp.name_of(program)
    if name != xdp.NAME:
        raise Refused(
            f"{device} has an XDP program already ({name or program}), and there is room for one: "
            f"run `ip link set dev {device} xdp off`."
        )
    try:
        xdp.detach(interface)
    except OSError as error:
        raise Refused(f"{device} is the port of another forwarder that runs.") from error


def _give_up(device: str) -> None:
    """After a failure: the driver may have left the program there."""
    interface = socket.if_nametoindex(device)
    if xdp.program_at(interface):
        xdp.detach(interface)


class Claims:
    """The interfaces of all ports under af_xdp, from when they are opened to when they are closed."""

    def __init__(self, sources: dict[int, Address]) -> None:
        self._sources = frozenset(sources.values())
        self._claims: dict[int, xdp.Claim] = {}
        self._sockets: dict[int, int] = {}
        self._held = 0

    def open(self, port: PortSettings, index: int, pool: PacketPool, queues: int) -> Port:
        """Open a port and claim its interface. Raises DataplaneError, Refused; then it is free again."""
        before = xsk.sockets()
        try:
            opened = Port.device(devargs(port, index), index, pool, queues)
            (self._sockets[index],) = xsk.sockets() - before
            self._claims[index] = xdp.Claim(socket.if_nametoindex(port.device), opened.mac)
            self._claims[index].add(self._roles(StateMessage({}, ())))
        except DataplaneError:
            _give_up(port.device)
            raise
        except (OSError, KeyError, ValueError) as error:
            opened.close()
            raise Refused(f"the program for {port.device} could not be put there: {error}.") from error
        return opened

    def _roles(self, message: StateMessage) -> xdp.Roles:
        roles = dict.fromkeys((vip.address for vip in message.vips), xdp.ROLE_VIP)
        for address in message.cluster.values():
            roles[address] = roles.get(address, 0) | xdp.ROLE_NODE
        for address in self._sources:
            roles[address] = roles.get(address, 0) | xdp.ROLE_TUNNEL_SOURCE
        return roles

    @contextmanager
    def turning_to(self, message: StateMessage, from_: StateMessage) -> Iterator[None]:
        """Around the publishing of a state: its addresses are taken before, those of the last one until after."""
        new, old = self._roles(message), self._roles(from_)
        kept = old
        try:
            for claim in self._claims.values():
                claim.add(new)
            yield
            kept = new
        finally:
            for claim in self._claims.values():
                claim.keep(kept)

    def missed(self, index: int) -> int:
        """Packets that a port's socket had no room for, which the driver does not count."""
        return xsk.ring_full(self._sockets[index]) if index in self._sockets else 0

    def end(self) -> None:
        """Give the interfaces back. To be called when no lcore runs, before the ports are closed."""
        for claim in self._claims.values():
            claim.end()
        self._held = sum(xsk.held(descriptor) for descriptor in self._sockets.values())

    def take_back(self, pool: PacketPool) -> None:
        """After the ports were closed: close what the driver left open, and give back the packets that it forgot."""
        for descriptor in xsk.sockets().intersection(self._sockets.values()):
            os.close(descriptor)
        pool.take_back(self._held)
