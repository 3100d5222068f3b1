// Choose: the worker that a packet goes to. Steering asks for every packet, a lane for the few that RSS may have put
// on the wrong worker (lane.h).

#ifndef MAGLEV_CHOOSE_H
#define MAGLEV_CHOOSE_H

#include "egress.h"
#include "match.h"
#include "spread.h"
#include "stats.h"

enum { NO_WORKER = MAX_WORKERS }; // the matcher holds the packet, or it has ended

// Written by the stage that chooses, only.
struct chooser {
	const struct spread *spread;
	struct stage_stats *stats; // of the stage, for packets that end here
	struct rte_ring *collector;
	const struct egress *egress; // [MAX_PORTS]
	struct matcher matcher;    // of fragments
};

// The worker of a packet from outside, or NO_WORKER. `here`: in layout `rss` the worker that asks, which keeps what
// any may have and matches the fragments between its share of hosts; for steering 0.
uint32_t choose_worker(struct chooser *c, const struct state *s, struct rte_mbuf *m, uint32_t here);

// The clock moved: fragments that have waited too long are given up.
void choose_tick(struct chooser *c, uint32_t now);

// Let at most so many fragments wait for their first ones; none before this was called.
void choose_hold(struct chooser *c, uint64_t limit);

// Give the fragments that still wait back to the pool. For the control thread, once the stage has stopped.
void choose_end(struct chooser *c);

#endif
