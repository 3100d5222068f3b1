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


cdef class PacketPool:
    """The shared pool of `size` packet buffers of 2 KB, in the memory of a NUMA node where `socket` says one; with `umem`
    as ports of net_af_xdp need it."""

    cdef c.packet_pool *handle
    cdef object users  # what must be closed before

    def __cinit__(self, str name, uint32_t size, int socket=c.ANY_SOCKET, bint umem=False):
        cdef int error = 0
        self.users = weakref.WeakSet()
        self.handle = c.pool_new(name.encode(), size, socket, umem, &error)
        check(error, f"create a packet pool of {size} packets")

    cdef c.packet_pool *get(self) except NULL:
        if self.handle == NULL:
            raise closed("packet pool")
        return self.handle

    def add_user(self, user):
        """The pool cannot be closed while `user.is_open`."""
        self.users.add(user)

    @property
    def size(self):
        """Packets there are."""
        return c.pool_size(self.get())

    @property
    def available(self):
        """Packets in nobody's hands."""
        return c.pool_available(self.get())

    @property
    def missing(self):
        """Buffers in somebody's hands, those of fragments included."""
        return c.pool_missing(self.get())

    def take_back(self, uint32_t held):
        """Give back the packets that closed ports of net_af_xdp have forgotten, if no others are missing."""
        c.pool_take_back(self.get(), held)

    @property
    def pieces(self):
        """Fragments that there may be at once, and how many more now: {"size", "free"}."""
        cdef uint32_t size, available
        c.pool_pieces(self.get(), &size, &available)
        return {"size": size, "free": available}

    def close(self):
        """Free the pool. Raises DataplaneError (EBUSY) while a port or a data plane uses it."""
        check_unused("a packet pool in use", self.users)
        c.pool_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        c.pool_delete(self.handle)


@cython.no_gc_clear  # __dealloc__ needs what it refers to
cdef class Port:
    """`Port.device(devargs, index, pool)` over DPDK, `Port.memory(name, index, pool)` without a NIC, or the
    `Port.kernel_side(...)` of another port."""

    cdef c.port *handle
    cdef object __weakref__
    cdef object users
    cdef PacketPool pool
    cdef readonly str name

    @staticmethod
    def device(str devargs, uint16_t index, PacketPool pool not None, uint16_t queues=1, uint16_t mtu=0):
        """Create and start the DPDK device `devargs`; its packets come from `pool`.

        It has as many `queues` each way, or one when it `lacks` something. `mtu`: of a NIC that nobody else sets up;
        DataplaneError (EMSGSIZE) when it takes no such frames.
        """
        cdef Port self = Port.__new__(Port)
        cdef int error = 0
        cdef bytes encoded = devargs.encode()
        cdef char *text = encoded
        cdef c.packet_pool *handle = pool.get()
        with nogil:
            self.handle = c.port_new_device(text, index, handle, queues, mtu, &error)
        check(error, f"open port {devargs}")
        self._opened(pool, devargs.split(",")[0])
        return self

    @staticmethod
    def memory(str name, uint16_t index, PacketPool pool not None, uint16_t queues=1):
        """A port whose frames come by give() and leave by take()."""
        cdef Port self = Port.__new__(Port)
        cdef int error = 0
        self.handle = c.port_new_memory(name.encode(), index, queues, &error)
        check(error, f"open memory port {name}")
        self._opened(pool, name)
        return self

    @staticmethod
    def kernel_side(str name, uint16_t index, uint16_t nic, PacketPool pool not None, list files not None):
        """The kernel's interface `name` beside the port of index `nic`, of a file for each queue.

        One read of a file is a frame that the kernel sends, one write a frame that it gets. They do not block, and
        whoever opened them closes them, after the port.
        """
        cdef Port self = Port.__new__(Port)
        cdef array.array numbers = array.array("i", files)
        cdef int error = 0
        self.handle = c.port_new_kernel_side(
            name.encode(), index, nic, numbers.data.as_ints, len(files), pool.get(), &error
        )
        check(error, f"open the kernel's side {name}")
        self._opened(pool, name)
        return self

    cdef _opened(self, PacketPool pool, str name):
        self.users = weakref.WeakSet()
        self.pool = pool
        self.name = name
        pool.add_user(self)

    def add_user(self, user):
        """The port cannot be closed while `user.is_open`."""
        self.users.add(user)

    @property
    def is_open(self):
        """Whether the port has not been closed."""
        return self.handle != NULL

    cdef c.port *get(self) except NULL:
        if self.handle == NULL:
            raise closed("port")
        return self.handle

    cdef c.port_facts facts(self):
        cdef c.port_facts facts
        c.port_describe(self.handle, &facts)
        return facts

    @property
    def mac(self):
        """The port's own address, 6 bytes."""
        cdef c.port_facts facts
        c.port_describe(self.get(), &facts)
        return (<const char *>facts.mac)[:6]

    @property
    def link_up(self):
        """Whether the link is up now."""
        self.get()
        return bool(self.facts().link_up)

    @property
    def knows_recycled(self):
        """Whether the transmit ring's `recycled` pointer means something on this port."""
        self.get()
        return bool(self.facts().knows_recycled)

    @property
    def missed(self):
        """Packets the device dropped since nobody took them in time; of a kernel's side those the kernel refused."""
        self.get()
        return self.facts().missed

    @property
    def queues(self):
        """Receive queues, and transmit queues."""
        self.get()
        return self.facts().queues

    @property
    def buckets(self):
        """Size of the RSS table that picks a packet's queue; 1 when there is but one queue."""
        self.get()
        return self.facts().buckets

    @property
    def lacks(self):
        """What it says of itself when it has not the queues that were asked for: "has only one queue"; else None."""
        self.get()
        return self.facts().lacks.decode() if self.facts().lacks != NULL else None

    def narrow(self):
        """Go on with one queue. Raises DataplaneError (EBUSY) while a data plane uses the port."""
        cdef c.port *handle = self.get()
        cdef c.packet_pool *pool = self.pool.get()
        cdef int rc
        check_unused("a port in use before it loses queues", self.users)
        with nogil:
            rc = c.port_narrow(handle, pool)
        check(rc, f"reduce {self.name} to one queue")

    def give(self, bytes frame, uint16_t headroom=c.MOST_HEADROOM, stripped=None):
        """Memory port: let `frame` arrive, with so many bytes free before it, as a driver would leave them.

        `stripped`: 16 bits of a VLAN tag that a NIC has taken off the frame, and puts back on what is sent with it.
        Raises DataplaneError (ENOBUFS) when pool or port is full.
        """
        cdef uint16_t tag = stripped or 0
        cdef const uint16_t *tagged = NULL if stripped is None else &tag
        check(c.port_give(self.get(), self.pool.get(), <const char *>frame, len(frame), headroom, tagged),
              "give a frame")

    def take(self):
        """Memory port: the next frame that was sent, or None."""
        cdef bytearray room = bytearray(MAX_FRAME)
        cdef int length = check(c.port_take(self.get(), <char *>room, MAX_FRAME), "take a frame")
        return bytes(room[:length]) if length else None

    def close(self):
        """Stop the port; packets it held return to the pool. Raises DataplaneError (EBUSY) while a data plane uses it."""
        cdef c.port *handle = self.handle
        check_unused("a port in use", self.users)
        self.handle = NULL
        with nogil:
            c.port_delete(handle)

    def __dealloc__(self):
        c.port_delete(self.handle)


cdef class ReceiveRing:
    """Packet pointers between NIC and steering: processed <= received <= reserved <= processed + size."""

    cdef c.receive_ring *handle

    def __cinit__(self, uint32_t size):
        cdef int error = 0
        self.handle = c.receive_ring_new(size, &error)
        check(error, f"create a receive ring of {size} slots (a power of two)")

    cdef c.receive_ring *get(self) except NULL:
        if self.handle == NULL:
            raise closed("receive ring")
        return self.handle

    def reserve(self, uint64_t credit):
        """Let the ring take up to `credit` more packets than it has received, within its size."""
        c.receive_ring_credit(self.get(), credit)

    def pull(self, Port port not None):
        """Ask the port for a burst, at most what is reserved; returns how many came."""
        return c.receive_ring_pull(self.get(), port.get())

    def hand_over(self, TransmitRing to not None, uint32_t n):
        """Process up to `n` packets by putting their pointers into `to`; returns how many went."""
        return c.receive_ring_hand_over(self.get(), to.get(), n)

    @property
    def indices(self):
        """{"received", "processed", "reserved"}."""
        cdef c.ring_indices i
        c.receive_ring_indices(self.get(), &i)
        return {"received": i.received, "processed": i.processed, "reserved": i.reserved}

    def close(self):
        """Free the ring; packets in it return to the pool."""
        c.receive_ring_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        c.receive_ring_delete(self.handle)


cdef class TransmitRing:
    """Packet pointers between muxing and NIC: recycled <= sent <= ready <= recycled + size."""

    cdef c.transmit_ring *handle

    def __cinit__(self, uint32_t size):
        cdef int error = 0
        self.handle = c.transmit_ring_new(size, &error)
        check(error, f"create a transmit ring of {size} slots (a power of two)")

    cdef c.transmit_ring *get(self) except NULL:
        if self.handle == NULL:
            raise closed("transmit ring")
        return self.handle

    def push(self, Port port not None):
        """Give the port a burst of what is ready; returns how many it took."""
        return c.transmit_ring_push(self.get(), port.get())

    @property
    def indices(self):
        """{"ready", "sent", "recycled"}."""
        cdef c.ring_indices i
        c.transmit_ring_indices(self.get(), &i)
        return {"ready": i.ready, "sent": i.sent, "recycled": i.recycled}

    def close(self):
        """Free the ring; packets in it return to the pool."""
        c.transmit_ring_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        c.transmit_ring_delete(self.handle)


@cython.no_gc_clear  # __dealloc__ needs what it refers to
cdef class State:
    """An immutable forwarding state, built aside.

    `backends`: (index, generation, next hop, packed address, packed tunnel source) each.
    `vips`: (id, packed address, protocol number, port, client affinity, slots, usable) each, where slots is an
    array("H") of backend indices (empty: nobody takes new flows) and usable a sequence of backend indices.
    `cluster`: (nodes, position of this node, slots): nodes are (next hop, packed address, packed tunnel source) each,
    slots an array("H") of positions; None for a node that is alone.
    `bounds`: {vip id: (load bound, owners, weights)} of vips that have one: array("H") of the backend indices that own
    slots, and array("I") of their weights.
    Raises DataplaneError: EINVAL for an index or a load bound out of range, EEXIST for a vip given twice.
    """

    cdef c.state *handle
    cdef list held  # the arrays that the C state points into

    def __cinit__(self, list vips, list backends, tuple cluster=None, dict bounds=None):
        cdef list nodes = [(0, 1, *node) for node in cluster[0]] if cluster is not None else []
        cdef c.vip_spec *vip_specs = <c.vip_spec *>calloc(len(vips) + 1, sizeof(c.vip_spec))
        cdef c.backend_spec *backend_specs = <c.backend_spec *>calloc(len(backends) + 1, sizeof(c.backend_spec))
        cdef c.backend_spec *node_specs = <c.backend_spec *>calloc(len(nodes) + 1, sizeof(c.backend_spec))
        cdef c.cluster_spec cluster_spec
        cdef uint32_t vip_count = len(vips), backend_count = len(backends)
        cdef int error = 0
        cdef list usable = []
        self.held = []
        try:
            if vip_specs == NULL or backend_specs == NULL or node_specs == NULL:
                raise MemoryError("forwarding state")
            for i in range(backend_count):
                self._backend(&backend_specs[i], backends[i])
            for i in range(vip_count):
                self._vip(&vip_specs[i], usable, vips[i])
                if bounds and vip_specs[i].id in bounds:
                    self._bound(&vip_specs[i], bounds[vip_specs[i].id])
            for i in range(len(nodes)):
                self._backend(&node_specs[i], nodes[i])
            self._cluster(&cluster_spec, node_specs, cluster)
            with nogil:
                self.handle = c.state_build(
                    vip_specs, vip_count, backend_specs, backend_count, &cluster_spec, &error)
        finally:
            free(vip_specs)
            free(backend_specs)
            free(node_specs)
        check(error, "build a forwarding state")

    cdef _backend(self, c.backend_spec *spec, tuple backend):
        cdef bytes address, source
        index, generation, next_hop, address, source = backend
        spec.index = index
        spec.generation = generation
        spec.next_hop = next_hop
        if len(address) != len(source) or len(address) not in (4, 16):
            raise ValueError("a backend and its tunnel source are of one family")
        spec.address_length = <uint8_t>len(address)
        memcpy(spec.address, <const char *>address, len(address))
        memcpy(spec.source, <const char *>source, len(source))

    cdef _cluster(self, c.cluster_spec *spec, c.backend_spec *nodes, tuple cluster):
        cdef array.array table
        spec.nodes = nodes
        spec.node_count = spec.self = spec.table_size = 0
        if cluster is None:
            return
        members, position, table = cluster
        spec.node_count = len(members)
        spec.self = position
        spec.table_size = len(table)
        spec.slots = self._slots(table)

    cdef const uint16_t *_slots(self, array.array table) except? NULL:
        if table.typecode != "H":
            raise ValueError("a table is an array of 16-bit numbers")
        self.held.append(memoryview(table))  # an exported buffer cannot be resized
        return table.data.as_ushorts

    cdef _vip(self, c.vip_spec *spec, list keep, tuple vip):
        cdef bytes address
        cdef array.array table, members
        id, address, protocol, port, client, table, usable = vip
        members = array.array("H", usable)
        if len(address) not in (4, 16):
            raise ValueError("an address has 4 or 16 bytes")
        spec.id = id
        spec.port = port
        spec.protocol = protocol
        spec.client_affinity = bool(client)
        spec.address_length = <uint8_t>len(address)
        memcpy(spec.address, <const char *>address, len(address))
        spec.table_size = len(table)
        spec.slots = self._slots(table)
        spec.usable = members.data.as_ushorts
        spec.usable_count = len(members)
        keep.append(members)

    cdef _bound(self, c.vip_spec *spec, tuple bound):
        cdef array.array owners, weights
        factor, owners, weights = bound
        if weights.typecode != "I" or len(weights) != len(owners):
            raise ValueError("each owner of slots has a weight, a 32-bit number")
        spec.load_bound = factor
        spec.owners = self._slots(owners)
        spec.weights = weights.data.as_uints
        spec.owner_count = len(owners)
        self.held.append(memoryview(weights))

    cdef c.state *get(self) except NULL:
        if self.handle == NULL:
            raise closed("forwarding state")
        return self.handle

    def __dealloc__(self):
        c.state_free(self.handle)


cdef int churn_side(c.churn_side *side, array.array slots, bytes usable, size_t backends) except -1:
    if slots.typecode != "H" or <size_t>len(usable) * 8 < backends:
        raise ValueError("slots are 16-bit numbers, and each backend has a bit")
    side.slots = slots.data.as_ushorts
    side.size = len(slots)
    side.usable = <const uint8_t *><const char *>usable
    return 0


@cython.no_gc_clear  # __dealloc__ needs what it refers to
cdef class Dataplane:
    """The stages of one forwarder over its ports: stepped by hand, or started on lcores.

    `layout`: "software", over ports of one queue, or "rss", over ports with a queue for each worker.
    `connection_seconds`: timeouts (half-open, established, closing, datagram) in whole seconds.
    `trace`: tell of each packet what became of it, see traces().
    `tables`: one writable buffer of table_bytes(connection_entries) per worker, zeroed or kept from another process,
    in which the connection tables live; take_over() comes before anything else then. Default: memory of our own.
    Raises DataplaneError with the errno of the C call.
    """

    cdef c.dataplane *handle
    cdef object __weakref__
    cdef list ports
    cdef PacketPool pool
    cdef State state
    cdef list tables  # buffers of the caller, held so that they stay where they are
    cdef object counting  # held while another thread reads the tables: close() waits for it
    cdef bint running
    cdef c.dataplane_config config

    def __cinit__(self, PacketPool pool not None, list ports, bytes hash_key, uint32_t workers=1,
                  uint32_t ring_size=2048, uint32_t connection_entries=65536,
                  connection_seconds=(10, 7200, 10, 60), str idle="sleep", uint64_t steering_seed=STEERING_SEED,
                  bint trace=False, tables=None, str layout="software"):
        cdef c.port *handles[8]
        cdef void *memory[32]
        cdef int error = 0
        self.counting = threading.Lock()
        if len(hash_key) != 16:
            raise ValueError("the hash key has 16 bytes")
        if not 1 <= len(ports) <= 8:
            raise ValueError("a data plane has one to eight ports")
        self.config.hash_key = [int.from_bytes(hash_key[:8], "little"), int.from_bytes(hash_key[8:], "little")]
        self.config.steering_seed = steering_seed
        self.config.workers = workers
        self.config.ring_size = ring_size
        self.config.connection_entries = connection_entries
        for i in range(4):
            self.config.connection_seconds[i] = connection_seconds[i]
        self.config.idle = {"spin": c.IDLE_SPIN, "yield": c.IDLE_YIELD, "sleep": c.IDLE_SLEEP}[idle]
        self.config.layout = {"software": c.LAYOUT_SOFTWARE, "rss": c.LAYOUT_RSS}[layout]
        self.config.trace = trace
        for i, port in enumerate(ports):
            handles[i] = (<Port?>port).get()
        if tables is not None:
            self._hold(tables, memory)
            self.config.tables = memory
        self.ports = list(ports)
        self.pool = pool
        self.handle = c.dataplane_new(&self.config, pool.get(), handles, len(ports), &error)
        if error == -errno.ENOSPC:
            need = c.dataplane_pool_need(&self.config, pool.get(), handles, len(ports))
            raise DataplaneError(
                f"a packet pool of {pool.size} is too small: descriptors, caches and two bursts per stage "
                f"take {need}; set packet_pool to {need} or more", errno.ENOSPC)
        wanted = workers if self.config.layout == c.LAYOUT_RSS else 1
        for port in ports:
            if port.queues != wanted:
                raise ValueError(f"layout {layout} with {workers} workers needs {wanted} queues; "
                                 f"{port.name} has {port.queues}")
        check(error, "create the data plane")
        for user in (pool, *ports):
            user.add_user(self)

    cdef _hold(self, tables, void **memory):
        cdef Py_buffer *buffer
        cdef size_t size = c.dataplane_table_bytes(self.config.connection_entries)
        if len(tables) != self.config.workers or len(tables) > 32:
            raise ValueError("one connection table for each worker")
        self.tables = [memoryview(table) for table in tables]
        for i, table in enumerate(self.tables):
            buffer = PyMemoryView_GET_BUFFER(table)
            if buffer.readonly or <size_t>buffer.len < size or <size_t>buffer.buf % 64:
                raise ValueError(f"a connection table is {size} writable bytes, 64-byte aligned")
            memory[i] = buffer.buf

    @property
    def is_open(self):
        """Whether the data plane has not been closed."""
        return self.handle != NULL

    cdef c.dataplane *get(self) except NULL:
        if self.handle == NULL:
            raise closed("data plane")
        return self.handle

    cdef Port _port(self, uint16_t index):
        self.get()
        if index >= len(self.ports):
            raise IndexError("no such port")
        return self.ports[index]

    def set_port(self, uint16_t index, uint16_t mtu, bint punts, bint unfinished=False, bint only_own=False):
        """Before the start: egress MTU of a port; whether a kernel has what is not for a vip, and may leave checksums to
        a NIC; whether frames to another MAC than its own are not for us.
        """
        self._port(index)
        c.dataplane_set_port(self.get(), index, mtu, punts, unfinished, only_own)

    def set_next_hop(self, uint16_t index, uint16_t port, mac):
        """Where next hop `index` is: the port and 6 bytes of MAC, or None while it is not known."""
        cdef const uint8_t *address = NULL
        cdef bytes held = mac
        self._port(port)
        if held is not None:
            if len(held) != 6:
                raise ValueError("a MAC has 6 bytes")
            address = <const uint8_t *><const char *>held
        c.dataplane_set_next_hop(self.get(), index, port, address)

    def publish(self, State state not None):
        """Make `state` the one all workers read; returns when none reads the old one any more."""
        cdef c.dataplane *d = self.get()
        cdef c.state *s = state.get()
        with nogil:
            c.dataplane_publish(d, s)
        self.state = state  # only now may the old one go

    def take_over(self, dict backends, vips, uint32_t now):
        """Go on with the flows in the tables given at the start. Returns False when one is no whole table: all empty.

        `backends`: {index: generation}; flows of others, or of no id in `vips`, or expired by `now`, are forgotten.
        `now` becomes the clock, and must go on from that of the process that had the tables before.
        """
        cdef array.array generations = array.array("H", bytes(2 * MAX_BACKENDS))
        cdef array.array known = array.array("B", bytes(MAX_VIPS))
        cdef c.dataplane *d = self.get()
        cdef bint whole
        if self.running:
            raise DataplaneError("take over tables that are in use", errno.EBUSY)
        for index, generation in backends.items():
            generations[index] = generation
        for id in vips:
            known[id] = 1
        with nogil:
            whole = c.dataplane_take_over(d, generations.data.as_ushorts, known.data.as_uchars, now)
        return whole

    def start(self, lcores):
        """Launch steering, workers and muxing on these EAL lcores, in that order; in layout rss only workers."""
        cdef unsigned int ids[64]
        stages = [stage for stage, _, _ in self.turns()]
        if len(lcores) != len(stages):
            raise ValueError(f"{len(stages)} lcores are needed: {', '.join(dict.fromkeys(stages))}")
        for i, lcore in enumerate(lcores):
            ids[i] = lcore
        check(c.dataplane_start(self.get(), ids), "start the stages")
        self.running = True

    def stop(self):
        """Stop all stages and wait for them. Harmless when not running."""
        cdef c.dataplane *d = self.get()
        with nogil:
            c.dataplane_stop(d)
        self.running = False

    def step(self, uint32_t now):
        """One turn of each stage on this thread at clock `now` (seconds); returns packets moved. Not while running."""
        cdef c.dataplane *d = self.get()
        cdef uint32_t moved
        if self.running:
            raise DataplaneError("step stages that run on lcores", errno.EBUSY)
        with nogil:
            moved = c.dataplane_step(d, now)
        return moved

    def weigh(self):
        """See which backends are over the load bounds of their vips; to be called every second while running."""
        cdef c.dataplane *d = self.get()
        with nogil:
            c.dataplane_weigh(d)

    def flush(self, backend):
        """Forget all flows of the backend with this index; None: of all backends."""
        cdef c.dataplane *d = self.get()
        cdef uint32_t which = MAX_BACKENDS if backend is None else <uint16_t>backend
        with nogil:
            c.dataplane_flush(d, which)

    def inject(self, bytes frame, uint8_t worker):
        """Send a packet of our own through the road by way of `worker`; see collect()."""
        check(c.dataplane_inject(self.get(), <const char *>frame, len(frame), worker), "inject a packet")

    def collect(self):
        """A packet of our own that reached its end: (worker, reason, port, backend index, frame), or None."""
        cdef bytearray room = bytearray(MAX_FRAME)
        cdef c.collected what
        cdef int length = c.dataplane_collect(self.get(), &what, <char *>room, MAX_FRAME)
        if length == 0:
            return None
        return what.worker, _REASON_NAMES[what.reason], what.port, what.backend, bytes(room[:length])

    def traces(self):
        """What became of packets since the last call, in the order in which they ended.

        [(number, reason, vip id or None, backend index or None)]; numbers are the order of arrival, from 0. To be
        called before as many packets have ended as the pool has, else some are lost. Raises DataplaneError (ENOTSUP)
        when no trace was asked for.
        """
        cdef c.traced records[64]
        cdef int n = 64
        cdef list traces = []
        while n == 64:
            n = check(c.dataplane_traced(self.get(), records, 64), "read the trace")
            for i in range(n):
                traces.append((
                    records[i].number,
                    _REASON_NAMES[records[i].reason],
                    records[i].vip if records[i].vip != c.NO_VIP else None,
                    records[i].backend if records[i].backend != c.NO_BACKEND else None,
                ))
        return traces

    @property
    def received(self):
        """Packets received from outside."""
        return c.dataplane_received(self.get())

    @property
    def own(self):
        """Packets of our own that were put on the road."""
        return c.dataplane_own(self.get())

    @property
    def held(self):
        """Fragments that wait for their first ones; they were received and have no fate yet."""
        return c.dataplane_held(self.get())

    @property
    def pieces(self):
        """Fragments that were sent, each packet's last one not counted: frames beyond one a packet."""
        return c.dataplane_pieces(self.get())

    def fates(self):
        """{fate: packets}, every fate."""
        cdef dict fates = dict.fromkeys(FATES, 0)
        for reason, packets in self.reasons().items():
            fates[REASONS[reason][0]] += packets
        return fates

    def reasons(self):
        """{reason: packets}, every reason; see REASONS."""
        cdef c.dataplane *d = self.get()
        return {name: c.dataplane_reason_count(d, number) for number, name in enumerate(REASONS, start=1)}

    def rings(self, uint16_t index):
        """The six pointers of one port; `recycled` is None where the port cannot know it."""
        cdef c.ring_indices i
        known = self._port(index).knows_recycled
        c.dataplane_rings(self.get(), index, &i)
        return {
            "receive": {"received": i.received, "processed": i.processed, "reserved": i.reserved},
            "transmit": {"ready": i.ready, "sent": i.sent, "recycled": i.recycled if known else None},
        }

    def vip_traffic(self, uint16_t vip):
        """(packets, bytes) forwarded for the vip with this id."""
        cdef uint64_t packets, octets
        if vip >= MAX_VIPS:
            raise IndexError("no such vip")
        c.dataplane_vip_traffic(self.get(), vip, &packets, &octets)
        return packets, octets

    def backend_traffic(self, uint16_t backend):
        """(packets, bytes) forwarded to the backend with this index."""
        cdef uint64_t packets, octets
        c.dataplane_backend_traffic(self.get(), backend, &packets, &octets)
        return packets, octets

    def backend_flows(self, uint16_t backend):
        """Entries of all connection tables that point to the backend with this index."""
        return c.dataplane_backend_flows(self.get(), backend)

    def path_mtu(self, uint16_t backend):
        """What was learned of the way to the backend with this index: (MTU, seconds left), or None."""
        cdef uint16_t mtu
        cdef uint32_t seconds
        if not c.dataplane_path_mtu(self.get(), backend, &mtu, &seconds):
            return None
        return mtu, seconds

    def vip_flows(self, uint16_t vip):
        """Entries of all connection tables that belong to the vip with this id."""
        if vip >= MAX_VIPS:
            raise IndexError("no such vip")
        return c.dataplane_vip_flows(self.get(), vip)

    def over(self, uint16_t vip):
        """Indices of the backends that are over the load bound of the vip with this id."""
        cdef array.array room = array.array("H", bytes(2 * MAX_BACKENDS))
        cdef uint32_t count = c.dataplane_over(self.get(), vip, room.data.as_ushorts, MAX_BACKENDS)
        return list(room[:count])

    def turns(self):
        """Loop counters: [("steering", 0, n), ("worker", i, n)..., ("muxing", 0, n)]; in layout rss only workers."""
        cdef c.dataplane *d = self.get()
        workers = [("worker", i, c.dataplane_turns(d, c.STAGE_WORKER, i)) for i in range(self.config.workers)]
        if self.config.layout == c.LAYOUT_RSS:
            return workers
        return [
            ("steering", 0, c.dataplane_turns(d, c.STAGE_STEERING, 0)),
            *workers,
            ("muxing", 0, c.dataplane_turns(d, c.STAGE_MUXING, 0)),
        ]

    def worker(self, uint32_t index):
        """Connection table of one worker: {"entries", "live", "inserted", "evicted", "refused"}."""
        cdef c.worker_counters w
        if index >= self.config.workers:
            raise IndexError("no such worker")
        c.dataplane_worker(self.get(), index, &w)
        return {"entries": w.entries, "live": w.live, "inserted": w.inserted, "evicted": w.evicted,
                "refused": w.refused}

    def connections(self, uint32_t now):
        """Entries alive at `now`, in all tables. Not while running."""
        return c.dataplane_connections(self.get(), now)

    def churn(self, list vips, dict generations):
        """Count the flows that another state would move: [(live, at risk, moved, lost)] of `vips`, see churn.h.

        `vips`: (id, slots, usable, next slots, next usable) each, where slots is an array("H") of backend indices and
        usable has a bit for each index up to the highest of `generations`, {index: generation}. May run on a thread.
        """
        cdef array.array held = array.array("H", bytes(2 * (max(generations, default=-1) + 1)))
        cdef array.array position = array.array("H", [c.CHURN_NO_VIP]) * MAX_VIPS
        cdef c.churn_vip *counted = <c.churn_vip *>calloc(len(vips) + 1, sizeof(c.churn_vip))
        cdef c.churn question
        cdef c.dataplane *d
        try:
            if counted == NULL:
                raise MemoryError("churn")
            for index, generation in generations.items():
                held[index] = generation
            for i, (id, slots, usable, next_slots, next_usable) in enumerate(vips):
                position[id] = i
                churn_side(&counted[i].now, slots, usable, len(held))
                churn_side(&counted[i].next, next_slots, next_usable, len(held))
            question.generations = held.data.as_ushorts
            question.backend_count = len(held)
            question.position = position.data.as_ushorts
            question.vips = counted
            with self.counting:
                d = self.get()
                with nogil:
                    c.dataplane_churn(d, &question)
            return [(counted[i].live, counted[i].at_risk, counted[i].moved, counted[i].lost) for i in range(len(vips))]
        finally:
            free(counted)

    def lookup(self, uint8_t protocol, bytes source, uint16_t source_port, bytes destination,
               uint16_t destination_port):
        """What would happen to a packet of this flow: (vip id or None, hash, slot, backend index or None, tracked)."""
        cdef c.flow_question q
        cdef c.flow_answer a
        if len(source) != len(destination) or len(source) not in (4, 16):
            raise ValueError("source and destination are of one family")
        q.protocol = protocol
        q.address_length = <uint8_t>len(source)
        memcpy(q.source, <const char *>source, len(source))
        memcpy(q.destination, <const char *>destination, len(destination))
        q.source_port = source_port
        q.destination_port = destination_port
        c.dataplane_lookup(self.get(), &q, &a)
        return (
            a.vip if a.vip_found else None,
            a.hash,
            a.slot,
            a.backend if a.backend != c.NO_BACKEND else None,
            bool(a.tracked),
        )

    def close(self):
        """Stop, and give every packet on the road back to the pool. Ports and pool are closed after this."""
        cdef c.dataplane *d
        with self.counting:
            d = self.handle
            self.handle = NULL
            with nogil:
                c.dataplane_delete(d)
        self.state = None
        self.tables = None

    def __dealloc__(self):
        c.dataplane_delete(self.handle)
