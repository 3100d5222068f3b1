#include "choose.h"

#include "icmp.h"
#include "parse.h"

static bool by_rss(const struct chooser *c)
{
	return c->spread->buckets != 0;
}

static void end(struct chooser *c, struct rte_mbuf *m, enum reason reason)
{
	packet_end(c->stats, c->collector, m, reason);
}

static void forget_ports(struct packet_view *v)
{
	flow_key_fill(&v->key, view_source(v), view_destination(v), view_address_length(v), 0, 0, v->protocol);
}

// Fragments for a vip go to their flow's worker, once that is known.
static uint32_t worker_of_flow(struct chooser *c, const struct state *s, struct rte_mbuf *m, struct packet_view *v)
{
	enum reason reason = match_fragment(&c->matcher, s, m, v);

	if (reason == GO_ON)
		return spread_worker(c->spread, &v->key);
	if (reason == (enum reason)MATCH_HELD) {
		reason = REASON_fragment_no_room;
		m = match_excess(&c->matcher);
	}
	if (m != NULL)
		end(c, m, reason);
	return NO_WORKER;
}

// With RSS all fragments between two hosts are matched by the worker of their addresses: by it most of them come.
static uint32_t worker_of_fragment(struct chooser *c, const struct state *s, struct rte_mbuf *m,
				   struct packet_view *v, uint32_t here)
{
	struct packet_view of_hosts = *v;
	uint32_t matching;

	if (!by_rss(c))
		return worker_of_flow(c, s, m, v);
	forget_ports(&of_hosts);
	matching = spread_worker(c->spread, &of_hosts.key);
	if (matching == here)
		return worker_of_flow(c, s, m, v);
	packet_note(m)->flags |= PACKET_TO_MATCH;
	return matching;
}

// Packets go by flow, ICMP errors by the flow they are about, other protocols by addresses, or stay where they are.
static uint32_t worker_of_packet(const struct chooser *c, struct packet_view *v, uint32_t here)
{
	if (!v->has_ports && !(icmp_is(v) && icmp_kind(v) == ICMP_ERROR && icmp_quoted_flow(v))) {
		if (by_rss(c))
			return here;
		forget_ports(v);
	}
	return spread_worker(c->spread, &v->key);
}

uint32_t choose_worker(struct chooser *c, const struct state *s, struct rte_mbuf *m, uint32_t here)
{
	struct packet_view v;
	enum reason reason;
	bool for_vip;

	if (is_for_others(c->egress, m) ||
	    parse_ip(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, &v) != PARSE_OK)
		return here; // any worker can tell what is wrong with it
	if (s != NULL && match_unwrap(s, m, &v, &reason) && reason != GO_ON) {
		end(c, m, reason);
		return NO_WORKER;
	}
	if (c->spread->workers == 1 && !v.fragment)
		return here;
	if (parse_transport(&v) != PARSE_OK)
		return here;
	if (!v.fragment && !by_rss(c))
		return worker_of_packet(c, &v, here);
	for_vip = s != NULL && vip_table_owns(&s->vip_table, view_destination(&v), view_address_length(&v));
	if (v.fragment && for_vip)
		return worker_of_fragment(c, s, m, &v, here);
	return by_rss(c) && !for_vip ? here : worker_of_packet(c, &v, here);
}

void choose_tick(struct chooser *c, uint32_t now)
{
	struct rte_mbuf *m;

	c->matcher.now = now;
	while ((m = fragment_take_late(&c->matcher.table, now, FRAGMENT_HELD_SECONDS)) != NULL)
		end(c, m, REASON_fragment_late);
}

void choose_hold(struct chooser *c, uint64_t limit)
{
	fragment_table_init(&c->matcher.table, limit < FRAGMENT_HELD ? (uint16_t)limit : FRAGMENT_HELD);
}

void choose_end(struct chooser *c)
{
	struct rte_mbuf *m;

	while ((m = fragment_take_late(&c->matcher.table, c->matcher.now, 0)) != NULL)
		packet_free(m);
}
