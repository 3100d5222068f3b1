#include <netinet/in.h>

#include "icmp.h"
#include "job.h"
#include "learn.h"

static enum conn_state first_state(const struct packet_view *v)
{
	if (v->protocol != IPPROTO_TCP)
		return CONN_DATAGRAM;
	return (v->tcp_flags & TCP_FIN) != 0 ? CONN_CLOSING : CONN_HALF_OPEN;
}

// Seek where the Maglev table says which backend, and bring that near.
static void seek_slot(const struct worker *w, struct job *job)
{
	const struct vip *vip = job->vip;
	uint64_t hash;

	job->slot = NULL;
	if (vip == NULL || vip->table_size == 0)
		return;
	hash = vip->client_affinity ? flow_client_hash(&w->key, &job->view.key) : job->hash;
	job->slot = &vip->slots[flow_slot(hash, vip->table_size)];
	rte_prefetch0(job->slot);
}

// Make the flow's entry; `why` it is due.
static inline enum reason remember(struct worker *w, const struct state *s, const struct job *job, uint16_t backend,
				   enum reason why, bool absent)
{
	const struct conn_entry entry = {
		.backend = backend,
		.generation = s->generations[backend],
		.vip = job->vip->id,
		.state = first_state(&job->view),
	};

	if (absent ? conn_insert_absent(&w->table, job->hash, &entry, w->now)
		   : conn_insert(&w->table, job->hash, &entry, w->now))
		return why;
	return REASON_table_full;
}

// Likewise, for a vip with a load bound. Only the first packet of a TCP flow may be led past its slot: what comes after
// it finds the entry. Without an entry it goes where all nodes would send it.
static __rte_noinline enum reason remember_bounded(struct worker *w, const struct state *s, const struct job *job,
						   struct packet_note *note, enum reason why, bool absent)
{
	const struct packet_view *v = &job->view;
	const struct vip *vip = job->vip;
	bool begins = (v->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN && !v->fragment;
	uint16_t backend = note->backend;
	enum reason reason;

	if (begins)
		backend = load_bound_choose(vip->slots, vip->table_size, (uint32_t)(job->slot - vip->slots),
					    vip_over(vip, s));
	if (backend != note->backend)
		why = REASON_new_deflected;
	reason = remember(w, s, job, backend, why, absent);
	if (reason == why)
		note->backend = backend;
	return reason;
}

// The Maglev table's choice, remembered when it may be. `why`: the flow is new, or its entry no longer holds; `absent`: it
// has none at all.
static __rte_noinline enum reason decide_new(struct worker *w, const struct state *s, const struct job *job,
					     struct packet_note *note, enum reason why, bool absent)
{
	const struct vip *vip = job->vip;
	const struct packet_view *v = &job->view;

	if (job->slot == NULL)
		return REASON_no_backend;
	note->backend = *job->slot;
	if (icmp_is(v))
		return REASON_error_by_table; // about a flow that this worker does not know: nothing to remember
	if (job_is_later_fragment(job))
		return REASON_fragment_later; // its first one was remembered, or could not be
	if (note->flags & PACKET_OWN)
		return REASON_own_untracked;
	if (note->flags & PACKET_SPILLED)
		return REASON_spilled;
	if ((v->tcp_flags & TCP_RST) != 0)
		return REASON_reset_untracked; // the end of a flow is not worth an entry
	if (why == REASON_new_flow && !conn_fair(&w->table, vip->id, s->vip_count))
		return REASON_over_share;
	if (unlikely(vip->bounded))
		return remember_bounded(w, s, job, note, why, absent);
	return remember(w, s, job, *job->slot, why, absent);
}

// The connection table's backend while it may be used, else the Maglev table's.
static enum reason decide_flow(struct worker *w, const struct state *s, const struct job *job, struct packet_note *note)
{
	struct conn_entry found;
	int way = CONN_ABSENT; // of our own packets none may be found

	note->vip = job->vip->id;
	if ((note->flags & PACKET_OWN) == 0)
		way = conn_lookup(&w->table, job->hash, job->vip->id, w->now, &found);
	if (way < 0)
		return decide_new(w, s, job, note, REASON_new_flow, way == CONN_ABSENT);
	if (conn_starts_anew(&found, job->view.tcp_flags))
		return decide_new(w, s, job, note, REASON_new_after_closing, false);
	if (!vip_may_use(job->vip, s, found.backend, found.generation))
		return decide_new(w, s, job, note, REASON_backend_left, false);
	note->backend = found.backend;
	if (icmp_is(&job->view))
		return REASON_error_known; // says nothing of how the flow fares
	if (job_is_later_fragment(job))
		return REASON_fragment_later;
	conn_seen(&w->table, job->hash, way, &found, job->view.tcp_flags, w->now);
	return REASON_known_flow;
}

static __rte_noinline enum reason decide_other(struct worker *w, const struct state *s, struct job *job,
						struct packet_note *note)
{
	enum reason reason;

	if (job->vip == NULL)
		return REASON_fragment_to_node; // classify() knows which
	reason = decide_flow(w, s, job, note);
	if (reason == REASON_no_backend)
		return reason;
	job->to = &s->backends[note->backend];
	if (!job->view.fragment)
		return reason;
	return job_is_later_fragment(job) ? REASON_fragment_later : REASON_fragment_first;
}

// What nearly every packet is: one more of a flow that goes on. False: decide_other() tells, and nothing is done yet.
static inline bool goes_on(struct worker *w, const struct state *s, struct job *job, struct packet_note *note)
{
	const struct packet_view *v = &job->view;
	enum conn_state state = v->protocol == IPPROTO_TCP ? CONN_ESTABLISHED : CONN_DATAGRAM;
	uint64_t *entry, word;
	uint16_t backend;

	if (!job->plain || note->flags != 0 || (v->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) != 0)
		return false;
	entry = conn_find(&w->table, job->hash, job->vip->id, state, w->now);
	if (entry == NULL)
		return false;
	word = *entry;
	backend = conn_word_backend(word);
	if (!vip_may_use(job->vip, s, backend, conn_word_generation(word)))
		return false;
	conn_stamp(entry, w->now);
	packet_note_write(note, REASON_known_flow, job->vip->id, backend, (uint16_t)v->ip_length);
	job->to = &s->backends[backend];
	return true;
}

// Bring near what wrap_pass() will read.
static inline void prefetch_way(const struct worker *w, const struct job *job, const struct packet_note *note)
{
	rte_prefetch0(job->to);
	way_prefetch(w, note->backend, job->view.ip_length);
}

// The packets at the `count` positions `others`, in order. Those that end leave the burst.
static __rte_noinline uint16_t decide_others(struct worker *w, const struct state *s, struct rte_mbuf **burst,
					      struct job *jobs, uint16_t n, const uint8_t *others, uint16_t count)
{
	uint16_t kept = 0, ended = 0;

	for (uint16_t k = 0; k < count; k++) {
		struct rte_mbuf *m = burst[others[k]];
		struct job *job = &jobs[others[k]];
		enum reason reason = decide_other(w, s, job, packet_note(m));

		if (reason == REASON_no_backend) {
			worker_end(w, m, reason);
			burst[others[k]] = NULL;
			ended++;
			continue;
		}
		packet_note(m)->reason = (uint8_t)reason;
		if ((packet_note(m)->flags & PACKET_OWN) == 0)
			packet_note(m)->bytes = (uint16_t)job->view.ip_length;
		prefetch_way(w, job, packet_note(m));
	}
	for (uint16_t i = 0; ended > 0 && i < n; i++) {
		if (burst[i] == NULL)
			continue;
		if (kept != i) {
			jobs[kept] = jobs[i];
			burst[kept] = burst[i];
		}
		kept++;
	}
	return n - ended;
}

// First the many that go on; what the others need comes near meanwhile.
uint16_t decide_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs, uint16_t n)
{
	uint8_t others[BURST];
	uint16_t count = 0;

	for (uint16_t i = 0; i < n; i++) {
		struct packet_note *note = packet_note(burst[i]);

		if (likely(goes_on(w, s, &jobs[i], note))) {
			prefetch_way(w, &jobs[i], note);
			continue;
		}
		conn_prefetch_next(&w->table, jobs[i].hash);
		seek_slot(w, &jobs[i]);
		others[count++] = (uint8_t)i;
	}
	return likely(count == 0) ? n : decide_others(w, s, burst, jobs, n, others, count);
}
