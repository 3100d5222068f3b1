# cython: language_level=3
"""A Maglev table and the same one by the straightforward loop, timed in turns; see reference_maglev.h."""

from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "maglev.h" nogil:
    struct maglev_member:
        uint32_t offset
        uint32_t skip
        uint32_t weight

    void maglev_permutation(const void *name, size_t length, uint32_t size, maglev_member *member)
    int maglev_populate(const maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots)

cdef extern from "reference_maglev.h" nogil:
    bint reference_populate(const maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots)


cdef double seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef class Tables:
    """Members of one table, to be built again and again. Both builders get memory that was written before."""

    cdef maglev_member *members
    cdef uint16_t *slots
    cdef uint16_t *expected
    cdef uint32_t count, size

    def __cinit__(self, list names, list weights, uint32_t size):
        cdef bytes name
        self.count, self.size = len(names), size
        self.members = <maglev_member *>calloc(self.count, sizeof(maglev_member))
        self.slots = <uint16_t *>calloc(size, sizeof(uint16_t))
        self.expected = <uint16_t *>calloc(size, sizeof(uint16_t))
        if self.members == NULL or self.slots == NULL or self.expected == NULL:
            raise MemoryError("Maglev table")
        for i in range(self.count):
            name = names[i]
            maglev_permutation(<const char *>name, len(name), size, &self.members[i])
            self.members[i].weight = weights[i]

    def build(self):
        """One turn: (seconds of the table, seconds of the reference, whether they are equal)."""
        cdef double began, between, ended
        cdef bint built
        with nogil:
            began = seconds()
            built = maglev_populate(self.members, self.count, self.size, self.slots) == 0
            between = seconds()
            built = reference_populate(self.members, self.count, self.size, self.expected) and built
            ended = seconds()
            built = built and memcmp(self.slots, self.expected, self.size * sizeof(uint16_t)) == 0
        return between - began, ended - between, built

    def __dealloc__(self):
        free(self.members)
        free(self.slots)
        free(self.expected)
