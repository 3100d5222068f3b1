// Muxing: from the workers to the ports' transmit rings and out; here forwarded packets get their fate counted.

#ifndef MAGLEV_MUXING_H
#define MAGLEV_MUXING_H

#include "packet_ring.h"
#include "stats.h"

// Written by the muxing lcore only.
struct muxing {
	struct stage_stats stats;
	struct transmit_ring rings[MAX_PORTS];
	struct port *ports[MAX_PORTS];
	uint16_t port_count;
	uint16_t worker_count;
	struct rte_ring *from_worker[MAX_WORKERS];
	struct rte_ring *collector;
	bool lost[MAX_WORKERS];   // a piece of the packet that this worker's ring is in the middle of found no room
	uint64_t pieces;          // that the ports took, each packet's last one not counted
	struct traffic *vips;     // [CONN_MAX_VIPS], by stable index
	struct traffic *backends; // [CONN_MAX_BACKENDS], by stable index
};

// One turn: a burst from each worker, then what the ports take. Returns the packets moved; 0 means idle.
uint32_t muxing_turn(struct muxing *m);

#endif
