// Lane: the whole road of one worker in layout `rss`, run to completion on one lcore: from its queue of each port
// through the worker's passes to its queue of each port, with no ring between stages.
//
// The NICs put each flow's packets on one lane. What they cannot know goes to the right one by a small ring, one for
// each ordered pair of lanes: ICMP errors to the worker of the flow that they quote, fragments to the worker that
// matches those between their hosts, and from there to the worker of their flow. So do frames that a NIC may not see
// through. A ring that is full costs the packet, not the lane's time.

#ifndef MAGLEV_LANE_H
#define MAGLEV_LANE_H

#include "choose.h"
#include "muxing.h"
#include "worker.h"

enum { PAIR_RING = 128 }; // packets between two lanes, at most one less: all early fragments of a datagram find room

// Packets that came by one port; processed <= received <= processed + BURST.
struct arrivals {
	uint64_t received;
	uint64_t processed; // went through the worker, or on to another lane
};

// Written by its own lcore only, but for `own`, whose other end is a control thread, and `numbered`.
struct lane {
	struct worker *worker;
	uint16_t index; // of the worker, and of its queue of each port
	uint16_t count; // of lanes
	struct rte_ring *to[MAX_WORKERS];   // NULL for itself
	struct rte_ring *from[MAX_WORKERS];
	struct rte_ring *own;               // packets of our own making, to be put on the road
	uint64_t own_received;              // how many of them were; they count as received by the first port
	uint64_t *numbered;                 // packets that the trace has numbers for, in all lanes; only with a trace
	struct arrivals arrivals[MAX_PORTS];
	struct muxing muxing;               // what leaves; it knows the ports
	struct chooser chooser;
	bool outside; // the burst under way came from a port: nobody has asked yet whether its packets are here by right
};

// One turn: a burst from each port and from each other lane. Returns the packets moved; 0 means idle.
uint32_t lane_turn(struct lane *l);

// Asked by the worker about what is not plain: whether the packet stays on this lane. False: another lane has it, the
// matcher holds it, or it has ended.
bool lane_keeps(struct lane *l, struct rte_mbuf *m);

// The clock moved.
void lane_tick(struct lane *l, uint32_t now);

#endif
