// The whole road in one structure: the stages of layout `software`, the rings that join them, what they share.
// Private to the data plane; the binding sees dataplane.h.

#ifndef MAGLEV_ROAD_H
#define MAGLEV_ROAD_H

#include "dataplane.h"
#include "muxing.h"
#include "steering.h"
#include "worker.h"

enum { MAX_NEXT_HOPS = 1 << 16, OWN_PACKETS = 64, MAX_CONNECTIONS = 1 << 30 };
enum { HELD_SHARE = 8 }; // of the packets on the road, one in so many may be a fragment that waits

struct dataplane {
	struct dataplane_config config;
	struct packet_pool *pool;
	struct steering steering;
	struct muxing muxing;
	struct worker *workers;     // [config.workers], in DPDK memory
	void *tables[MAX_WORKERS]; // connection tables of our own, NULL when they are the caller's
	struct state_slot state;
	struct next_hop *next_hops; // [MAX_NEXT_HOPS]
	uint64_t *path_mtus;        // [CONN_MAX_BACKENDS], written by workers (path_mtu.h)
	struct egress egress[MAX_PORTS];
	struct rte_ring *own;       // control thread -> steering
	struct rte_ring *collector; // any stage -> control thread
	struct rte_ring *trace;     // any stage -> control thread: records of trace.h; NULL: not asked for
	unsigned int lcores[MAX_WORKERS + 2];
	bool running;
	bool stop; // set by the control thread, read by all stages
};

#endif
