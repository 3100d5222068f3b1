// What the node learns from what reaches its tunnel source: the MTU of the way to a backend.

#ifndef MAGLEV_LEARN_H
#define MAGLEV_LEARN_H

#include "parse.h"
#include "worker.h"

// A packet that is not for a vip's address: when it is a too-big error about an outer packet to a backend of the
// state, the backend's MTU is lowered. Returns the reason of its fate, or GO_ON when it is nothing of the kind.
enum reason learn_path_mtu(const struct worker *w, const struct state *s, const struct packet_view *v);

// Nothing is ever learned for the index NO_BACKEND, which packets to another node have.

// Bring near what way_mtu() will read for an inner packet of this length.
static inline void way_prefetch(const struct worker *w, uint16_t index, uint32_t inner_length)
{
	if (inner_length > PATH_MTU_LEAST4 - ENCAP_IPV4)
		rte_prefetch0(&w->path_mtus[index]);
}

// What the way to a backend takes: the MTU of its port, or less where the packet of `length` bytes (outer headers
// included) is long enough to ask, and less was learned.
static inline uint32_t way_mtu(const struct worker *w, const struct backend *backend, uint16_t index,
			       const struct egress *egress, uint32_t length)
{
	uint32_t least = backend->outer.length == ENCAP_IPV4 ? PATH_MTU_LEAST4 : PATH_MTU_LEAST6;
	uint16_t learned = length > least ? path_mtu_get(&w->path_mtus[index], backend->generation, w->now) : 0;

	return learned != 0 && learned < egress->mtu ? learned : egress->mtu;
}

#endif
