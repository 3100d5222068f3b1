# ReceiveRing and TransmitRing: the rings with three pointers between a port and the stages.

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
