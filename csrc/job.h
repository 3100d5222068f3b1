// A packet between two passes of a worker, and what each pass does with one. In the order of the road.

#ifndef MAGLEV_JOB_H
#define MAGLEV_JOB_H

#include "parse.h"
#include "worker.h"

// Filled pass by pass.
struct job {
	struct packet_view view;
	const struct vip *vip; // NULL: to another node of the cluster
	uint64_t hash;         // flow hash
	const uint16_t *slot;  // of a packet that does not just go on: in the Maglev table; NULL: the vip has none
	const struct backend *to;
	uint64_t outer_word; // of a plain packet: see encap.h
	uint32_t outer_sum;
	bool plain;         // nothing odd about it (plain.h)
	uint16_t piece_mtu; // longer than the way takes: cut into pieces of so many bytes; 0 = goes whole
};

static inline bool job_is_later_fragment(const struct job *job)
{
	return job->view.fragment && job->view.fragment_offset != 0;
}

// The passes. Each goes over the burst and returns how many packets go on: they are packed to the front, in order, and
// so are their jobs. The others end, were answered, or have gone to another lane.

// Headers -> views, vips and hashes; the buckets of the connection table are prefetched (classify.c).
uint16_t classify_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs, uint16_t n);

// Vips and hashes -> backends, in the packets' notes and in the jobs (decide.c).
uint16_t decide_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs, uint16_t n);

// Outer headers into the headroom. What is cut goes on from here, behind what came before it (wrap.c).
uint16_t wrap_pass(struct worker *w, struct rte_mbuf **burst, struct job *jobs, uint16_t n);

#endif
