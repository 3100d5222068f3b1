// The whole road in one structure: the stages of either layout, the rings that join them, what they share.
// Private to the data plane; the binding sees dataplane.h.

#ifndef MAGLEV_ROAD_H
#define MAGLEV_ROAD_H

#include "dataplane.h"
#include "lane.h"
#include "muxing.h"
#include "steering.h"
#include "worker.h"

enum { MAX_NEXT_HOPS = 1 << 16, OWN_PACKETS = 64, MAX_CONNECTIONS = 1 << 30 };
enum { HELD_SHARE = 8 }; // of the packets on the road, one in so many may be a fragment that waits

struct dataplane {
	struct dataplane_config config;
	struct packet_pool *pool;
	uint16_t port_count;
	struct spread spread;
	struct steering steering;    // layout `software`
	struct muxing muxing;        // likewise
	struct lane *lanes;          // [config.workers], layout `rss`; NULL: layout `software`
	struct worker *workers;      // [config.workers], in DPDK memory
	void *tables[MAX_WORKERS];   // connection tables of our own, NULL when they are the caller's
	struct state_slot state;
	struct next_hop *next_hops;  // [MAX_NEXT_HOPS]
	uint64_t *path_mtus;         // [CONN_MAX_BACKENDS], written by workers (path_mtu.h)
	struct egress egress[MAX_PORTS];
	struct rte_ring *past;       // steering -> muxing: what a kernel sends; NULL: no port has a kernel's side
	struct rte_ring *own;        // control thread -> steering; lanes have one each
	struct rte_ring *collector;  // any stage -> control thread
	struct rte_ring *trace;      // any stage -> control thread: records of trace.h; NULL: not asked for
	uint64_t numbered;           // packets that the trace has numbers for, in layout `rss`
	unsigned int lcores[MAX_WORKERS + 2];
	bool running;
	bool stop; // set by the control thread, read by all stages
};

static inline bool road_by_rss(const struct dataplane *d)
{
	return d->config.layout == LAYOUT_RSS;
}

// Stages on lcores of their own: in layout `software` steering and muxing beside the workers.
static inline uint32_t road_stages(const struct dataplane_config *config)
{
	return config->layout == LAYOUT_RSS ? config->workers : config->workers + 2;
}

// Whatever counts departures: one, or in layout `rss` one of each lane.
static inline uint32_t road_muxings(const struct dataplane *d)
{
	return road_by_rss(d) ? d->config.workers : 1;
}

static inline const struct muxing *road_muxing(const struct dataplane *d, uint32_t i)
{
	return road_by_rss(d) ? &d->lanes[i].muxing : &d->muxing;
}

// Whatever matches fragments, as many as muxings.
static inline const struct chooser *road_chooser(const struct dataplane *d, uint32_t i)
{
	return road_by_rss(d) ? &d->lanes[i].chooser : &d->steering.chooser;
}

// Packets that the pool must have before any may wait in a ring.
uint32_t road_need(const struct dataplane_config *config, const struct packet_pool *pool, struct port **ports,
		   uint16_t count);

// Build everything; `d` has its config, pool and port count. Returns 0 or a negative errno; road_free() is due then too.
int road_create(struct dataplane *d, struct port **ports);

// Give back the packets on the road, then what was built. Nothing runs any more.
void road_free(struct dataplane *d);

#endif
