# cython: language_level=3
"""The worker's benchmark for Python; see bench.h."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

import errno
import os

cdef extern from "dataplane.h" nogil:
    int dataplane_init(int argc, char **argv)

cdef extern from "bench.h" nogil:
    enum bench_traffic:
        BENCH_HIT
        BENCH_NEW
        BENCH_FLOOD
        BENCH_NOT_VIP

    struct bench_config:
        uint32_t flows
        uint32_t vips
        uint32_t backends
        uint32_t table_size
        uint8_t version
        uint16_t bytes
        bench_traffic traffic
        bint cold

    struct bench_round:
        double worker_ns
        double floor_ns
        uint64_t packets
        uint64_t expected

    struct bench
    bench *bench_new(const bench_config *config, int *error)
    void bench_delete(bench *b)
    void bench_run(bench *b, uint32_t bursts, bench_round *round)

TRAFFIC = {"hit": BENCH_HIT, "new": BENCH_NEW, "flood": BENCH_FLOOD, "not_vip": BENCH_NOT_VIP}
cdef list _eal_arguments = None


def initialize(list arguments):
    """Start DPDK's environment, once per process."""
    global _eal_arguments
    cdef char *argv[32]
    _eal_arguments = [b"bench"] + [a.encode() for a in arguments]
    for i, argument in enumerate(_eal_arguments):
        argv[i] = argument
    if dataplane_init(len(_eal_arguments), argv) < 0:
        raise RuntimeError("DPDK could not be initialised")


cdef class Bench:
    """One worker with so many flows, vips and backends, and the traffic that it is to see."""

    cdef bench *handle

    def __cinit__(self, str traffic, uint32_t flows, uint32_t vips=100, uint32_t backends=100,
                  uint32_t table_size=65537, uint8_t version=4, uint16_t size=74, bint cold=False):
        cdef bench_config config
        cdef int error = 0
        config.flows, config.vips, config.backends, config.table_size = flows, vips, backends, table_size
        config.version, config.bytes, config.cold = version, size, cold
        config.traffic = TRAFFIC[traffic]
        with nogil:
            self.handle = bench_new(&config, &error)
        if self.handle == NULL:
            raise OSError(-error, os.strerror(-error))

    def run(self, uint32_t bursts):
        """(worker ns, floor ns) per packet over so many bursts of 32, and the share that met the expected fate."""
        cdef bench_round r
        with nogil:
            bench_run(self.handle, bursts, &r)
        return r.worker_ns, r.floor_ns, r.expected / r.packets

    def close(self):
        """Give its memory back."""
        bench_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        bench_delete(self.handle)
