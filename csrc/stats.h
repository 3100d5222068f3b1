// Counters of a stage: one writer each, read relaxed by the control thread, summed there.

#ifndef MAGLEV_STATS_H
#define MAGLEV_STATS_H

#include <stdint.h>

#include <rte_ring.h>

#include "fate.h"
#include "packet_pool.h"

struct stage_stats {
	uint64_t reasons[REASON_COUNT]; // packets whose road ended in this stage, by reason
	uint64_t released;              // packets this stage gave back to the pool, or to the canary's collector
	uint64_t made;                  // packets this stage put on the road beside those it got: pieces
	uint64_t turns;                 // loop counter: moves also when idle, so a stuck lcore is seen
	struct rte_ring *trace;         // where the ends of packets are told (trace.h); NULL: nobody asks
} __attribute__((aligned(64)));

// Packets and bytes (of the inner IP packet) that were forwarded.
struct traffic {
	uint64_t packets;
	uint64_t bytes;
};

static inline void count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED); // single writer
}

static inline uint64_t peek(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

// Packets are back. Release, and acquire in steering: who sees a piece come back sees that it was made.
static inline void count_released(struct stage_stats *stats, uint64_t n)
{
	__atomic_store_n(&stats->released, stats->released + n, __ATOMIC_RELEASE); // single writer
}

// Give a packet of our own back to the control thread, with the reason in its note.
void packet_collect(struct rte_ring *collector, struct rte_mbuf *m, enum reason reason);

// Take a packet off the road: count its reason and free it. One of our own goes to `collector` instead, uncounted; a
// piece before its packet's last one is not counted.
void packet_end(struct stage_stats *stats, struct rte_ring *collector, struct rte_mbuf *m, enum reason reason);

const char *fate_name(enum fate fate);
enum fate_kind fate_kind(enum fate fate);
const char *reason_name(enum reason reason);
const char *reason_text(enum reason reason);
enum fate reason_fate(enum reason reason);

#endif
