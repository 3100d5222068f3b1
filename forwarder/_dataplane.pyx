# cython: language_level=3
"""The data plane for Python: owning classes over csrc/dataplane.h, usable one by one. None ever reads a packet's bytes.

Each class owns one C thing. `close()` may be called twice; using a closed object raises DataplaneError.
`initialize()` comes first, once per process.
"""

cimport cython
from cpython cimport array
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import array
import errno
import os
import threading
import weakref

cimport forwarder.dataplane as c

MAX_FRAME = 65536
MAX_VIPS = 1 << 14
MAX_BACKENDS = 1 << 16
ANY_SOCKET = c.ANY_SOCKET
STEERING_SEED = 0x6d61676c6576
TABLE_LAYOUT = c.dataplane_table_layout()

cdef list _eal_arguments = None


class DataplaneError(Exception):
    """A call of the data plane failed; `errno` is the C call's."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.errno = number


cdef int check(int rc, str what) except -1:
    if rc < 0:
        raise DataplaneError(what, -rc)
    return rc


cdef closed(str what):
    return DataplaneError(f"{what} is closed", errno.EBADF)


cdef int check_unused(str what, users) except -1:
    if any(user.is_open for user in users):
        raise DataplaneError(f"close {what}", errno.EBUSY)
    return 0


def initialize(list arguments):
    """Start DPDK's environment with EAL arguments (without the program's name). Once per process.

    EAL pins the calling thread to a CPU, and whatever it starts later: the caller restores its affinity.
    """
    global _eal_arguments
    cdef list encoded = [b"maglev"] + [a.encode() for a in arguments]
    cdef int count = len(encoded)
    cdef char **argv
    cdef int rc
    if _eal_arguments is not None:
        raise DataplaneError("DPDK was initialised before in this process", errno.EALREADY)
    argv = <char **>calloc(count + 1, sizeof(char *))
    if argv == NULL:
        raise MemoryError("arguments")
    for i in range(count):
        argv[i] = encoded[i]
    # EAL keeps pointers into its arguments, so both stay for the life of the process.
    _eal_arguments = encoded
    with nogil:
        rc = c.dataplane_init(count, argv)
    check(rc, "initialise DPDK")


def cleanup():
    """Give hugepages back. Everything that was made must be closed, and no lcore may run."""
    with nogil:
        c.dataplane_cleanup()


FATES = tuple(c.dataplane_fate_name(i).decode() for i in range(c.dataplane_fate_count()))
FATE_KINDS = {
    c.dataplane_fate_name(i).decode(): ("forwarded", "answered", "passed", "dropped")[c.dataplane_fate_kind(i)]
    for i in range(c.dataplane_fate_count())
}


cdef dict _all_reasons():
    cdef c.reason_facts facts
    cdef uint32_t number = 1
    cdef dict reasons = {}
    while c.dataplane_reason(number, &facts):
        reasons[facts.name.decode()] = (FATES[facts.fate], facts.text.decode())
        number += 1
    return reasons


# What befell a packet, and why: {reason: (its fate, a sentence)}.
REASONS = _all_reasons()
_REASON_NAMES = (None, *REASONS)


def table_bytes(uint32_t entries):
    """Memory of one worker's connection table of so many entries."""
    return c.dataplane_table_bytes(entries)


# One file a class, one extension for all: the C code beneath them has variables of its own, which must be there once.
include "binding/packet_pool.pxi"
include "binding/port.pxi"
include "binding/rings.pxi"
include "binding/state.pxi"
include "binding/dataplane.pxi"
