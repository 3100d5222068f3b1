"""Ports from settings: a kernel interface under af_packet, or a DPDK virtual device by its own string."""

import os
import socket
from collections.abc import Sequence

from forwarder._dataplane import DataplaneError, PacketPool, Port
from forwarder.settings import PortSettings, Refused

SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23  # linux/if_packet.h, since Linux 4.20
FRAME_BYTES = 2048  # one ring slot of the kernel; larger frames do not fit
FRAMES = 2048


def devargs(port: PortSettings, index: int) -> str:
    """The device string that DPDK is given."""
    if port.driver != "af_packet":
        return port.device
    return (
        f"net_af_packet{index},iface={port.device},qpairs=1,"
        f"framesz={FRAME_BYTES},blocksz={FRAME_BYTES * 32},framecnt={FRAMES}"
    )


def interface_index(port: PortSettings) -> int | None:
    """Index of the kernel interface behind the port, None when it has none. Raises Refused when it is missing."""
    if port.driver != "af_packet":
        return None
    try:
        return socket.if_nametoindex(port.device)
    except OSError as error:
        present = ", ".join(sorted(name for _, name in socket.if_nameindex() if name != "lo")) or "none"
        raise Refused(
            f"there is no network interface {port.device} here (forwarder.ports); present: {present}."
        ) from error


def _packet_sockets() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as probe:
                    if probe.family == socket.AF_PACKET:
                        found.add(int(name))
        except OSError:
            continue
    return found


def _ignore_outgoing(descriptors: set[int]) -> None:
    # What the kernel itself sends by the interface (BGP, ARP) would be received as if it had come in.
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as packet:
            packet.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)


def open_ports(ports: Sequence[PortSettings], pool: PacketPool) -> list[Port]:
    """Open all ports, in order. Raises Refused; then none stays open."""
    opened: list[Port] = []
    for index, port in enumerate(ports):
        interface_index(port)
        before = _packet_sockets()
        try:
            opened.append(Port.device(devargs(port, index), index, pool))
        except DataplaneError as error:
            for done in opened:
                done.close()
            raise Refused(f"port {port.device} could not be opened: {error}.") from error
        if port.driver == "af_packet":
            _ignore_outgoing(_packet_sockets() - before)
    return opened
