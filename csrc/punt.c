#include "punt.h"

#include <netinet/in.h>

#include "icmp.h"
#include "wire.h"

enum { BGP = 179, BFD = 3784, BFD_ECHO = 3785, BFD_MULTIHOP = 4784 };
enum { ND_FIRST = 133, ND_LAST = 137 }; // ICMPv6: router and neighbor solicitation and advertisement, redirect

static bool is_bfd(uint16_t port)
{
	return port == BFD || port == BFD_ECHO || port == BFD_MULTIHOP;
}

static bool is_neighbor_discovery(const struct packet_view *v)
{
	uint32_t bytes;
	const uint8_t *message;

	if (v->version != 6 || !icmp_is(v))
		return false;
	message = icmp_message(v, &bytes);
	return bytes > 0 && message[0] >= ND_FIRST && message[0] <= ND_LAST;
}

// Without these the node loses its neighbors or its routers.
static bool is_routing(const struct packet_view *v)
{
	if (v == NULL)
		return true;
	if (v->has_ports && v->protocol == IPPROTO_TCP)
		return v->destination_port == BGP || read16(v->ip + v->l4) == BGP;
	if (v->has_ports && v->protocol == IPPROTO_UDP)
		return is_bfd(v->destination_port);
	return is_neighbor_discovery(v);
}

static bool may_punt(struct worker *w, const struct packet_view *v)
{
	uint32_t *left = is_routing(v) ? &w->routing_punts_left : &w->punts_left;

	if (*left == 0)
		return false;
	(*left)--;
	return true;
}

enum reason punt(struct worker *w, struct rte_mbuf *m, const struct packet_view *v)
{
	enum reason reason = v != NULL ? REASON_punt_address : REASON_punt_not_ip;
	uint16_t side = w->egress[m->port].kernel_side;
	struct packet_note *note = packet_note(m);

	if (side == 0 && !w->egress[m->port].punts)
		return v != NULL ? REASON_other_address : REASON_not_ip;
	if (side == 0 || (note->flags & PACKET_OWN))
		return reason; // the kernel has seen it by itself, or nobody needs to
	if (!may_punt(w, v))
		return REASON_punt_rate;
	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		m->ol_flags |= RTE_MBUF_F_TX_VLAN;
	m->port = side;
	note->reason = (uint8_t)reason;
	note->flags |= PACKET_ASIDE;
	w->answers[w->answer_count++] = m;
	return reason;
}

void punt_back(const struct port *side, struct rte_mbuf **burst, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		struct packet_note *note = packet_note(burst[i]);

		burst[i]->port = side->nic;
		note->reason = REASON_from_kernel;
		note->flags |= PACKET_ASIDE;
	}
}
