#include "answer.h"
#include "icmp.h"
#include "job.h"
#include "learn.h"

static bool is_vip_address(const struct state *s, const struct packet_view *v)
{
	return s != NULL && vip_table_owns(&s->vip_table, view_destination(v), view_address_length(v));
}

// No vip matched, or layer 4 is broken: whose fault that is depends on whether the address is a vip's.
static enum reason without_vip(const struct worker *w, const struct state *s, const struct rte_mbuf *m,
			       const struct packet_view *v, enum reason reason)
{
	enum reason learned;

	if (is_vip_address(s, v))
		return reason;
	learned = learn_path_mtu(w, s, v);
	if (learned != GO_ON)
		return learned;
	return w->egress[m->port].punts ? REASON_punt_address : REASON_other_address;
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

// Precedence of fates as in DESIGN 4.
enum reason classify(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	bool plain = parse_plain(frame, m->data_len, m->pkt_len, v);
	enum parse_result l3 = plain ? PARSE_OK : parse_ip(frame, m->data_len, m->pkt_len, v), l4;
	int32_t position;

	if (l3 == PARSE_NOT_IP)
		return w->egress[m->port].punts ? REASON_punt_not_ip : REASON_not_ip;
	if (l3 == PARSE_MALFORMED)
		return (enum reason)v->fault;
	l4 = plain ? PARSE_OK : parse_transport(v);
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
