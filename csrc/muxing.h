// Muxing: from the workers to the ports' transmit rings and out; here forwarded packets get their fate counted.
// One stage for all workers, or in layout `rss` a part of each worker's lane, with queues of its own.

#ifndef MAGLEV_MUXING_H
#define MAGLEV_MUXING_H

#include "packet_ring.h"
#include "stats.h"

// Written by one lcore only: muxing's or the lane's.
struct muxing {
	struct stage_stats stats;
	struct transmit_ring rings[MAX_PORTS];
	struct port *ports[MAX_PORTS];
	uint16_t port_count;
	uint16_t queue;           // of each port
	uint16_t source_count;    // 0 in a lane: there the worker calls muxing_take() and muxing_fits()
	struct rte_ring *from[MAX_WORKERS + 1]; // each worker, then steering where a kernel sends by a port
	struct rte_ring *collector;
	bool lost[MAX_WORKERS + 1]; // a piece of the packet that this ring is in the middle of found no room
	uint64_t pieces;          // that the ports took, each packet's last one not counted
	struct traffic *vips;     // [CONN_MAX_VIPS], by stable index
	struct traffic *backends; // [CONN_MAX_BACKENDS], by stable index
};

// One turn: a burst from each source, then what the ports take. Returns the packets moved; 0 means idle.
uint32_t muxing_turn(struct muxing *x);

// In a lane: place what the worker passes on. What finds no room ends here.
void muxing_take(struct muxing *x, struct rte_mbuf **packets, uint16_t n);

// In a lane: whether so many packets to a port find room, if need be behind others that leave first.
bool muxing_fits(struct muxing *x, uint16_t port, uint32_t n);

// In a lane, at the end of its turn: what the ports take. Returns the packets moved.
uint32_t muxing_send(struct muxing *x);

#endif
