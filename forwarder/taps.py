"""The kernel's interface beside a NIC that only DPDK sees: a tap, by which it has the NIC's other packets.

It outlives the forwarder, with its addresses and routes; without a forwarder it has no carrier. DPDK's own net_tap is
not used for it: it takes the interface down when it closes, and routes and IPv6 addresses go with that.
"""

import fcntl
import os
import socket
import struct

from forwarder.settings import Refused

TUNSETIFF, TUNSETPERSIST, TUNSETCARRIER = 0x400454CA, 0x400454CB, 0x400454E2  # linux/if_tun.h
IFF_TAP, IFF_NO_PI, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x0100
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFMTU = 0x8913, 0x8914, 0x8922  # linux/sockios.h
SIOCSIFHWADDR, SIOCGIFHWADDR = 0x8924, 0x8927
IFF_UP, ARPHRD_ETHER = 0x1, 1
MOST_MTU = 1900
"""So that a frame of the kernel's fits one packet buffer of 2 KB."""


class TapGone(Exception):
    """The interface was removed or renamed: only another forwarder can make it anew."""


class Tap:
    """One interface, made when it is not there yet. Raises Refused, which names it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: list[int] = []
        self._carrier: bool | None = None
        self._lock = self._claim()
        try:
            self._add_queue()
            fcntl.ioctl(self.files[0], TUNSETPERSIST, 1)
            self.index = socket.if_nametoindex(name)
        except OSError as error:
            self.close()
            raise Refused(
                f"the interface {name} beside a port could not be made ({error.strerror}): when another one has this "
                f"name, write a free one as `tap` of the port, or remove it with `ip link del {name}`."
            ) from error

    def open(self, mac: bytes, mtu: int, queues: int) -> None:
        """Give it its port's address and MTU and as many queues, and take it up. Raises Refused."""
        try:
            while len(self.files) < queues:
                self._add_queue()
            self._set_carrier(False)  # each new queue has switched it on
            if self._set(SIOCGIFHWADDR, bytes(16))[18:24] != mac:  # it costs the neighbors, static ones too
                self._set(SIOCSIFHWADDR, struct.pack("H6s8x", ARPHRD_ETHER, mac))
            self._set(SIOCSIFMTU, struct.pack("i12x", min(mtu, MOST_MTU)))
            (flags,) = struct.unpack_from("16xH", self._set(SIOCGIFFLAGS, bytes(16)))
            self._set(SIOCSIFFLAGS, struct.pack("H14x", flags | IFF_UP))
        except OSError as error:
            raise Refused(
                f"the interface {self.name} beside a port could not be set up: {error.strerror}."
            ) from error

    def follow(self, link_up: bool) -> None:
        """Have a carrier while the port has a link. Raises TapGone."""
        try:
            if socket.if_nametoindex(self.name) != self.index:
                raise OSError
            if link_up != self._carrier:
                self._set_carrier(link_up)
        except OSError as error:
            raise TapGone(f"the interface {self.name} beside a port was removed or renamed.") from error

    def close(self) -> None:
        """Leave it to the kernel."""
        for file in self.files:
            os.close(file)
        self.files = []
        self._lock.close()

    def _claim(self) -> socket.socket:
        """Several may be at such an interface, and each would get a part of the frames: a name that ends with us."""
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind(f"\0maglev-tap-{self.name}")
        except OSError as error:
            lock.close()
            raise Refused(
                f"{self.name} is beside a port of another forwarder: write another name as `tap` of this port."
            ) from error
        return lock

    def _add_queue(self) -> None:
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.files.append(file)
        flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE  # several queues always, so that their number may change
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH14x", self.name.encode(), flags))

    def _set_carrier(self, on: bool) -> None:
        fcntl.ioctl(self.files[0], TUNSETCARRIER, struct.pack("i", on))
        self._carrier = on

    def _set(self, request: int, value: bytes) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            return fcntl.ioctl(any_socket, request, struct.pack("16s16s8x", self.name.encode(), value))
