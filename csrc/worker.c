#include "worker.h"

#include <netinet/in.h>

#include <rte_ether.h>

#include "answer.h"
#include "icmp.h"
#include "parse.h"

enum {
	GO_ON = FATE_COUNT,    // no fate yet
	REPLIED,               // among the answers now; muxing counts its fate
	ANSWERS_PER_SECOND = 1000, // of each kind
	SWEEP_SECONDS = 60,    // a whole round of the connection table
	FLUSH_PER_TURN = 256, // buckets, likewise
	SWEEP_PER_TURN = 16,   // buckets, so that a turn stays short
	LONGEST_TIMER = 86400, // seconds
};

// A packet between two passes.
struct job {
	struct packet_view view;
	const struct vip *vip;
	uint64_t hash;
};

static int not_ours(const struct worker *w, const struct rte_mbuf *m)
{
	return w->egress[m->port].punts ? FATE_PUNT : FATE_NOT_VIP;
}

// No vip matched, or layer 4 is broken: whose fault that is depends on whether the address is a vip's.
static int without_vip(const struct worker *w, const struct state *s, const struct rte_mbuf *m,
		       const struct packet_view *v, int fate)
{
	if (s == NULL || !vip_table_owns(&s->vip_table, view_destination(v), view_address_length(v)))
		return not_ours(w, m);
	return fate;
}

// ICMP for a vip's address: errors go with the flow that they quote, echo requests are answered while a vip is served.
static int classify_icmp(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	int32_t position;

	if (s == NULL || !vip_table_owns(&s->vip_table, view_destination(v), view_address_length(v)))
		return not_ours(w, m);
	switch (icmp_kind(v)) {
	case ICMP_BROKEN:
		return FATE_MALFORMED;
	case ICMP_OTHER:
		return FATE_NOT_VIP;
	case ICMP_ECHO:
		if (v->ttl == 0)
			return FATE_TTL_EXPIRED;
		if (!vip_table_served(&s->vip_table, view_destination(v), view_address_length(v)))
			return FATE_NO_BACKEND;
		return answer_echo(w, m, v) ? REPLIED : FATE_ECHO_SUPPRESSED;
	case ICMP_ERROR:
		break;
	}
	if (!icmp_quoted_flow(v))
		return FATE_NOT_VIP;
	position = vip_table_find(&s->vip_table, view_destination(v), view_address_length(v), v->flow_protocol,
				  v->destination_port);
	if (position == VIP_NONE)
		return FATE_NOT_VIP;
	if (v->ttl == 0)
		return FATE_TTL_EXPIRED;
	job->vip = &s->vips[position];
	return GO_ON;
}

// Precedence of fates as in DESIGN 4.
static int classify(struct worker *w, const struct state *s, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	enum parse_result l3 = parse_ip(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, v);
	enum parse_result l4;
	int32_t position;

	if (l3 == PARSE_NOT_IP)
		return not_ours(w, m);
	if (l3 == PARSE_MALFORMED)
		return FATE_MALFORMED;
	l4 = parse_transport(v);
	if (l4 == PARSE_MALFORMED && !v->has_ports)
		return without_vip(w, s, m, v, FATE_MALFORMED);
	if (v->fragment)
		return without_vip(w, s, m, v, FATE_FRAGMENT_UNMATCHED);
	if (icmp_is(v))
		return classify_icmp(w, s, m, job);
	if (s == NULL || !v->has_ports)
		return without_vip(w, s, m, v, FATE_NOT_VIP);
	position = vip_table_find(&s->vip_table, view_destination(v), view_address_length(v), v->protocol,
				  v->destination_port);
	if (position == VIP_NONE)
		return without_vip(w, s, m, v, FATE_NOT_VIP);
	if (l4 == PARSE_MALFORMED)
		return FATE_MALFORMED;
	if (v->ttl == 0)
		return FATE_TTL_EXPIRED;
	job->vip = &s->vips[position];
	return GO_ON;
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
		int fate = classify(w, s, burst[i], job);

		if (fate != GO_ON) {
			if (fate != REPLIED)
				packet_end(&w->stats, w->collector, burst[i], (enum fate)fate);
			continue;
		}
		job->hash = flow_hash(&w->key, &job->view.key);
		conn_prefetch(&w->table, job->hash);
		burst[kept++] = burst[i];
	}
	return kept;
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

// The Maglev table's choice, remembered when it may be.
static int decide_new(struct worker *w, const struct state *s, const struct job *job, struct packet_note *note,
		      bool rewrite)
{
	const struct vip *vip = job->vip;
	const struct packet_view *v = &job->view;
	struct conn_entry entry = {.vip = vip->id, .state = first_state(v)};

	if (vip->table_size == 0)
		return FATE_NO_BACKEND;
	note->backend = by_table(w, job);
	if (icmp_is(v))
		return FATE_ICMP_ERROR; // about a flow that this worker does not know: nothing to remember
	if (note->flags & (PACKET_OWN | PACKET_SPILLED))
		return FATE_HASH_UNTRACKED;
	if ((v->tcp_flags & TCP_RST) != 0)
		return FATE_HASH_UNTRACKED; // the end of a flow is not worth an entry
	if (!rewrite && !conn_fair(&w->table, vip->id, s->vip_count))
		return FATE_HASH_UNTRACKED;
	entry.backend = note->backend;
	entry.generation = s->backends[note->backend].generation;
	return conn_insert(&w->table, job->hash, &entry, w->now) ? FATE_HASH_NEW : FATE_HASH_UNTRACKED;
}

// The connection table's backend while it may be used, else the Maglev table's.
static int decide(struct worker *w, const struct state *s, const struct job *job, struct packet_note *note)
{
	struct conn_entry found;
	int way = -1;

	note->vip = job->vip->id;
	if ((note->flags & PACKET_OWN) == 0)
		way = conn_lookup(&w->table, job->hash, job->vip->id, w->now, &found);
	if (way < 0 || conn_starts_anew(&found, job->view.tcp_flags) ||
	    !vip_may_use(job->vip, s, found.backend, found.generation))
		return decide_new(w, s, job, note, way >= 0);
	note->backend = found.backend;
	if (icmp_is(&job->view))
		return FATE_ICMP_ERROR; // says nothing of how the flow fares
	conn_seen(&w->table, job->hash, way, &found, job->view.tcp_flags, w->now);
	return FATE_CONN_HIT;
}

// Vips and hashes -> backends, in the packets' notes.
static uint16_t decide_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs,
			    uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		struct packet_note *note = packet_note(burst[i]);
		int fate = decide(w, s, &jobs[i], note);

		if (fate == FATE_NO_BACKEND) {
			packet_end(&w->stats, w->collector, burst[i], FATE_NO_BACKEND);
			continue;
		}
		note->fate = (uint8_t)fate;
		rte_prefetch0(&s->backends[note->backend]);
		if (kept != i) {
			jobs[kept] = jobs[i];
			burst[kept] = burst[i];
		}
		kept++;
	}
	return kept;
}

// Without DF the sender asked us to fragment; an error is never answered by another; a canary has no sender.
static bool may_answer_too_big(const struct rte_mbuf *m, const struct packet_view *v)
{
	const struct packet_note *note = (const struct packet_note *)&m->hash;

	return v->dont_fragment && !icmp_is(v) && (note->flags & PACKET_OWN) == 0;
}

static int encapsulate(struct worker *w, const struct state *s, struct rte_mbuf *m, const struct job *job)
{
	const struct packet_view *v = &job->view;
	struct packet_note *note = packet_note(m);
	const struct backend *backend = &s->backends[note->backend];
	uint64_t hop = __atomic_load_n(&w->next_hops[backend->next_hop].word, __ATOMIC_RELAXED);
	const struct egress *egress = &w->egress[hop >> 48 & (MAX_PORTS - 1)];
	uint16_t outer = backend->outer.length;
	uint16_t tags = v->l3 - RTE_ETHER_HDR_LEN;
	uint8_t *frame;

	if (hop >> 63 == 0)
		return FATE_NO_NEIGHBOR;
	if (v->ip_length + outer > egress->mtu)
		return may_answer_too_big(m, v) && answer_too_big(w, m, v, egress->mtu - outer) ? REPLIED : FATE_TOO_BIG;
	packet_cut(m, v->l3 + v->ip_length); // Ethernet padding is not the packet's
	frame = (uint8_t *)rte_pktmbuf_prepend(m, outer);
	if (frame == NULL)
		return FATE_NO_HEADROOM;
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
	note->inner = (uint8_t)(v->l3 + outer);
	m->port = hop >> 48 & (MAX_PORTS - 1);
	return GO_ON;
}

// Outer headers into the headroom.
static uint16_t encap_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, const struct job *jobs,
			   uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		int fate = encapsulate(w, s, burst[i], &jobs[i]);

		if (fate == GO_ON)
			burst[kept++] = burst[i];
		else if (fate != REPLIED)
			packet_end(&w->stats, w->collector, burst[i], (enum fate)fate);
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
	if (now - w->now > LONGEST_TIMER)
		conn_sweep(&w->table, w->table.bucket_count, w->now + LONGEST_TIMER + 1);
	w->now = now;
	w->echoes_left = ANSWERS_PER_SECOND;
	w->errors_left = ANSWERS_PER_SECOND;
	w->sweep_left = w->table.bucket_count / SWEEP_SECONDS + 1;
}

static void pass_on(struct worker *w, struct rte_mbuf **packets, uint16_t n)
{
	unsigned int sent = rte_ring_sp_enqueue_burst(w->out, (void *const *)packets, n, NULL);

	for (; sent < n; sent++)
		packet_end(&w->stats, w->collector, packets[sent], FATE_TRANSMIT_FULL);
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
