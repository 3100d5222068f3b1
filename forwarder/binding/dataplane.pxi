# Dataplane: the stages over the ports, stepped by hand or started on lcores.

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
        """Send a packet of our own through the road by way of `worker`, addressed to the first port; see collect()."""
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
