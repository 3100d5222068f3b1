#include "answer.h"

#include <rte_ether.h>

#include "icmp.h"

// Whether the frame came from one station to this one: what many have got must not be answered by each, nor to many
// (RFC 1122 3.2.2, RFC 4443 2.4 e).
static bool from_one_to_one(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);

	return ((frame[0] | frame[RTE_ETHER_ADDR_LEN]) & 1) == 0;
}

static bool may_answer(const struct rte_mbuf *m, const struct packet_view *v)
{
	return from_one_to_one(m) && icmp_may_answer(v);
}

// Back to the neighbor that sent it, by the port it came from.
static void send_back(struct worker *w, struct rte_mbuf *m, enum reason reason)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	struct packet_note *note = packet_note(m);

	memcpy(frame, frame + RTE_ETHER_ADDR_LEN, RTE_ETHER_ADDR_LEN);
	memcpy(frame + RTE_ETHER_ADDR_LEN, w->egress[m->port].mac, RTE_ETHER_ADDR_LEN);
	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		m->ol_flags |= RTE_MBUF_F_TX_VLAN;
	note->reason = (uint8_t)reason;
	note->flags |= PACKET_ASIDE;
	w->answers[w->answer_count++] = m;
}

enum reason answer_echo(struct worker *w, struct rte_mbuf *m, const struct packet_view *v)
{
	if (!may_answer(m, v) || icmp_is_source_routed(v))
		return REASON_echo_silent;
	if (w->echoes_left == 0)
		return REASON_echo_rate;
	w->echoes_left--;
	packet_cut(m, v->l3 + v->ip_length); // padding
	icmp_echo_reply(rte_pktmbuf_mtod_offset(m, uint8_t *, v->l3), v);
	send_back(w, m, REASON_echo_answered);
	return REASON_echo_answered;
}

enum reason answer_too_big(struct worker *w, struct rte_mbuf *m, const struct packet_view *v, uint32_t mtu)
{
	uint32_t quoted = icmp_quote_length(v), headers = icmp_too_big_headers(v);
	uint8_t addresses[32];
	uint8_t *frame;

	if (!may_answer(m, v) || rte_pktmbuf_headroom(m) < headers)
		return REASON_too_big_silent;
	if (w->errors_left == 0)
		return REASON_too_big_rate;
	w->errors_left--;
	memcpy(addresses, view_source(v), 2u * view_address_length(v));
	packet_cut(m, v->l3 + quoted);
	frame = packet_prepend(m, (uint16_t)headers);
	memmove(frame, frame + headers, v->l3);
	icmp_too_big_write(frame + v->l3, v->version, addresses, quoted, mtu, w->ip_id);
	w->ip_id = (uint16_t)(w->ip_id + w->ip_id_step);
	send_back(w, m, REASON_too_big_answered);
	return REASON_too_big_answered;
}
