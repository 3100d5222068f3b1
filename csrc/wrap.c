#include <rte_ether.h>

#include "answer.h"
#include "icmp.h"
#include "job.h"
#include "learn.h"
#include "plain.h"
#include "pieces.h"

enum { IPV6_LEAST_MTU = 1280 }; // of every link, so nobody makes smaller packets of larger ones

// Longer than the way takes: with DF the sender is told, without the outer packet is cut (GO_ON). Nobody is told less
// than what IPv6 must carry, so an IPv6 packet of no more is cut too (RFC 2473 7.1, RFC 4213 3.2). An error is never
// answered by another; a canary has no sender.
static __rte_noinline enum reason too_long(struct worker *w, struct rte_mbuf *m, struct job *job)
{
	struct packet_view *v = &job->view;
	uint16_t outer = job->to->outer.length, mtu = job->piece_mtu;
	uint32_t least = v->version == 4 ? 0 : IPV6_LEAST_MTU, fits = mtu - outer;
	uint32_t payload = v->ip_length + (outer == ENCAP_IPV4 ? ENCAP_IPV4 : ENCAP_IPV6 - 40);

	if (packet_note(m)->flags & PACKET_OWN)
		return REASON_too_big_silent;
	if (v->ip_length <= least)
		v->dont_fragment = false;
	if (!v->dont_fragment)
		return payload <= UINT16_MAX ? GO_ON : REASON_too_big_outer; // what the length field can say
	if (icmp_is(v) || job_is_later_fragment(job))
		return REASON_too_big_silent;
	return answer_too_big(w, m, v, fits > least ? fits : least);
}

// Outer headers into the headroom. GO_ON with job->piece_mtu set: wrap_in_pieces() comes next.
static __rte_noinline enum reason wrap(struct worker *w, struct rte_mbuf *m, struct job *job)
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
		enum reason reason = too_long(w, m, job);

		if (reason != GO_ON)
			return reason;
	}
	if (job->piece_mtu != 0 && job->vip == NULL && v->version == 4)
		return GO_ON; // cut first, see send_on()
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
	m->port = hop >> 48 & (MAX_PORTS - 1);
	return GO_ON;
}

// A fragment that goes on to another node must come whole out of one outer packet, so it is cut before it is wrapped.
static enum reason send_on(struct worker *w, struct rte_mbuf *m, const struct job *job)
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
		reason = wrap(w, pieces[i], &piece);
		if (reason != GO_ON) { // its neighbor was lost a moment ago
			rte_pktmbuf_free_bulk(pieces, (unsigned int)n);
			return reason;
		}
	}
	return pieces_pass_on(w, m, pieces, n);
}

// Cut the packet and hand its pieces over to muxing. GO_ON: the packet is gone.
static __rte_noinline enum reason wrap_in_pieces(struct worker *w, struct rte_mbuf *m, struct job *job)
{
	struct rte_mbuf *pieces[MAX_PIECES];

	if (job->vip == NULL && job->view.version == 4)
		return send_on(w, m, job);
	return pieces_pass_on(w, m, pieces, pieces_cut(w, m, job->view.l3, job->piece_mtu, pieces));
}

// What wrap() would do with a plain packet that goes whole to an IPv4 backend, in few instructions. False: nothing is
// done yet.
static inline bool wrap_plain(struct worker *w, struct rte_mbuf *m, const struct job *job)
{
	const struct packet_view *v = &job->view;
	const struct backend *backend = job->to;
	uint64_t hop = __atomic_load_n(&w->next_hops[backend->next_hop].word, __ATOMIC_RELAXED);
	const struct egress *egress = &w->egress[hop >> 48 & (MAX_PORTS - 1)];
	uint32_t length = ENCAP_IPV4 + v->ip_length;
	struct packet_note *note = packet_note(m);
	uint16_t id = 0;
	uint8_t *frame;

	if (!job->plain || backend->outer.length != ENCAP_IPV4 || hop >> 63 == 0 || (note->flags & PACKET_OWN) != 0 ||
	    (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 ||
	    length > way_mtu(w, backend, note->backend, egress, length))
		return false;
	frame = packet_prepend(m, ENCAP_IPV4);
	if (unlikely(frame == NULL))
		return false;
	packet_cut(m, PLAIN_L3 + length); // Ethernet padding is not the packet's
	memcpy(frame, &hop, 8); // what is too much is written over
	memcpy(frame + RTE_ETHER_ADDR_LEN, egress->mac, 8);
	memcpy(frame + 2 * RTE_ETHER_ADDR_LEN, (uint8_t[]){0x08, 0x00}, 2);
	if (unlikely(!v->dont_fragment)) {
		id = w->ip_id;
		w->ip_id = (uint16_t)(id + w->ip_id_step);
	}
	encap_write_ipv4(&backend->outer, frame + PLAIN_L3, job->outer_word, job->outer_sum, id, v->version);
	m->port = hop >> 48 & (MAX_PORTS - 1);
	return true;
}

uint16_t wrap_pass(struct worker *w, struct rte_mbuf **burst, struct job *jobs, uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		enum reason reason;

		if (likely(wrap_plain(w, burst[i], &jobs[i]))) {
			burst[kept++] = burst[i];
			continue;
		}
		reason = wrap(w, burst[i], &jobs[i]);
		if (reason == GO_ON && jobs[i].piece_mtu == 0) {
			burst[kept++] = burst[i];
			continue;
		}
		if (reason == GO_ON) {
			worker_pass_on(w, burst, kept);
			kept = 0;
			reason = wrap_in_pieces(w, burst[i], &jobs[i]);
		}
		if (reason != GO_ON)
			worker_end(w, burst[i], reason);
	}
	return kept;
}
