#include "answer.h"
#include "checksum.h"
#include "icmp.h"
#include "job.h"
#include "lane.h"
#include "learn.h"
#include "plain.h"
#include "punt.h"

static bool is_vip_address(const struct state *s, const struct packet_view *v)
{
	return s != NULL && vip_table_owns(&s->vip_table, view_destination(v), view_address_length(v));
}

// No vip matched, or layer 4 is broken: whose fault that is depends on whether the address is a vip's.
static enum reason without_vip(struct worker *w, const struct state *s, struct rte_mbuf *m,
			       const struct packet_view *v, enum reason reason)
{
	enum reason learned;

	if (is_vip_address(s, v))
		return reason;
	learned = learn_path_mtu(w, s, v);
	if (learned != GO_ON)
		return learned;
	return punt(w, m, v);
}

// Ends here although its vip is known: what ends later has its vip from decide().
static enum reason of_vip(const struct state *s, struct rte_mbuf *m, int32_t position, enum reason reason)
{
	packet_note(m)->vip = s->vips[position].id;
	return reason;
}

// ICMP for a vip's address: errors go with the flow that they quote, echo requests are answered while a vip is served.
static enum reason classify_icmp(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	int32_t position;

	switch (icmp_kind(v)) {
	case ICMP_BROKEN:
		return REASON_icmp_cut;
	case ICMP_OTHER:
		return REASON_other_icmp;
	case ICMP_ECHO:
		if (v->ttl == 0)
			return REASON_ttl_zero;
		if (!vip_table_served(&s->vip_table, view_destination(v), view_address_length(v)))
			return REASON_echo_no_backend;
		return answer_echo(w, m, v);
	case ICMP_ERROR:
		break;
	}
	if (!icmp_quoted_flow(v))
		return REASON_quote_unknown;
	position = vip_table_find(&s->vip_table, view_destination(v), view_address_length(v), v->flow_protocol,
				  v->destination_port);
	if (position == VIP_NONE)
		return REASON_quote_not_vip;
	if (v->ttl == 0)
		return of_vip(s, m, position, REASON_ttl_zero);
	job->vip = &s->vips[position];
	return GO_ON;
}

// A fragment for a vip's address: steering has found its flow, or the node that will.
static enum reason classify_fragment(const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_note *note = packet_note(m);
	struct packet_view *v = &job->view;
	int32_t position;

	if (note->flags & PACKET_TO_NODE) {
		uint16_t node = note->backend;

		note->backend = NO_BACKEND;
		if (node >= s->cluster.node_count || node == s->cluster.self)
			return REASON_fragment_unmatched;
		job->vip = NULL;
		job->to = &s->cluster.nodes[node];
		flow_key_fill(&v->key, view_source(v), view_destination(v), view_address_length(v), 0, 0, v->protocol);
		return v->ttl == 0 ? REASON_ttl_zero : GO_ON;
	}
	if (note->flags & PACKET_MATCHED) {
		parse_later_fragment(v, note->source_port, note->destination_port, note->protocol);
		note->flags &= (uint8_t)~PACKET_MATCHED;
		note->vip = NO_VIP;
		note->backend = NO_BACKEND;
	}
	if (!v->has_ports)
		return v->fragment_offset == 0 ? REASON_fragment_no_flow : REASON_fragment_unmatched;
	position = vip_table_find(&s->vip_table, view_destination(v), view_address_length(v), v->protocol,
				  v->destination_port);
	if (position == VIP_NONE)
		return REASON_other_port;
	if (v->ttl == 0)
		return of_vip(s, m, position, REASON_ttl_zero);
	job->vip = &s->vips[position];
	return GO_ON;
}

// To a group, or to all.
static bool is_for_many(const struct rte_mbuf *m)
{
	return (*rte_pktmbuf_mtod(m, const uint8_t *) & 1) != 0;
}

// What is not plain, step by step; precedence of fates as in DESIGN 4.
static __rte_noinline enum reason classify_other(struct worker *w, const struct state *s, struct rte_mbuf *m,
						  struct job *job)
{
	struct packet_view *v = &job->view;
	enum parse_result l3 = parse_ip(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, v), l4;
	bool elsewhere = is_for_others(w->egress, m);
	int32_t position;

	if (elsewhere && !is_for_many(m))
		return REASON_other_station;
	if (l3 == PARSE_NOT_IP)
		return punt(w, m, NULL);
	if (l3 == PARSE_MALFORMED)
		return (enum reason)v->fault;
	l4 = parse_transport(v);
	if (elsewhere)
		return is_vip_address(s, v) ? REASON_other_station : punt(w, m, v);
	if (l4 == PARSE_MALFORMED && !v->has_ports)
		return without_vip(w, s, m, v, (enum reason)v->fault);
	if (v->fragment && l4 == PARSE_OK && is_vip_address(s, v))
		return classify_fragment(s, m, job);
	if (icmp_is(v) && is_vip_address(s, v))
		return classify_icmp(w, s, m, job);
	if (s == NULL || !v->has_ports)
		return without_vip(w, s, m, v, REASON_other_protocol);
	position = vip_table_find(&s->vip_table, view_destination(v), view_address_length(v), v->protocol,
				  v->destination_port);
	if (position == VIP_NONE)
		return without_vip(w, s, m, v, REASON_other_port);
	if (l4 == PARSE_MALFORMED)
		return of_vip(s, m, position, (enum reason)v->fault);
	if (v->ttl == 0)
		return of_vip(s, m, position, REASON_ttl_zero);
	job->vip = &s->vips[position];
	return GO_ON;
}

static void finish_checksum(struct rte_mbuf *m, const struct packet_view *v)
{
	if (v->has_ports && !v->fragment && v->available >= v->ip_length && checksum_looks_unfinished(v))
		checksum_finish(rte_pktmbuf_mtod_offset(m, uint8_t *, v->l3), v);
}

static_assert((int)PLAIN_LANES >= (int)BURST, "a burst has a lane for each packet");

static inline void hash_lanes(const struct worker *w, struct plain *p)
{
	if (p->count == 0)
		return;
	plain_finish(p, &w->key);
	for (uint32_t i = 0; i < p->count; i++)
		conn_prefetch(&w->table, p->hash[i]);
}

// Views, vips and hashes of the lanes that are plain. Returns how many have a vip.
static inline uint32_t match_lanes(const struct state *s, const struct plain *p, uint8_t version, struct job *jobs)
{
	uint32_t matched = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		struct job *job = &jobs[p->position[i]];
		struct vip_entry wanted = {.key = p->vip_key[i]};
		int32_t position;

		job->plain = p->good[i] != 0;
		if (unlikely(!job->plain))
			continue;
		if (version == 6) {
			wanted.rest[0] = p->key[3][i];
			wanted.rest[1] = p->key[2][i] >> 32;
		}
		position = vip_table_find_key(&s->vip_table, &wanted, version == 4 ? 4 : 16);
		plain_view(p, i, version, &job->view);
		job->hash = p->hash[i];
		job->outer_word = p->outer_word[i];
		job->outer_sum = (uint32_t)p->outer_sum[i];
		job->vip = position == VIP_NONE ? NULL : &s->vips[position];
		matched += position != VIP_NONE;
	}
	return matched;
}

static inline enum reason classify(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	enum reason reason;

	if (job->plain)
		return job->vip != NULL ? GO_ON : without_vip(w, s, m, &job->view, REASON_other_port);
	reason = classify_other(w, s, m, job);
	if (reason == GO_ON) {
		job->hash = flow_hash(&w->key, &job->view.key);
		conn_prefetch(&w->table, job->hash);
	}
	return reason;
}

// One by one, when not all are plain and for a vip.
static __rte_noinline uint16_t classify_each(struct worker *w, const struct state *s, struct rte_mbuf **burst,
					      struct job *jobs, uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		enum reason reason;

		if (!jobs[i].plain && w->lane != NULL && !lane_keeps(w->lane, burst[i]))
			continue;
		reason = classify(w, s, burst[i], &jobs[i]);
		if (reason != GO_ON) {
			worker_end(w, burst[i], reason);
			continue;
		}
		if (kept != i) {
			jobs[kept] = jobs[i];
			burst[kept] = burst[i];
		}
		kept++;
	}
	return kept;
}

// Views, vips and hashes of the packets that are plain and for a vip; returns how many. Their buckets are prefetched.
static inline uint32_t classify_plain(const struct worker *w, const struct state *s, struct rte_mbuf **burst,
				      struct job *jobs, uint16_t n)
{
	const bool only_own = w->only_own;
	struct plain four, six;

	plain_begin(&four, 4);
	plain_begin(&six, 6);
	for (uint16_t i = 0; i < n; i++)
		if (likely(!only_own || !is_for_others(w->egress, burst[i])))
			plain_take(&four, &six, rte_pktmbuf_mtod(burst[i], const uint8_t *), burst[i]->data_len,
				   burst[i]->pkt_len, (uint8_t)i);
	hash_lanes(w, &four);
	hash_lanes(w, &six);
	return match_lanes(s, &four, 4, jobs) + match_lanes(s, &six, 6, jobs);
}

uint16_t classify_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		packet_prefetch(burst[i]);
		jobs[i].plain = false;
	}
	if (unlikely(s == NULL || classify_plain(w, s, burst, jobs, n) < n))
		n = classify_each(w, s, burst, jobs, n);
	if (unlikely(w->unfinished))
		for (uint16_t i = 0; i < n; i++)
			if (w->egress[burst[i]->port].unfinished)
				finish_checksum(burst[i], &jobs[i].view);
	return n;
}
