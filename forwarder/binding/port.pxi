# Port: where packets come in and go out.

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
