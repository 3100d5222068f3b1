// Worker: parse, vip match, connection table, Maglev table, outer headers. The same function in every layout.

#ifndef MAGLEV_WORKER_H
#define MAGLEV_WORKER_H

#include "conn_table.h"
#include "egress.h"
#include "flow.h"
#include "packet_pool.h"
#include "path_mtu.h"
#include "state.h"
#include "stats.h"

// What is known of a next hop in one word, so that a change is one store: MAC in the low six bytes as it stands in a
// frame, then the port, then 1 when resolved. Written by a control thread, read by workers.
struct next_hop {
	uint64_t word;
};

// Everything here is written by the worker's own lcore, but for `flush`.
struct worker {
	struct stage_stats stats;
	struct conn_table table;
	struct hash_key key;
	const struct state_slot *state;
	const struct next_hop *next_hops;
	const struct egress *egress; // [MAX_PORTS]
	bool unfinished;             // one of them says so
	bool only_own;               // likewise
	const struct packet_pool *pool;
	uint64_t *path_mtus;         // [CONN_MAX_BACKENDS], by stable index; all workers' (path_mtu.h)
	struct rte_ring *in;         // from steering; NULL in layout `rss`
	struct rte_ring *out;        // to muxing; NULL in layout `rss`
	struct muxing *muxing;       // of its own, in layout `rss`
	struct lane *lane;           // that it is part of, in layout `rss`
	struct rte_ring *collector;
	uint32_t now;                // coarse clock, seconds
	uint32_t sweep_left;         // buckets of the sweep still to do in this second
	uint16_t ip_id;              // next outer IPv4 id; workers count in steps, so that no two use the same one
	uint16_t ip_id_step;
	uint32_t fragment_id;        // next outer IPv6 fragment id, likewise
	uint32_t echoes_left;        // of this second; apart from the errors, so that a flood of pings stops no error
	uint32_t errors_left;
	uint32_t punts_left;         // likewise, to the kernel's side of a port
	uint32_t routing_punts_left;
	uint16_t answer_count;
	struct rte_mbuf *answers[BURST]; // of this turn, to be sent back (answer.h) or to the kernel (punt.h)
	uint32_t flush_at; // bucket where the flush under way goes on
	uint32_t flush; // backend + 1 to be forgotten: set by a control thread, cleared by the worker
} __attribute__((aligned(64)));

// One turn: a burst from `in`, through the passes, to `out`. Returns the packets handled; 0 means idle.
uint32_t worker_turn(struct worker *w);

// For the passes (job.h). Take a packet off the road here, unless it is among the answers: then muxing counts it.
void worker_end(struct worker *w, struct rte_mbuf *m, enum reason reason);

// Hand packets over to muxing; what finds no room ends.
void worker_pass_on(struct worker *w, struct rte_mbuf **packets, uint16_t n);

// The two parts of a turn that a lane calls itself: what is due once a turn, and a burst of any number of packets, at
// most BURST, through the passes and on.
void worker_housekeeping(struct worker *w);
void worker_burst(struct worker *w, struct rte_mbuf **burst, uint16_t n);

// The clock moved: a new second's share of the sweep is due.
void worker_tick(struct worker *w, uint32_t now);

#endif
