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
	const struct backend *to;
	uint16_t piece_mtu; // longer than the way takes: cut into pieces of so many bytes; 0 = goes whole
};

static inline bool job_is_later_fragment(const struct job *job)
{
	return job->view.fragment && job->view.fragment_offset != 0;
}

// Each returns GO_ON, or the reason of the packet's fate; the caller still has the packet, unless it was answered.

// Headers -> view and vip (classify.c).
enum reason classify(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job);

// Vip and hash -> backend, in the packet's note and in job->to; the reason is always one of a fate (decide.c).
enum reason decide(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job);

// Outer headers into the headroom (wrap.c). GO_ON with job->piece_mtu set: wrap_in_pieces() comes next.
enum reason wrap(struct worker *w, struct rte_mbuf *m, struct job *job);

// Cut the packet and hand its pieces over to muxing. GO_ON: the packet is gone.
enum reason wrap_in_pieces(struct worker *w, struct rte_mbuf *m, struct job *job);

#endif
