// Receive ring and transmit ring: arrays of packet pointers with three indices that only move forward (DESIGN 4).
//
// Each ring has one writer, the stage that drives it (steering, muxing); the indices may be read by anyone, relaxed.
// They never wrap in practice (64 bits), so differences are counts.

#ifndef MAGLEV_PACKET_RING_H
#define MAGLEV_PACKET_RING_H

#include <errno.h>
#include <stdlib.h>

#include "packet_pool.h"
#include "port.h"

// Law: processed <= received <= reserved <= processed + size.
struct receive_ring {
	uint64_t received;  // the NIC side has put packets up to here
	uint64_t processed; // steering has handed packets over up to here
	uint64_t reserved;  // slots up to here may be filled: credit backed by unused packets of the pool
	uint32_t size;      // a power of two
	struct rte_mbuf **slots;
} __attribute__((aligned(64)));

// Law: recycled <= sent <= ready <= recycled + size.
struct transmit_ring {
	uint64_t ready;    // muxing has placed packets up to here
	uint64_t sent;     // handed to the NIC up to here
	uint64_t recycled; // back in the pool up to here
	uint32_t size;     // a power of two
	struct rte_mbuf **slots;
} __attribute__((aligned(64)));

static inline void index_move(uint64_t *index, uint64_t to)
{
	__atomic_store_n(index, to, __ATOMIC_RELAXED); // readers elsewhere only look
}

// `size` must be a power of two. Returns 0, -EINVAL or -ENOMEM.
static inline int receive_ring_create(struct receive_ring *r, uint32_t size)
{
	*r = (struct receive_ring){.size = size};
	if (size == 0 || (size & (size - 1)) != 0)
		return -EINVAL;
	r->slots = calloc(size, sizeof(*r->slots));
	return r->slots != NULL ? 0 : -ENOMEM;
}

// Slots that may be filled now.
static inline uint32_t receive_ring_room(const struct receive_ring *r)
{
	return (uint32_t)(r->reserved - r->received);
}

// Let the ring fill up to `credit` more slots than it has received; never beyond its size. Credit is not taken back.
static inline void receive_ring_reserve(struct receive_ring *r, uint64_t credit)
{
	uint64_t most = r->processed + r->size - r->received;
	uint64_t wanted = r->received + (credit < most ? credit : most);

	if (wanted > r->reserved)
		index_move(&r->reserved, wanted);
}

// Put one packet; the caller has seen room for it. The ring owns it from here.
static inline void receive_ring_put(struct receive_ring *r, struct rte_mbuf *m)
{
	r->slots[r->received & (r->size - 1)] = m;
	index_move(&r->received, r->received + 1);
}

// Ask the port for at most one burst, and at most what is reserved. Returns how many came; their notes are blank.
static inline uint16_t receive_ring_fill(struct receive_ring *r, struct port *port)
{
	struct rte_mbuf *burst[BURST];
	uint32_t room = receive_ring_room(r);
	uint16_t n = room > 0 ? port_receive(port, 0, burst, room < BURST ? (uint16_t)room : BURST) : 0;

	for (uint16_t i = 0; i < n; i++) {
		*packet_note(burst[i]) = (struct packet_note){0};
		burst[i]->port = port->index;
		r->slots[(r->received + i) & (r->size - 1)] = burst[i];
	}
	index_move(&r->received, r->received + n);
	return n;
}

// Copy up to `n` received pointers that are not processed yet; they stay the ring's until receive_ring_done().
static inline uint16_t receive_ring_peek(const struct receive_ring *r, struct rte_mbuf **burst, uint16_t n)
{
	uint64_t waiting = r->received - r->processed;

	if (waiting < n)
		n = (uint16_t)waiting;
	for (uint16_t i = 0; i < n; i++)
		burst[i] = r->slots[(r->processed + i) & (r->size - 1)];
	return n;
}

static inline void receive_ring_done(struct receive_ring *r, uint16_t n)
{
	index_move(&r->processed, r->processed + n);
}

static inline int transmit_ring_create(struct transmit_ring *r, uint32_t size)
{
	*r = (struct transmit_ring){.size = size};
	if (size == 0 || (size & (size - 1)) != 0)
		return -EINVAL;
	r->slots = calloc(size, sizeof(*r->slots));
	return r->slots != NULL ? 0 : -ENOMEM;
}

static inline uint64_t transmit_ring_room(const struct transmit_ring *r)
{
	return r->size - (r->ready - r->recycled);
}

// Place one packet. Returns false when the ring is full: then the caller still owns it.
static inline bool transmit_ring_put(struct transmit_ring *r, struct rte_mbuf *m)
{
	if (transmit_ring_room(r) == 0)
		return false;
	r->slots[r->ready & (r->size - 1)] = m;
	index_move(&r->ready, r->ready + 1);
	return true;
}

// Copy up to `n` pointers that are ready and not sent.
static inline uint16_t transmit_ring_peek(const struct transmit_ring *r, struct rte_mbuf **burst, uint16_t n)
{
	uint64_t waiting = r->ready - r->sent;

	if (waiting < n)
		n = (uint16_t)waiting;
	for (uint16_t i = 0; i < n; i++)
		burst[i] = r->slots[(r->sent + i) & (r->size - 1)];
	return n;
}

// The first `n` waiting packets left the ring: the NIC has them, or they were taken off the road here.
static inline void transmit_ring_sent(struct transmit_ring *r, uint16_t n)
{
	index_move(&r->sent, r->sent + n);
}

// `n` packets for which there was room went past the slots of a ring in which nothing waits: the NIC has them.
static inline void transmit_ring_passed(struct transmit_ring *r, uint16_t n)
{
	index_move(&r->ready, r->ready + n);
	index_move(&r->sent, r->ready);
}

// Follow the port's own knowledge of what came back to the pool. A port may still hold what another ring sent.
static inline void transmit_ring_recycle(struct transmit_ring *r, const struct port *port, uint16_t queue)
{
	uint64_t held = port_unrecycled(port, queue);

	if (held < r->sent - r->recycled)
		index_move(&r->recycled, r->sent - held);
}

// Free the packets that a ring still holds, and the ring. For control threads, once its stage has stopped.
static inline void receive_ring_free(struct receive_ring *r)
{
	for (; r->slots != NULL && r->processed < r->received; r->processed++)
		packet_free(r->slots[r->processed & (r->size - 1)]);
	free(r->slots);
	r->slots = NULL;
}

static inline void transmit_ring_free(struct transmit_ring *r)
{
	for (; r->slots != NULL && r->sent < r->ready; r->sent++)
		packet_free(r->slots[r->sent & (r->size - 1)]);
	free(r->slots);
	r->slots = NULL;
}

#endif
