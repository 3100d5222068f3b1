#include "worker.h"

#include <netinet/in.h>

#include <rte_ether.h>

#include "answer.h"
#include "checksum.h"
#include "icmp.h"
#include "learn.h"
#include "parse.h"
#include "pieces.h"

enum {
	ANSWERS_PER_SECOND = 1000, // of each kind
	SWEEP_SECONDS = 60,    // a whole round of the connection table
	FLUSH_PER_TURN = 256, // buckets, likewise
	SWEEP_PER_TURN = 16,   // buckets, so that a turn stays short
	IPV6_LEAST_MTU = 1280, // of every link, so nobody makes smaller packets of larger ones
};

// A packet between two passes.
struct job {
	struct packet_view view;
	const struct vip *vip; // NULL: to another node of the cluster
	uint64_t hash;
	const struct backend *to;
	uint16_t piece_mtu; // longer than the way takes: cut into pieces of so many bytes; 0 = goes whole
};

// Take a packet off the road here, unless it is among the answers: then muxing counts it.
static void end(struct worker *w, struct rte_mbuf *m, enum reason reason)
{
	if (reason != REASON_echo_answered && reason != REASON_too_big_answered)
		packet_end(&w->stats, w->collector, m, reason);
}

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
		if (node >= s->cluster.node_count)
			return REASON_fragment_unmatched;
		job->vip = NULL;
		job->to = &s->cluster.nodes[node];
		flow_key_fill(&v->key, view_source(v), view_destination(v), view_address_length(v), 0, 0, v->protocol);
		return v->ttl == 0 ? REASON_ttl_zero : GO_ON;
	}
	if (note->flags & PACKET_MATCHED) {
		parse_later_fragment(v, note->source_port, note->destination_port, note->protocol);
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
static enum reason classify(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	enum parse_result l3 = parse_ip(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, v);
	enum parse_result l4;
	int32_t position;

	if (l3 == PARSE_NOT_IP)
		return w->egress[m->port].punts ? REASON_punt_not_ip : REASON_not_ip;
	if (l3 == PARSE_MALFORMED)
		return (enum reason)v->fault;
	l4 = parse_transport(v);
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

// Headers -> views and vips. Packets that go on are packed to the front and their buckets prefetched; the others end.
static uint16_t parse_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs,
			   uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < n; i++) {
		struct job *job = &jobs[kept];
		enum reason reason = classify(w, s, burst[i], job);

		if (reason != GO_ON) {
			end(w, burst[i], reason);
			continue;
		}
		if (w->egress[burst[i]->port].unfinished)
			finish_checksum(burst[i], &job->view);
		job->hash = flow_hash(&w->key, &job->view.key);
		conn_prefetch(&w->table, job->hash);
		burst[kept++] = burst[i];
	}
	return kept;
}

static bool is_later_fragment(const struct packet_view *v)
{
	return v->fragment && v->fragment_offset != 0;
}

static enum conn_state first_state(const struct packet_view *v)
{
	if (v->protocol != IPPROTO_TCP)
		return CONN_DATAGRAM;
	return (v->tcp_flags & TCP_FIN) != 0 ? CONN_CLOSING : CONN_HALF_OPEN;
}

static uint16_t by_table(const struct worker *w, const struct job *job)
{
	const struct vip *vip = job->vip;
	uint64_t hash = vip->client_affinity ? flow_client_hash(&w->key, &job->view.key) : job->hash;

	return vip->slots[flow_slot(hash, vip->table_size)];
}

// The Maglev table's choice, remembered when it may be. `why`: the flow is new, or its entry no longer holds.
static enum reason decide_new(struct worker *w, const struct state *s, const struct job *job,
			      struct packet_note *note, enum reason why)
{
	const struct vip *vip = job->vip;
	const struct packet_view *v = &job->view;
	struct conn_entry entry = {.vip = vip->id, .state = first_state(v)};

	if (vip->table_size == 0)
		return REASON_no_backend;
	note->backend = by_table(w, job);
	if (icmp_is(v))
		return REASON_error_by_table; // about a flow that this worker does not know: nothing to remember
	if (is_later_fragment(v))
		return REASON_fragment_later; // its first one was remembered, or could not be
	if (note->flags & PACKET_OWN)
		return REASON_own_untracked;
	if (note->flags & PACKET_SPILLED)
		return REASON_spilled;
	if ((v->tcp_flags & TCP_RST) != 0)
		return REASON_reset_untracked; // the end of a flow is not worth an entry
	if (why == REASON_new_flow && !conn_fair(&w->table, vip->id, s->vip_count))
		return REASON_over_share;
	entry.backend = note->backend;
	entry.generation = s->backends[note->backend].generation;
	return conn_insert(&w->table, job->hash, &entry, w->now) ? why : REASON_table_full;
}

// The connection table's backend while it may be used, else the Maglev table's.
static enum reason decide(struct worker *w, const struct state *s, const struct job *job, struct packet_note *note)
{
	struct conn_entry found;
	int way = -1;

	note->vip = job->vip->id;
	if ((note->flags & PACKET_OWN) == 0)
		way = conn_lookup(&w->table, job->hash, job->vip->id, w->now, &found);
	if (way < 0)
		return decide_new(w, s, job, note, REASON_new_flow);
	if (conn_starts_anew(&found, job->view.tcp_flags))
		return decide_new(w, s, job, note, REASON_new_after_closing);
	if (!vip_may_use(job->vip, s, found.backend, found.generation))
		return decide_new(w, s, job, note, REASON_backend_left);
	note->backend = found.backend;
	if (icmp_is(&job->view))
		return REASON_error_known; // says nothing of how the flow fares
	if (is_later_fragment(&job->view))
		return REASON_fragment_later;
	conn_seen(&w->table, job->hash, way, &found, job->view.tcp_flags, w->now);
	return REASON_known_flow;
}

// Vips and hashes -> backends, in the packets' notes.
static uint16_t decide_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs,
			    uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		struct packet_note *note = packet_note(burst[i]);
		bool to_node = jobs[i].vip == NULL;
		enum reason reason = to_node ? REASON_fragment_to_node : decide(w, s, &jobs[i], note);

		if (reason == REASON_no_backend) {
			end(w, burst[i], reason);
			continue;
		}
		if (jobs[i].view.fragment && !to_node)
			reason = is_later_fragment(&jobs[i].view) ? REASON_fragment_later : REASON_fragment_first;
		note->reason = (uint8_t)reason;
		if (!to_node)
			jobs[i].to = &s->backends[note->backend];
		rte_prefetch0(jobs[i].to);
		way_prefetch(w, note->backend, jobs[i].view.ip_length);
		if (kept != i) {
			jobs[kept] = jobs[i];
			burst[kept] = burst[i];
		}
		kept++;
	}
	return kept;
}

// Longer than the way takes: with DF the sender is told, without the outer packet is cut (GO_ON). Nobody is told less
// than what IPv6 must carry, so an IPv6 packet of no more is cut too (RFC 2473 7.1, RFC 4213 3.2). An error is never
// answered by another; a canary has no sender.
static enum reason too_long(struct worker *w, struct rte_mbuf *m, struct packet_view *v, uint16_t outer, uint16_t mtu)
{
	uint32_t least = v->version == 4 ? 0 : IPV6_LEAST_MTU, fits = mtu - outer;
	uint32_t payload = v->ip_length + (outer == ENCAP_IPV4 ? ENCAP_IPV4 : ENCAP_IPV6 - 40);

	if (packet_note(m)->flags & PACKET_OWN)
		return REASON_too_big_silent;
	if (v->ip_length <= least)
		v->dont_fragment = false;
	if (!v->dont_fragment)
		return payload <= UINT16_MAX ? GO_ON : REASON_too_big_outer; // what the length field can say
	if (icmp_is(v) || is_later_fragment(v))
		return REASON_too_big_silent;
	return answer_too_big(w, m, v, fits > least ? fits : least);
}

static enum reason encapsulate(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	struct packet_note *note = packet_note(m);
	const struct backend *backend = job->to;
	uint64_t hop = __atomic_load_n(&w->next_hops[backend->next_hop].word, __ATOMIC_RELAXED);
	const struct egress *egress = &w->egress[hop >> 48 & (MAX_PORTS - 1)];
	uint16_t outer = backend->outer.length;
	uint16_t tags = v->l3 - RTE_ETHER_HDR_LEN;
	uint32_t mtu = way_mtu(w, backend, note->backend, egress, v->ip_length + outer);
	uint8_t *frame;

	if (hop >> 63 == 0)
		return REASON_no_neighbor;
	job->piece_mtu = v->ip_length + outer > mtu ? (uint16_t)mtu : 0;
	if (job->piece_mtu != 0) {
		enum reason reason = too_long(w, m, v, outer, job->piece_mtu);

		if (reason != GO_ON)
			return reason;
	}
	if (job->piece_mtu != 0 && job->vip == NULL && v->version == 4)
		return GO_ON; // cut first, see send_on_in_pieces()
	packet_cut(m, v->l3 + v->ip_length); // Ethernet padding is not the packet's
	frame = packet_prepend(m, outer);
	if (frame == NULL)
		return REASON_no_headroom;
	memcpy(frame, &hop, RTE_ETHER_ADDR_LEN);
	memcpy(frame + RTE_ETHER_ADDR_LEN, egress->mac, RTE_ETHER_ADDR_LEN);
	if (tags > 0) // it leaves by the VLAN it came from
		memmove(frame + 2 * RTE_ETHER_ADDR_LEN, frame + outer + 2 * RTE_ETHER_ADDR_LEN, tags);
	frame[v->l3 - 2] = outer == ENCAP_IPV4 ? 0x08 : 0x86;
	frame[v->l3 - 1] = outer == ENCAP_IPV4 ? 0x00 : 0xdd;
	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		m->ol_flags |= RTE_MBUF_F_TX_VLAN; // the driver took the tag off, and puts it back
	encap_write(&backend->outer, frame + v->l3, v, w->ip_id, job->hash & 0xfffff);
	w->ip_id = (uint16_t)(w->ip_id + (v->dont_fragment ? 0 : w->ip_id_step));
	if ((note->flags & PACKET_OWN) == 0)
		note->bytes = (uint16_t)v->ip_length;
	m->port = hop >> 48 & (MAX_PORTS - 1);
	return GO_ON;
}

static void pass_on(struct worker *w, struct rte_mbuf **packets, uint16_t n)
{
	unsigned int sent = rte_ring_sp_enqueue_burst(w->out, (void *const *)packets, n, NULL);

	for (; sent < n; sent++)
		packet_end(&w->stats, w->collector, packets[sent], REASON_muxing_full);
}

// A fragment that goes on to another node must come whole out of one outer packet, so it is cut before it is wrapped.
static enum reason send_on_in_pieces(struct worker *w, const struct state *s, struct rte_mbuf *m, const struct job *job)
{
	struct rte_mbuf *pieces[MAX_PIECES];
	int n;

	packet_cut(m, job->view.l3 + job->view.ip_length);
	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		m->ol_flags |= RTE_MBUF_F_TX_VLAN;
	n = pieces_cut(w, m, job->view.l3, job->piece_mtu - job->to->outer.length, pieces);
	for (int i = 0; i < n; i++) {
		struct job piece = {.hash = job->hash, .to = job->to};
		enum reason reason;

		parse_ip(rte_pktmbuf_mtod(pieces[i], const uint8_t *), pieces[i]->data_len, pieces[i]->pkt_len, &piece.view);
		packet_note(pieces[i])->backend = NO_BACKEND;
		reason = encapsulate(w, s, pieces[i], &piece);
		if (reason != GO_ON) { // its neighbor was lost a moment ago
			rte_pktmbuf_free_bulk(pieces, (unsigned int)n);
			return reason;
		}
	}
	return pieces_pass_on(w, m, pieces, n);
}

static enum reason send_in_pieces(struct worker *w, struct rte_mbuf *m, const struct job *job)
{
	struct rte_mbuf *pieces[MAX_PIECES];
	int n = pieces_cut(w, m, job->view.l3, job->piece_mtu, pieces);

	return pieces_pass_on(w, m, pieces, n);
}

// Outer headers into the headroom. What is cut goes on from here, behind what came before it.
static uint16_t encap_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs,
			   uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		enum reason reason = encapsulate(w, s, burst[i], &jobs[i]);

		if (reason == GO_ON && jobs[i].piece_mtu == 0) {
			burst[kept++] = burst[i];
			continue;
		}
		if (reason == GO_ON) {
			pass_on(w, burst, kept);
			kept = 0;
			reason = jobs[i].vip == NULL ? send_on_in_pieces(w, s, burst[i], &jobs[i])
						     : send_in_pieces(w, burst[i], &jobs[i]);
		}
		if (reason != GO_ON)
			end(w, burst[i], reason);
	}
	return kept;
}

static void housekeeping(struct worker *w)
{
	uint32_t flush = __atomic_load_n(&w->flush, __ATOMIC_ACQUIRE);
	uint32_t buckets = w->sweep_left < SWEEP_PER_TURN ? w->sweep_left : SWEEP_PER_TURN;

	if (flush != 0 && conn_flush(&w->table, (uint16_t)(flush - 1), &w->flush_at, FLUSH_PER_TURN))
		__atomic_store_n(&w->flush, 0, __ATOMIC_RELEASE); // the asker waits for this
	conn_sweep(&w->table, buckets, w->now);
	w->sweep_left -= buckets;
}

void worker_tick(struct worker *w, uint32_t now)
{
	// A capture may pause for days: nothing lives so long, and the clock in the entries would come round again.
	if (now - w->now > CONN_LONGEST)
		conn_sweep(&w->table, w->table.bucket_count, w->now + CONN_LONGEST + 1);
	w->now = now;
	w->echoes_left = ANSWERS_PER_SECOND;
	w->errors_left = ANSWERS_PER_SECOND;
	w->sweep_left = w->table.bucket_count / SWEEP_SECONDS + 1;
}

uint32_t worker_turn(struct worker *w)
{
	struct rte_mbuf *burst[BURST];
	struct job jobs[BURST];
	const struct state *s = state_acquire(w->state);
	uint16_t received = (uint16_t)rte_ring_sc_dequeue_burst(w->in, (void **)burst, BURST, NULL);
	uint16_t n = received;

	housekeeping(w);
	if (n == 0)
		return 0;
	w->answer_count = 0;
	n = parse_pass(w, s, burst, jobs, n);
	n = decide_pass(w, s, burst, jobs, n);
	n = encap_pass(w, s, burst, jobs, n);
	pass_on(w, burst, n);
	pass_on(w, w->answers, w->answer_count);
	return received;
}
