#include "steering.h"

#include "punt.h"
#include "trace.h"

// Packets of the pool that are neither on the road nor promised to a ring.
static uint64_t unused_packets(const struct steering *s)
{
	uint64_t taken = 0, released = 0;

	// Counters of the freeing stages first: read late they could only be higher than what `taken` knows of.
	for (uint16_t i = 0; i < s->freeing_count; i++)
		released += __atomic_load_n(&s->freeing[i]->released, __ATOMIC_ACQUIRE); // pairs with count_released()
	for (uint16_t i = 0; i < s->freeing_count; i++)
		taken += peek(&s->freeing[i]->made);
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

static uint32_t worker_of(struct steering *s, const struct state *state, struct rte_mbuf *m)
{
	const struct packet_note *note = packet_note(m);

	return note->flags & PACKET_OWN ? note->worker % s->worker_count : choose_worker(&s->chooser, state, m, 0);
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

// Behind the first fragments that told their flow go those that waited for them.
static void hand_over_held(struct steering *s)
{
	struct matcher *x = &s->chooser.matcher;
	struct rte_mbuf *m;

	for (uint16_t i = 0; i < x->found_count; i++) {
		uint32_t worker = spread_worker(s->chooser.spread, &x->found[i].flow);

		while ((m = match_next(x, &x->found[i])) != NULL)
			if (rte_ring_sp_enqueue(s->to_worker[worker], m) != 0)
				spill(s, m);
	}
	x->found_count = 0;
}

static void hand_over(struct steering *s, struct rte_mbuf **burst, uint16_t n)
{
	struct rte_mbuf *groups[MAX_WORKERS][BURST];
	uint16_t sizes[MAX_WORKERS] = {0};
	const struct state *state = state_acquire(s->state);

	for (uint16_t i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < n; i++) {
		uint32_t worker = worker_of(s, state, burst[i]);

		if (worker != NO_WORKER)
			groups[worker][sizes[worker]++] = burst[i];
	}
	for (uint16_t w = 0; w < s->worker_count; w++) {
		unsigned int taken = 0;

		if (sizes[w] > 0)
			taken = rte_ring_sp_enqueue_burst(s->to_worker[w], (void *const *)groups[w], sizes[w], NULL);
		for (; taken < sizes[w]; taken++)
			spill(s, groups[w][taken]);
	}
	hand_over_held(s);
}

// What the kernel sends goes past the workers.
static void hand_past(struct steering *s, const struct port *side, struct rte_mbuf **burst, uint16_t n)
{
	unsigned int taken;

	punt_back(side, burst, n);
	taken = rte_ring_sp_enqueue_burst(s->to_muxing, (void *const *)burst, n, NULL);
	for (; taken < n; taken++)
		packet_end(&s->stats, s->collector, burst[taken], REASON_muxing_full);
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

// The packets that have just come into a ring get their numbers.
static void number(struct steering *s, const struct receive_ring *ring, uint16_t n)
{
	for (uint64_t at = ring->received - n; at < ring->received; at++)
		trace_begin(ring->slots[at & (ring->size - 1)], s->numbered++);
}

uint32_t steering_turn(struct steering *s)
{
	struct rte_mbuf *burst[BURST];
	uint32_t handled = 0;

	for (uint16_t i = 0; i < s->port_count; i++) {
		struct receive_ring *ring = &s->rings[i];
		uint16_t fresh, n;

		if (receive_ring_room(ring) < BURST)
			grant(s, ring);
		if (i == 0 && !rte_ring_empty(s->own))
			put_own(s); // first, so that a flood does not starve the canary
		fresh = receive_ring_fill(ring, s->ports[i]);
		if (s->stats.trace != NULL)
			number(s, ring, fresh);
		n = receive_ring_peek(ring, burst, BURST);
		if (s->ports[i]->kind == PORT_KERNEL_SIDE)
			hand_past(s, s->ports[i], burst, n);
		else
			hand_over(s, burst, n);
		receive_ring_done(ring, n);
		handled += n;
	}
	return handled;
}
