// Match: finds the node, the flow and so the worker of each fragment for a vip. Holds those that come before the first.
//
// Fragments but the first have no ports. So all fragments between two hosts are matched by one node of the cluster, to
// which the others send them on in GRE, marked, so that none is sent on twice (DESIGN 7).

#ifndef MAGLEV_MATCH_H
#define MAGLEV_MATCH_H

#include "fragment.h"
#include "packet_pool.h"
#include "state.h"

enum { MATCH_HELD = REASON_COUNT }; // beside the reasons: the matcher has the packet now

// A first fragment of the burst under way: others of its datagram wait.
struct match_found {
	uint64_t datagram;
	struct flow_key flow;
};

// Written by the stage that matches, only.
struct matcher {
	struct fragment_table table;
	struct hash_key key;
	uint32_t now; // coarse clock, seconds
	uint16_t found_count;
	struct match_found found[BURST];
};

// Whether the packet is one that another node has sent here to be matched. Then it is unwrapped, its view made anew, and
// `reason` GO_ON, or why it ends here.
bool match_unwrap(const struct state *s, struct rte_mbuf *m, struct packet_view *v, enum reason *reason);

// A fragment for a vip's address, as parse_transport() left its view. GO_ON: it goes to the worker of v->key, which is
// filled; MATCH_HELD; or the reason why it ends here.
enum reason match_fragment(struct matcher *x, const struct state *s, struct rte_mbuf *m, struct packet_view *v);

// Due when a packet is held: the one that has waited longest, when it must make room, else NULL.
struct rte_mbuf *match_excess(struct matcher *x);

// A held packet whose first fragment was found in this burst: it goes the way of `found`. NULL when there is none.
struct rte_mbuf *match_next(struct matcher *x, const struct match_found *found);

#endif
