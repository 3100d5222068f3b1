#include "muxing.h"

#include "trace.h"

enum { BURSTS_PER_TURN = 4 };

// What must be known of a packet after the port has it.
struct departure {
	struct packet_note note;
	uint64_t number; // in the trace, when there is one
};

static void count_traffic(struct muxing *x, const struct packet_note *note)
{
	struct traffic *vip = &x->vips[note->vip], *backend = &x->backends[note->backend];

	count(&vip->packets, 1);
	count(&vip->bytes, note->bytes);
	count(&backend->packets, 1);
	count(&backend->bytes, note->bytes);
}

// Packets that follow each other mostly have the same reason, which is then counted once for all of them.
static void count_departures(struct muxing *x, const struct departure *departures, uint16_t n)
{
	uint8_t reason = 0;
	uint64_t run = 0;

	for (const struct departure *d = departures; d < departures + n; d++) {
		if (unlikely(d->note.flags & PACKET_PIECE)) {
			count(&x->pieces, 1);
			continue;
		}
		if (unlikely(d->note.reason != reason)) {
			count(&x->stats.reasons[reason], run);
			reason = d->note.reason;
			run = 0;
		}
		run++;
		if (unlikely(x->stats.trace != NULL))
			trace_end(x->stats.trace, d->number, &d->note, (enum reason)reason);
		if (likely((d->note.flags & (PACKET_ASIDE | PACKET_TO_NODE)) == 0))
			count_traffic(x, &d->note);
	}
	count(&x->stats.reasons[reason], run);
}

// Send a run of packets to one port that are not our own. Returns how many the port took.
static uint16_t depart(struct muxing *x, struct port *port, struct rte_mbuf **burst, uint16_t n)
{
	struct departure departures[BURST];
	uint16_t sent;

	for (uint16_t i = 0; i < n; i++)
		departures[i].note = *packet_note(burst[i]);
	for (uint16_t i = 0; x->stats.trace != NULL && i < n; i++)
		departures[i].number = trace_number(burst[i]);
	sent = port_transmit(port, x->queue, burst, n);
	count_departures(x, departures, sent);
	return sent;
}

// The first packets in a burst that are, or are not, of our own making.
static uint16_t run_length(struct rte_mbuf **burst, uint16_t n, uint8_t own)
{
	uint16_t run = 0;

	while (run < n && (packet_note(burst[run])->flags & PACKET_OWN) == own)
		run++;
	return run;
}

// What a port does not take now stays in its ring, in order.
static uint32_t push(struct muxing *x, struct transmit_ring *ring, struct port *port)
{
	struct rte_mbuf *burst[BURST];
	uint32_t moved = 0;

	for (int turn = 0; turn < BURSTS_PER_TURN; turn++) {
		uint16_t n = transmit_ring_peek(ring, burst, BURST);
		uint16_t own = run_length(burst, n, PACKET_OWN);
		uint16_t run, sent;

		for (uint16_t i = 0; i < own; i++)
			packet_collect(x->collector, burst[i], (enum reason)packet_note(burst[i])->reason);
		run = run_length(burst + own, n - own, 0);
		sent = run > 0 ? depart(x, port, burst + own, run) : 0;
		transmit_ring_sent(ring, own + sent);
		moved += own + sent;
		if (sent < run || own + run == 0)
			break;
	}
	return moved;
}

// The pieces of a packet follow each other in their worker's ring. When one finds no room the rest is of no use, so
// the last one, which has the packet's fate, is placed only if all were.
static bool place(struct muxing *x, uint16_t source, struct rte_mbuf *m)
{
	bool placed = !x->lost[source] && transmit_ring_put(&x->rings[m->port], m);

	x->lost[source] = !placed && (packet_note(m)->flags & PACKET_PIECE) != 0;
	return placed;
}

static uint32_t gather(struct muxing *x, uint16_t source)
{
	struct rte_mbuf *burst[BURST];
	uint32_t n = rte_ring_sc_dequeue_burst(x->from[source], (void **)burst, BURST, NULL);

	for (uint32_t i = 0; i < n; i++)
		rte_prefetch0(burst[i]); // last written on the worker's CPU
	for (uint32_t i = 0; i < n; i++)
		if (!place(x, source, burst[i]))
			packet_end(&x->stats, x->collector, burst[i], REASON_transmit_full);
	return n;
}

static void recycle(struct muxing *x, struct transmit_ring *ring, const struct port *port)
{
	uint64_t before = ring->recycled;

	transmit_ring_recycle(ring, port, x->queue);
	count_released(&x->stats, ring->recycled - before);
}

static uint32_t send_by(struct muxing *x, uint16_t port)
{
	uint32_t moved = push(x, &x->rings[port], x->ports[port]);

	recycle(x, &x->rings[port], x->ports[port]);
	return moved;
}

uint32_t muxing_send(struct muxing *x)
{
	uint32_t moved = 0;

	for (uint16_t p = 0; p < x->port_count; p++)
		moved += send_by(x, p);
	return moved;
}

bool muxing_fits(struct muxing *x, uint16_t port, uint32_t n)
{
	if (transmit_ring_room(&x->rings[port]) < n)
		send_by(x, port);
	return transmit_ring_room(&x->rings[port]) >= n;
}

// Most bursts leave whole by one port, with none of our own in them.
static bool go_one_way(struct rte_mbuf **packets, uint16_t n)
{
	uint16_t port = packets[0]->port, others = 0;

	for (uint16_t i = 0; i < n; i++)
		others |= (packets[i]->port ^ port) | (packet_note(packets[i])->flags & PACKET_OWN);
	return others == 0;
}

// Such a burst needs no slots while nothing waits before it. Returns how many packets have left.
static uint16_t leave_at_once(struct muxing *x, struct rte_mbuf **packets, uint16_t n)
{
	struct transmit_ring *ring;
	uint16_t sent;

	if (n == 0 || n > BURST || !go_one_way(packets, n))
		return 0;
	ring = &x->rings[packets[0]->port];
	if (ring->sent != ring->ready || transmit_ring_room(ring) < n)
		return 0;
	sent = depart(x, x->ports[packets[0]->port], packets, n);
	transmit_ring_passed(ring, sent);
	return sent;
}

void muxing_take(struct muxing *x, struct rte_mbuf **packets, uint16_t n)
{
	bool tried[MAX_PORTS] = {false};

	for (uint16_t i = leave_at_once(x, packets, n); i < n; i++) {
		uint16_t port = packets[i]->port;
		struct transmit_ring *ring = &x->rings[port];

		if (!tried[port] && transmit_ring_room(ring) == 0)
			tried[port] = !muxing_fits(x, port, 1); // once: a port that takes nothing is not asked for each
		if (!transmit_ring_put(ring, packets[i]))
			packet_end(&x->stats, x->collector, packets[i], REASON_transmit_full);
	}
}

uint32_t muxing_turn(struct muxing *x)
{
	uint32_t moved = 0;

	for (uint16_t p = 0; p < x->port_count; p++)
		recycle(x, &x->rings[p], x->ports[p]); // first, so that what came back makes room
	for (uint16_t w = 0; w < x->source_count; w++)
		moved += gather(x, w);
	return moved + muxing_send(x);
}
