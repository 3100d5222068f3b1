#include "match.h"

#include <netinet/in.h>

#include <rte_ether.h>

#include "encap.h"

// Whether the outer header is one between two nodes of the cluster, this one the receiver.
static bool between_nodes(const struct cluster *c, const struct packet_view *v)
{
	uint8_t length = view_address_length(v);
	uint8_t outer = v->version == 4 ? ENCAP_IPV4 : ENCAP_IPV6;
	const struct encap_template *self = &c->nodes[c->self].outer;

	if (self->length != outer || memcmp(view_destination(v), encap_destination(self), length) != 0)
		return false;
	for (uint32_t i = 0; i < c->node_count; i++)
		if (i != c->self && memcmp(view_source(v), encap_destination(&c->nodes[i].outer), length) == 0)
			return true;
	return false;
}

static bool for_vip(const struct state *s, const struct packet_view *v)
{
	return vip_table_owns(&s->vip_table, view_destination(v), view_address_length(v));
}

bool match_unwrap(const struct state *s, struct rte_mbuf *m, struct packet_view *v, enum reason *reason)
{
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	uint32_t l3 = v->l3, inner;
	uint8_t outer_class = v->traffic_class;
	uint16_t ethertype;

	if (s->cluster.table_size == 0 || v->protocol != IPPROTO_GRE || !between_nodes(&s->cluster, v))
		return false;
	inner = encap_marked(v, &ethertype);
	if (inner == 0)
		return false;
	packet_cut(m, l3 + v->ip_length);
	memmove(frame + inner, frame, l3); // the Ethernet header, with its tags
	frame = (uint8_t *)rte_pktmbuf_adj(m, (uint16_t)inner);
	frame[l3 - 2] = (uint8_t)(ethertype >> 8);
	frame[l3 - 1] = (uint8_t)ethertype;
	packet_note(m)->flags |= PACKET_UNWRAPPED;
	*reason = GO_ON;
	if (parse_ip(frame, m->data_len, m->pkt_len, v) != PARSE_OK)
		*reason = (enum reason)v->fault;
	else if (!v->fragment || !for_vip(s, v))
		*reason = REASON_not_a_fragment;
	else if (!encap_carry_congestion(outer_class, frame + l3))
		*reason = REASON_congestion;
	return true;
}

static void fill_key(struct packet_view *v, const struct fragment_flow *flow)
{
	flow_key_fill(&v->key, view_source(v), view_destination(v), view_address_length(v), flow->source_port,
		      flow->destination_port, flow->protocol);
}

static void note_flow(struct rte_mbuf *m, const struct fragment_flow *flow)
{
	struct packet_note *note = packet_note(m);

	note->flags |= PACKET_MATCHED;
	note->source_port = flow->source_port;
	note->destination_port = flow->destination_port;
	note->protocol = flow->protocol;
}

static struct fragment_flow flow_of(const struct flow_key *key)
{
	const uint8_t *end = key->bytes + key->length;
	struct fragment_flow flow = {.protocol = end[-1]};

	memcpy(&flow.source_port, end - 5, 2);
	memcpy(&flow.destination_port, end - 3, 2);
	return flow;
}

static bool another_node(struct matcher *x, const struct cluster *c, struct rte_mbuf *m, struct packet_view *v)
{
	struct packet_note *note = packet_note(m);
	uint16_t node;

	if (c->table_size == 0 || (note->flags & PACKET_UNWRAPPED))
		return false; // one that came by another node stays, also where the two do not agree
	node = c->slots[flow_slot(fragment_node_hash(&x->key, v), c->table_size)];
	if (node == c->self)
		return false;
	note->flags |= PACKET_TO_NODE;
	note->backend = node;
	fill_key(v, &(struct fragment_flow){.protocol = v->protocol});
	return true;
}

static enum reason first(struct matcher *x, struct packet_view *v)
{
	uint64_t datagram = fragment_datagram(&x->key, v);
	struct fragment_flow flow = flow_of(&v->key);

	fragment_first(&x->table, datagram, &flow, x->now);
	if (x->table.held > 0)
		x->found[x->found_count++] = (struct match_found){datagram, v->key};
	return GO_ON;
}

// What follows an IPv6 fragment header is known to the first fragment alone.
static bool may_have_flow(const struct packet_view *v)
{
	if (v->fragment_offset == 0)
		return v->has_ports;
	return v->version == 6 || v->protocol == IPPROTO_TCP || v->protocol == IPPROTO_UDP;
}

enum reason match_fragment(struct matcher *x, const struct state *s, struct rte_mbuf *m, struct packet_view *v)
{
	struct fragment_flow flow;

	if (!may_have_flow(v))
		return REASON_fragment_no_flow;
	if (another_node(x, &s->cluster, m, v))
		return GO_ON;
	if (v->has_ports)
		return first(x, v);
	switch (fragment_later(&x->table, fragment_datagram(&x->key, v), m, x->now, &flow)) {
	case FRAGMENT_WAITS:
		return (enum reason)MATCH_HELD;
	case FRAGMENT_NO_ROOM:
		return REASON_fragment_no_room;
	case FRAGMENT_KNOWN:
		break;
	}
	note_flow(m, &flow);
	fill_key(v, &flow);
	return GO_ON;
}

struct rte_mbuf *match_excess(struct matcher *x)
{
	return fragment_take_excess(&x->table);
}

struct rte_mbuf *match_next(struct matcher *x, const struct match_found *found)
{
	struct rte_mbuf *m = fragment_take(&x->table, found->datagram);
	struct fragment_flow flow = flow_of(&found->flow);

	if (m != NULL)
		note_flow(m, &flow);
	return m;
}
