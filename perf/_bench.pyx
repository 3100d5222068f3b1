# cython: language_level=3
"""The benchmarks' C part for Python: see csrc/bench.h, csrc/node.h and csrc/source.h."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

import errno
import os

cdef extern from "dataplane.h" nogil:
    int dataplane_init(int argc, char **argv)
    enum idle_policy:
        IDLE_SPIN
        IDLE_YIELD
        IDLE_SLEEP
    enum layout:
        LAYOUT_SOFTWARE
        LAYOUT_RSS

cdef extern from "generator.h" nogil:
    enum traffic_kind:
        TRAFFIC_HIT
        TRAFFIC_STALE
        TRAFFIC_NEW
        TRAFFIC_FLOOD
        TRAFFIC_NOT_VIP

    struct generator_config:
        traffic_kind traffic
        uint32_t flows
        uint32_t vips
        uint8_t version
        uint16_t bytes
        uint32_t new_permille

cdef extern from "bench.h" nogil:
    struct bench_config:
        generator_config generator
        uint32_t backends
        uint32_t table_size
        uint32_t workers
        bint cold
        bint only_own

    struct bench_round:
        double worker_ns
        double floor_ns
        uint64_t packets
        uint64_t expected
        uint64_t forwarded

    struct bench
    bench *bench_new(const bench_config *config, int *error)
    void bench_delete(bench *b)
    void bench_run(bench *b, uint32_t bursts, bench_round *round)

cdef extern from "node.h" nogil:
    enum node_mode:
        NODE_PASS
        NODE_PLAIN
        NODE_TURNS
        NODE_STAGES

    struct node_config:
        generator_config generator
        const char *devargs
        uint32_t backends
        uint32_t table_size
        uint32_t workers
        layout layout
        uint32_t packets
        uint32_t ring_size
        idle_policy idle

    struct node_round:
        double seconds
        uint64_t packets
        uint64_t forwarded
        uint64_t dropped
        uint64_t known
        double stage_ns[3]
        uint64_t interrupted

    struct node
    node *node_new(const node_config *config, int *error)
    void node_delete(node *n)
    void node_open_flows(node *n)
    int node_start(node *n, node_mode mode, const unsigned int *lcores, bint lay)
    void node_stop(node *n, node_round *round)
    void node_step(node *n, uint32_t turns, node_round *round)

cdef extern from "source.h" nogil:
    struct source_round:
        double seconds
        uint64_t sent
        uint64_t refused
        uint64_t returned
        double median_ns
        double p99_ns
        double p999_ns
        double longest_ns

    struct source
    source *source_new(node *n, const char *devargs, unsigned int lcore, int *error)
    void source_delete(source *s)
    void source_open_flows(source *s, double packets_per_second, bint first)
    void source_start(source *s, double packets_per_second)
    void source_stop(source *s, source_round *round)

TRAFFIC = {"hit": TRAFFIC_HIT, "stale": TRAFFIC_STALE, "new": TRAFFIC_NEW, "flood": TRAFFIC_FLOOD,
           "not_vip": TRAFFIC_NOT_VIP}
MODES = {"pass": NODE_PASS, "plain": NODE_PLAIN, "turns": NODE_TURNS, "stages": NODE_STAGES}
LAYOUTS = {"software": LAYOUT_SOFTWARE, "rss": LAYOUT_RSS}
IDLE = {"spin": IDLE_SPIN, "yield": IDLE_YIELD, "sleep": IDLE_SLEEP}
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


cdef void fill_traffic(generator_config *config, str traffic, uint32_t flows, uint32_t vips, uint8_t version,
                       uint16_t size, uint32_t new_permille):
    config.traffic, config.flows, config.vips = TRAFFIC[traffic], flows, vips
    config.version, config.bytes, config.new_permille = version, size, new_permille


cdef object failed(int error, str what):
    return OSError(-error, f"{what}: {os.strerror(-error)}")


cdef class Bench:
    """Workers with so many flows, vips and backends, and the traffic that each is to see."""

    cdef bench *handle

    def __cinit__(self, *, str traffic, uint32_t flows, uint32_t vips=100, uint32_t backends=100,
                  uint32_t table_size=65537, uint8_t version=4, uint16_t size=74, uint32_t new_permille=0,
                  uint32_t workers=1, bint cold=False, bint nic=False):
        cdef bench_config config
        cdef int error = 0
        fill_traffic(&config.generator, traffic, flows, vips, version, size, new_permille)
        config.backends, config.table_size, config.workers, config.cold = backends, table_size, workers, cold
        config.only_own = nic
        with nogil:
            self.handle = bench_new(&config, &error)
        if self.handle == NULL:
            raise failed(error, "the workers could not be set up")

    def run(self, uint32_t bursts):
        """So many bursts through each worker: worker_ns and floor_ns per packet, shares `met` and `forwarded`."""
        cdef bench_round r
        with nogil:
            bench_run(self.handle, bursts, &r)
        return {"worker_ns": r.worker_ns, "floor_ns": r.floor_ns, "packets": r.packets,
                "met": r.expected / r.packets, "forwarded": r.forwarded / r.packets}

    def close(self):
        """Give its memory back."""
        bench_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        bench_delete(self.handle)


cdef class Node:
    """A whole node on a port: "memory", or a DPDK device by its arguments."""

    cdef node *handle

    def __cinit__(self, *, str port, str traffic, uint32_t flows, uint32_t vips=100, uint32_t backends=100,
                  uint32_t table_size=65537, uint8_t version=4, uint16_t size=96, uint32_t new_permille=0,
                  uint32_t workers=1, uint32_t packets=16384, uint32_t ring_size=2048, str idle="spin", str layout="software"):
        cdef node_config config
        cdef int error = 0
        cdef bytes devargs = port.encode()
        fill_traffic(&config.generator, traffic, flows, vips, version, size, new_permille)
        config.devargs = NULL
        if port != "memory":
            config.devargs = devargs
        config.backends, config.table_size, config.workers = backends, table_size, workers
        config.packets, config.ring_size, config.idle = packets, ring_size, IDLE[idle]
        config.layout = LAYOUTS[layout]
        with nogil:
            self.handle = node_new(&config, &error)
        if self.handle == NULL:
            raise failed(error, f"no node on port {port}")

    def open_flows(self):
        """On a port without a source: make all flows known and established."""
        with nogil:
            node_open_flows(self.handle)

    def start(self, str mode, list lcores, *, bint lay=True):
        """Begin a round: "pass", "plain", "turns" or "stages"."""
        cdef unsigned int numbers[34]
        cdef node_mode chosen = MODES[mode]
        cdef int rc
        for i, lcore in enumerate(lcores):
            numbers[i] = lcore
        with nogil:
            rc = node_start(self.handle, chosen, numbers, lay)
        if rc < 0:
            raise failed(rc, f"the node does not start in mode {mode}")

    def stop(self):
        """End the round and say what it was."""
        cdef node_round r
        with nogil:
            node_stop(self.handle, &r)
        return round_of(&r)

    def step(self, uint32_t turns):
        """So many turns of all stages on this thread."""
        cdef node_round r
        with nogil:
            node_step(self.handle, turns, &r)
        return round_of(&r)

    def close(self):
        """Give its memory and port back; its source goes first."""
        node_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        node_delete(self.handle)


cdef dict round_of(const node_round *r):
    return {"seconds": r.seconds, "interrupted": r.interrupted, "packets": r.packets,
            "forwarded": r.forwarded, "dropped": r.dropped, "known": r.known, "steering_ns": r.stage_ns[0], "workers_ns": r.stage_ns[1], "muxing_ns": r.stage_ns[2],
            "turn_ns": r.stage_ns[0] + r.stage_ns[1] + r.stage_ns[2]}


cdef class Source:
    """Traffic for a node, on an lcore of its own; `devargs` is the device at the other end of the node's."""

    cdef source *handle
    cdef Node node

    def __cinit__(self, Node node, uint32_t lcore, str devargs=None):
        cdef bytes text = b"" if devargs is None else devargs.encode()
        cdef const char *pointer = NULL
        cdef int error = 0
        if devargs is not None:
            pointer = text
        self.node = node
        with nogil:
            self.handle = source_new(node.handle, pointer, lcore, &error)
        if self.handle == NULL:
            raise failed(error, "no traffic source")

    def open_flows(self, double packets_per_second, *, bint first):
        """Every flow once; the node runs."""
        with nogil:
            source_open_flows(self.handle, packets_per_second, first)

    def start(self, double packets_per_second):
        """Send at this rate, 0: as fast as it can."""
        source_start(self.handle, packets_per_second)

    def stop(self):
        """Stop sending, wait for what still comes back, and say what was."""
        cdef source_round r
        with nogil:
            source_stop(self.handle, &r)
        return {"seconds": r.seconds, "sent": r.sent, "refused": r.refused, "returned": r.returned,
                "median_ns": r.median_ns, "p99_ns": r.p99_ns, "p999_ns": r.p999_ns, "longest_ns": r.longest_ns}

    def close(self):
        """Give its port back."""
        source_delete(self.handle)
        self.handle = NULL

    def __dealloc__(self):
        source_delete(self.handle)
