#include "lane.h"

#include <netinet/in.h>

#include <rte_ether.h>

#include "punt.h"
#include "trace.h"
#include "wire.h"

// A lane has the packets, the worker's jobs and the tables' lines of a burst in one core's first-level cache, all at once;
// by measurement (perf/README.md).
enum { LANE_BURST = 32 };

enum { SHORTEST = RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN + sizeof(struct rte_ipv4_hdr) };

// Whether the frame is here by right although it is not plain, since RSS is sure to have seen its ports: a cheap look, for
// that of others has to be parsed and hashed as a NIC does it.
static bool is_seen_through(const struct rte_mbuf *m)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *) + RTE_ETHER_HDR_LEN;
	uint8_t protocol;
	uint16_t type;

	if (m->data_len < SHORTEST)
		return false;
	type = read16(ip - 2);
	if (type == RTE_ETHER_TYPE_VLAN) {
		ip += RTE_VLAN_HLEN;
		type = read16(ip - 2);
	}
	if (type == RTE_ETHER_TYPE_IPV4 && ip[0] == 0x45 && (read16(ip + 6) & 0x3fff) == 0)
		protocol = ip[9];
	else if (type == RTE_ETHER_TYPE_IPV6)
		protocol = ip[6];
	else
		return false;
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static void hand_to(struct lane *l, uint32_t worker, struct rte_mbuf *m)
{
	if (rte_ring_sp_enqueue(l->to[worker], m) != 0)
		packet_end(&l->worker->stats, l->worker->collector, m, REASON_pair_full);
}

// Returns whether the packet stays on this lane; else somebody else has it, or it has ended.
static bool keep_or_hand_on(struct lane *l, struct rte_mbuf *m)
{
	uint32_t worker = choose_worker(&l->chooser, state_acquire(l->worker->state), m, l->index);

	if (worker == l->index)
		return true;
	if (worker != NO_WORKER)
		hand_to(l, worker, m);
	return false;
}

// Behind the first fragments that told their flow go those that waited for them.
static void carry_held(struct lane *l)
{
	struct matcher *x = &l->chooser.matcher;
	struct rte_mbuf *burst[BURST], *m;
	uint16_t n = 0;

	for (uint16_t i = 0; i < x->found_count; i++) {
		uint32_t worker = spread_worker(l->chooser.spread, &x->found[i].flow);

		while ((m = match_next(x, &x->found[i])) != NULL) {
			if (worker != l->index) {
				hand_to(l, worker, m);
				continue;
			}
			burst[n++] = m;
			if (n == BURST) {
				worker_burst(l->worker, burst, n);
				n = 0;
			}
		}
	}
	worker_burst(l->worker, burst, n);
	x->found_count = 0;
}

bool lane_keeps(struct lane *l, struct rte_mbuf *m)
{
	return !l->outside || (packet_note(m)->flags & PACKET_OWN) != 0 || is_seen_through(m) || keep_or_hand_on(l, m);
}

static void carry(struct lane *l, struct rte_mbuf **burst, uint16_t n, bool outside)
{
	l->outside = outside;
	worker_burst(l->worker, burst, n);
	l->outside = false;
	if (l->chooser.matcher.found_count > 0)
		carry_held(l);
}

// The packets that have just come get their numbers; lanes share the count, which nobody but who asks for a trace pays.
static void number(struct lane *l, struct rte_mbuf **burst, uint16_t n)
{
	uint64_t first = __atomic_fetch_add(l->numbered, n, __ATOMIC_RELAXED);

	for (uint16_t i = 0; i < n; i++)
		trace_begin(burst[i], first + i);
}

static uint16_t take_own(struct lane *l, struct rte_mbuf **burst)
{
	return (uint16_t)rte_ring_sc_dequeue_burst(l->own, (void **)burst, BURST, NULL);
}

// A burst from a port: packets of our own first, so that a flood does not starve the canary. What the kernel sends goes
// past the worker.
static uint16_t receive(struct lane *l, uint16_t index)
{
	struct rte_mbuf *burst[BURST];
	struct port *port = l->muxing.ports[index];
	struct arrivals *arrivals = &l->arrivals[index];
	uint16_t own = index == 0 && !rte_ring_empty(l->own) ? take_own(l, burst) : 0;
	uint16_t room = own < LANE_BURST ? LANE_BURST - own : 0;
	uint16_t n = own + port_receive(port, l->index, burst + own, room);

	for (uint16_t i = own; i < n; i++) {
		*packet_note(burst[i]) = (struct packet_note){0};
		burst[i]->port = index;
	}
	count(&arrivals->received, n);
	if (own > 0)
		count(&l->own_received, own); // after: they are taken off what was received
	if (l->worker->stats.trace != NULL)
		number(l, burst + own, n - own);
	if (port->kind == PORT_KERNEL_SIDE) {
		punt_back(port, burst, n);
		muxing_take(&l->muxing, burst, n);
	} else {
		carry(l, burst, n, true);
	}
	count(&arrivals->processed, n);
	return n;
}

// A burst that another lane had no right to.
static uint16_t receive_from(struct lane *l, uint16_t lane)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n = (uint16_t)rte_ring_sc_dequeue_burst(l->from[lane], (void **)burst, BURST, NULL), kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		bool to_match = (packet_note(burst[i])->flags & PACKET_TO_MATCH) != 0;

		packet_note(burst[i])->flags &= (uint8_t)~PACKET_TO_MATCH;
		if (!to_match || keep_or_hand_on(l, burst[i]))
			burst[kept++] = burst[i];
	}
	carry(l, burst, kept, false);
	return n;
}

uint32_t lane_turn(struct lane *l)
{
	uint32_t moved = 0;

	for (uint16_t p = 0; p < l->muxing.port_count; p++)
		moved += receive(l, p);
	for (uint16_t i = 0; i < l->count; i++)
		if (i != l->index && !rte_ring_empty(l->from[i]))
			moved += receive_from(l, i);
	moved += muxing_send(&l->muxing);
	worker_housekeeping(l->worker); // no packet waits for it
	return moved;
}

void lane_tick(struct lane *l, uint32_t now)
{
	worker_tick(l->worker, now);
	choose_tick(&l->chooser, now);
}
