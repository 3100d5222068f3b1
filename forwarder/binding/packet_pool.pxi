# PacketPool: the one shared pool of packets.

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
