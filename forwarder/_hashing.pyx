# cython: language_level=3
"""Flow hash, Maglev table and other schemes from C, without DPDK. Used through `forwarder.hashing`, not directly."""

cimport cython
from cpython cimport array
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

import array


cdef extern from "flow.h" nogil:
    struct hash_key:
        uint64_t k0
        uint64_t k1

    struct flow_key_t "flow_key":
        pass

    void flow_key_fill(flow_key_t *key, const void *source, const void *destination, uint8_t address_length,
                       uint16_t source_port, uint16_t destination_port, uint8_t protocol)
    uint64_t c_flow_hash "flow_hash"(const hash_key *key, const flow_key_t *flow)
    uint64_t c_flow_client_hash "flow_client_hash"(const hash_key *key, const flow_key_t *flow)


cdef extern from "maglev.h" nogil:
    struct maglev_member:
        uint32_t offset
        uint32_t skip
        uint32_t weight

    void maglev_permutation(const void *name, size_t length, uint32_t size, maglev_member *member)
    int maglev_populate(const maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots)


cdef extern from "arpa/inet.h" nogil:
    uint16_t htons(uint16_t value)


cdef uint64_t _hash(bytes key, bytes source, bytes destination, uint16_t source_port,
                    uint16_t destination_port, uint8_t protocol, bint client) except? 0:
    cdef hash_key words
    cdef flow_key_t flow
    if len(key) != 16:
        raise ValueError(f"the hash key has {len(key)} bytes, not 16")
    if len(source) != len(destination) or len(source) not in (4, 16):
        raise ValueError("source and destination must both have 4 or both have 16 bytes")
    words.k0 = int.from_bytes(key[:8], "little")
    words.k1 = int.from_bytes(key[8:], "little")
    flow_key_fill(&flow, <const char *>source, <const char *>destination, <uint8_t>len(source),
                  htons(source_port), htons(destination_port), protocol)
    return c_flow_client_hash(&words, &flow) if client else c_flow_hash(&words, &flow)


def flow_hash(bytes key, bytes source, bytes destination, source_port, destination_port, protocol):
    """The 64-bit flow hash of a 5-tuple; addresses packed, ports as numbers. See `flow.h`."""
    return _hash(key, source, destination, source_port, destination_port, protocol, False)


def client_hash(bytes key, bytes source, bytes destination, protocol):
    """The 64-bit hash of addresses and protocol only, for `affinity: client`."""
    return _hash(key, source, destination, 0, 0, protocol, True)


def permutation(bytes name, uint32_t size):
    """(offset, skip) of a backend name in a table of `size` slots."""
    cdef maglev_member member
    if size < 2:
        raise ValueError("a table has at least two slots")
    maglev_permutation(<const char *>name, len(name), size, &member)
    return member.offset, member.skip


cdef struct name_bytes:
    const char *bytes
    size_t length


cdef array.array _fill(maglev_member *members, uint32_t count, uint32_t size, const name_bytes *names):
    """The slots of `members`, whose permutations come from `names` where there are any."""
    cdef array.array slots = array.clone(array.array("H"), size, zero=False)
    cdef uint32_t i
    cdef int rc
    with nogil:
        if names != NULL and size >= 2:
            for i in range(count):
                maglev_permutation(names[i].bytes, names[i].length, size, &members[i])
        rc = maglev_populate(members, count, size, slots.data.as_ushorts)
    if rc < 0:
        raise ValueError(f"no Maglev table of {size} slots for {count} members (errno {-rc})")
    return slots


def populate(offsets, skips, weights, uint32_t size):
    """An array("H") of `size` positions, filled from permutations in order of name. Runs without the GIL."""
    cdef uint32_t count = len(weights), i
    cdef maglev_member *members = <maglev_member *>calloc(count + 1, sizeof(maglev_member))
    if members == NULL:
        raise MemoryError("Maglev table")
    try:
        for i in range(count):
            members[i].offset = offsets[i]
            members[i].skip = skips[i]
            members[i].weight = weights[i]
        return _fill(members, count, size, NULL)
    finally:
        free(members)


def build(list names, list weights, uint32_t size):
    """An array("H") of `size` positions for names (bytes, in their order). Hashes and fills without the GIL."""
    cdef uint32_t count = len(names), i
    cdef maglev_member *members = <maglev_member *>calloc(count + 1, sizeof(maglev_member))
    cdef name_bytes *texts = <name_bytes *>calloc(count + 1, sizeof(name_bytes))
    cdef bytes name
    try:
        if members == NULL or texts == NULL:
            raise MemoryError("Maglev table")
        for i in range(count):
            name = names[i]
            texts[i].bytes = name
            texts[i].length = len(name)
            members[i].weight = weights[i]
        return _fill(members, count, size, texts)
    finally:
        free(members)
        free(texts)


def renumber(array.array slots, array.array owners):
    """An array("H") of owners[slot] for each slot: positions become what stands at them. Runs without the GIL."""
    cdef array.array numbers = array.clone(slots, len(slots), zero=False)
    cdef size_t i, size = len(slots), known = len(owners)
    cdef const uint16_t *positions = slots.data.as_ushorts
    cdef const uint16_t *owner = owners.data.as_ushorts
    cdef uint16_t *number = numbers.data.as_ushorts
    cdef bint owned = True
    if slots.typecode != "H" or owners.typecode != "H":
        raise ValueError("slots and owners are arrays of 16-bit numbers")
    with nogil:
        for i in range(size):
            if positions[i] >= known:
                owned = False
                break
            number[i] = owner[positions[i]]
    if not owned:
        raise IndexError("a slot has no owner")
    return numbers


cdef extern from "place.h" nogil:
    struct place_member:
        uint32_t seed[2]
        double weight

    void place_rendezvous(const uint32_t *keys, size_t count, const place_member *members, uint32_t n,
                          uint32_t *positions)
    void place_jump(const uint32_t *keys, size_t count, uint32_t buckets, uint32_t *positions)
    size_t c_place_bounded "place_bounded"(const uint32_t *starts, size_t count, const uint32_t *owners,
                                           uint32_t length, const uint64_t *caps, uint64_t *loads,
                                           uint32_t *positions)


@cython.boundscheck(False)
@cython.wraparound(False)
def rendezvous(const uint32_t[::1] keys, const uint32_t[:, ::1] seeds, const double[::1] weights,
               uint32_t[::1] positions):
    """Fill `positions[i]` with the member that keys[i] goes to; two words of seed and a weight per member."""
    cdef uint32_t n = seeds.shape[0], m
    cdef size_t count = keys.shape[0]
    cdef place_member *members = <place_member *>calloc(n + 1, sizeof(place_member))
    if members == NULL:
        raise MemoryError("rendezvous")
    try:
        if <size_t>positions.shape[0] != count or weights.shape[0] != seeds.shape[0] or seeds.shape[1] != 2:
            raise ValueError("arrays of different lengths")
        for m in range(n):
            members[m].seed[0] = seeds[m, 0]
            members[m].seed[1] = seeds[m, 1]
            members[m].weight = weights[m]
            if not weights[m] > 0:
                raise ValueError("a weight is not positive")
        if count > 0:
            with nogil:
                place_rendezvous(&keys[0], count, members, n, &positions[0])
    finally:
        free(members)


@cython.boundscheck(False)
@cython.wraparound(False)
def jump(const uint32_t[::1] keys, uint32_t buckets, uint32_t[::1] positions):
    """Fill `positions[i]` with the bucket, 0 .. buckets - 1, that keys[i] goes to."""
    cdef size_t count = keys.shape[0]
    if <size_t>positions.shape[0] != count or buckets == 0:
        raise ValueError("arrays of different lengths, or no bucket")
    if count > 0:
        with nogil:
            place_jump(&keys[0], count, buckets, &positions[0])


@cython.boundscheck(False)
@cython.wraparound(False)
def bounded(const uint32_t[::1] starts, const uint32_t[::1] owners, const uint64_t[::1] caps, uint64_t[::1] loads,
            uint32_t[::1] positions):
    """Fill `positions[i]` with the owner that key i goes to: the first one from owners[starts[i]] on below its cap.

    Raises `loads`. Returns how many keys did not go to their first owner.
    """
    cdef size_t count = starts.shape[0], i
    cdef uint32_t length = owners.shape[0]
    if <size_t>positions.shape[0] != count or caps.shape[0] != loads.shape[0] or length == 0:
        raise ValueError("arrays of different lengths, or no owner")
    for i in range(count):
        if starts[i] >= length:
            raise ValueError(f"start {starts[i]} is beyond the {length} owners")
    for i in range(length):
        if owners[i] >= <size_t>caps.shape[0]:
            raise ValueError(f"owner {owners[i]} has no cap")
    if count == 0:
        return 0
    with nogil:
        i = c_place_bounded(&starts[0], count, &owners[0], length, &caps[0], &loads[0], &positions[0])
    return i
