// Steering: from the ports' receive rings to the workers, by a hash of the 5-tuple. In layout `rss` NICs do that.

#ifndef MAGLEV_STEERING_H
#define MAGLEV_STEERING_H

#include "choose.h"
#include "packet_ring.h"
#include "stats.h"

// Written by the steering lcore only, but for `own`, whose other end is a control thread.
struct steering {
	struct stage_stats stats;
	struct receive_ring rings[MAX_PORTS];
	struct port *ports[MAX_PORTS];
	uint16_t port_count;
	uint16_t worker_count;
	struct rte_ring *to_muxing;               // what a kernel sends; NULL: no port has a kernel's side
	uint16_t next_worker;                     // where the round robin of spilled packets goes on
	struct rte_ring *to_worker[MAX_WORKERS];
	struct rte_ring *own;                     // packets of our own making, to be put on the road
	struct rte_ring *collector;
	const struct state_slot *state;
	struct chooser chooser;
	uint64_t own_received;                    // how many of them were
	uint64_t numbered;                        // packets that the trace has numbers for
	uint64_t capacity;                        // packets of the pool that may be on the road at once
	const struct stage_stats *freeing[MAX_WORKERS + 2]; // whose `released` brings credit back, and `made` takes it
	uint16_t freeing_count;
};

// One turn: receive a burst per port and hand it over. Returns the packets handled; 0 means idle.
uint32_t steering_turn(struct steering *s);

#endif
