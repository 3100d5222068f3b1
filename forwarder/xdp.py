"""The XDP program at an interface, csrc/xdp/ours.bpf.c: it takes our packets and leaves the kernel its own.

By libbpf, which net_af_xdp uses too: the driver loads the program and puts its sockets into one of the maps.
"""

import ctypes
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from forwarder.settings import Address

OBJECT = Path(__file__).with_name("xdp_ours.o")
NAME = "maglev_ours"
ROLE_VIP, ROLE_TUNNEL_SOURCE, ROLE_NODE = 1, 2, 4  # csrc/xdp/ours.bpf.c
BPF_XDP = 37  # linux/bpf.h: what kind of link
MOST_MAPS = 8

Roles = dict[Address, int]


class _ProgramInfo(ctypes.Structure):
    """The beginning of struct bpf_prog_info."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag_and_code", ctypes.c_uint8 * 40),
        ("created_by", ctypes.c_uint32),
        ("map_count", ctypes.c_uint32),
        ("map_ids", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
    ]


class _MapInfo(ctypes.Structure):
    """The beginning of struct bpf_map_info."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("sizes", ctypes.c_uint32 * 4),
        ("name", ctypes.c_char * 16),
    ]


@cache
def _libbpf() -> ctypes.CDLL:
    return ctypes.CDLL("libbpf.so.1")


def _call(function: str, *arguments: Any) -> int:
    """What the function returns; raises OSError."""
    answer = int(_libbpf()[function](*arguments))
    if answer < 0:
        raise OSError(-answer, f"{function}: {os.strerror(-answer)}")
    return answer


def _describe(descriptor: int, info: ctypes.Structure) -> None:
    size = ctypes.c_uint32(ctypes.sizeof(info))
    _call("bpf_obj_get_info_by_fd", descriptor, ctypes.byref(info), ctypes.byref(size))


def _own(kind: str) -> Iterator[int]:
    """File descriptors of this process that are a program ("prog") or a map. That asks for no privilege."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == f"anon_inode:bpf-{kind}":
                yield int(name)
        except OSError:  # that of the listing
            continue


def program_at(interface: int) -> int:
    """The id of the program at an interface; 0: there is none. Raises OSError."""
    found = ctypes.c_uint32(0)
    _call("bpf_xdp_query_id", interface, 0, ctypes.byref(found))
    return found.value


def name_of(program: int) -> str | None:
    """A program's name by its id; None where we may not ask."""
    try:
        descriptor = _call("bpf_prog_get_fd_by_id", program)
    except OSError:
        return None
    info = _ProgramInfo()
    try:
        _describe(descriptor, info)
    finally:
        os.close(descriptor)
    return bytes(info.name).decode(errors="replace")


def detach(interface: int) -> None:
    """Take the program off an interface. Raises OSError: EBUSY when it is the claim of a process that lives."""
    _call("bpf_xdp_detach", interface, 0, None)


class Claim:
    """The program at one interface, whose packets it takes for the driver's sockets. Raises OSError.

    It is there by a link that this process holds, so that the kernel has the interface back however the process ends.
    """

    def __init__(self, interface: int, mac: bytes) -> None:
        program = self._program(program_at(interface))
        self._maps = self._maps_of(program)
        self._roles: Roles = {}
        self._update("station", (0).to_bytes(4, "little"), mac)
        # The driver attached it for good, and a link does not take the place of that.
        detach(interface)
        self._link = _call("bpf_link_create", program, interface, BPF_XDP, None)

    @staticmethod
    def _program(wanted: int) -> int:
        for descriptor in _own("prog"):
            info = _ProgramInfo()
            _describe(descriptor, info)
            if info.id == wanted:
                return descriptor
        raise OSError("the program at the interface is not this process's")

    @staticmethod
    def _maps_of(program: int) -> dict[str, int]:
        ids = (ctypes.c_uint32 * MOST_MAPS)()
        info = _ProgramInfo(map_count=MOST_MAPS, map_ids=ctypes.addressof(ids))
        _describe(program, info)
        found = {}
        for descriptor in _own("map"):
            of_map = _MapInfo()
            _describe(descriptor, of_map)
            if of_map.id in ids[: info.map_count]:
                found[bytes(of_map.name).decode()] = descriptor
        return found

    def _update(self, name: str, key: bytes, value: bytes) -> None:
        _call("bpf_map_update_elem", self._maps[name], key, value, ctypes.c_uint64(0))

    def add(self, roles: Mapping[Address, int]) -> None:
        """Take packets of these addresses too. Raises OSError."""
        for address, role in roles.items():
            both = role | self._roles.get(address, 0)
            if self._roles.get(address) != both:
                self._update("roles", _key(address), both.to_bytes(4, "little"))
                self._roles[address] = both

    def keep(self, roles: Mapping[Address, int]) -> None:
        """Of what was added, take packets of these addresses only. Raises OSError."""
        for address, role in list(self._roles.items()):
            left = role & roles.get(address, 0)
            if left == 0:
                _call("bpf_map_delete_elem", self._maps["roles"], _key(address))
                del self._roles[address]
            elif left != role:
                self._update("roles", _key(address), left.to_bytes(4, "little"))
                self._roles[address] = left

    def end(self) -> None:
        """Give the interface back to the kernel."""
        os.close(self._link)


def _key(address: Address) -> bytes:
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed
