#include "steering.h"

#include "icmp.h"
#include "parse.h"

// Packets of the pool that are neither on the road nor promised to a ring.
static uint64_t unused_packets(const struct steering *s)
{
	uint64_t taken = 0, released = 0;

	// Counters of the freeing stages first: read late they could only be higher than what `taken` knows of.
	for (uint16_t i = 0; i < s->freeing_count; i++)
		released += peek(&s->freeing[i]->released);
	for (uint16_t i = 0; i < s->port_count; i++)
		taken += s->rings[i].reserved;
	taken -= released;
	return taken < s->capacity ? s->capacity - taken : 0;
}

// No ring may hold more than its port's share unfilled: credit is not taken back, so an idle port would keep it all.
static void grant(const struct steering *s, struct receive_ring *ring)
{
	uint64_t share = s->capacity / s->port_count;
	uint64_t credit = receive_ring_room(ring) + unused_packets(s);

	receive_ring_reserve(ring, credit < share ? credit : share);
}

// The note of a packet of our own names the worker; others go by flow, ICMP errors by the flow they are about, fragments
// and other protocols by addresses.
static uint32_t choose_worker(const struct steering *s, const struct rte_mbuf *m)
{
	const struct packet_note *note = (const struct packet_note *)&m->hash;
	struct packet_view view;

	if (note->flags & PACKET_OWN)
		return note->worker % s->worker_count;
	if (parse_ip(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len, m->pkt_len, &view) != PARSE_OK ||
	    parse_transport(&view) != PARSE_OK)
		return 0; // any worker can tell what is wrong with it
	if (!view.has_ports && !(icmp_is(&view) && icmp_kind(&view) == ICMP_ERROR && icmp_quoted_flow(&view)))
		flow_key_fill(&view.key, view_source(&view), view_destination(&view), view_address_length(&view), 0, 0,
			      view.protocol);
	return steering_worker(s, &view.key);
}

// The packet's worker is full: any other will do, since all agree on the Maglev table; it must not track the flow.
static void spill(struct steering *s, struct rte_mbuf *m)
{
	packet_note(m)->flags |= PACKET_SPILLED;
	for (uint16_t i = 0; i < s->worker_count; i++) {
		uint16_t worker = s->next_worker;

		s->next_worker = worker + 1 < s->worker_count ? worker + 1 : 0;
		if (rte_ring_sp_enqueue(s->to_worker[worker], m) == 0)
			return;
	}
	packet_end(&s->stats, s->collector, m, REASON_ring_full);
}

static void hand_over(struct steering *s, struct rte_mbuf **burst, uint16_t n)
{
	struct rte_mbuf *groups[MAX_WORKERS][BURST];
	uint16_t sizes[MAX_WORKERS] = {0};

	for (uint16_t i = 0; i < n; i++) {
		uint32_t worker = s->worker_count > 1 ? choose_worker(s, burst[i]) : 0;

		groups[worker][sizes[worker]++] = burst[i];
	}
	for (uint16_t w = 0; w < s->worker_count; w++) {
		unsigned int taken = 0;

		if (sizes[w] > 0)
			taken = rte_ring_sp_enqueue_burst(s->to_worker[w], (void *const *)groups[w], sizes[w], NULL);
		for (; taken < sizes[w]; taken++)
			spill(s, groups[w][taken]);
	}
}

// Packets of our own enter the first port's receive ring like received ones.
static void put_own(struct steering *s)
{
	struct receive_ring *ring = &s->rings[0];
	struct rte_mbuf *m;

	while (receive_ring_room(ring) > 0 && rte_ring_sc_dequeue(s->own, (void **)&m) == 0) {
		receive_ring_put(ring, m);
		count(&s->own_received, 1);
	}
}

uint32_t steering_turn(struct steering *s)
{
	struct rte_mbuf *burst[BURST];
	uint32_t handled = 0;

	for (uint16_t i = 0; i < s->port_count; i++) {
		struct receive_ring *ring = &s->rings[i];
		uint16_t n;

		if (receive_ring_room(ring) < BURST)
			grant(s, ring);
		if (i == 0 && !rte_ring_empty(s->own))
			put_own(s); // first, so that a flood does not starve the canary
		receive_ring_fill(ring, s->ports[i]);
		n = receive_ring_peek(ring, burst, BURST);
		for (uint16_t k = 0; k < n && s->worker_count > 1; k++)
			rte_prefetch0(rte_pktmbuf_mtod(burst[k], void *));
		hand_over(s, burst, n);
		receive_ring_done(ring, n);
		handled += n;
	}
	return handled;
}
