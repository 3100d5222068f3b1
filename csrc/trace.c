#include "trace.h"

#include <errno.h>
#include <stdalign.h>

#include <rte_mbuf_dyn.h>

#include "road.h"

static_assert(sizeof(struct traced) % 4 == 0, "an element of an rte_ring");

// Where in an mbuf the number is. The same for all data planes of a process, and known before their stages run.
static int number_at;

struct rte_ring *trace_create(uint32_t packets)
{
	static const struct rte_mbuf_dynfield field = {
		.name = "maglev_trace_number",
		.size = sizeof(uint64_t),
		.align = alignof(uint64_t),
	};

	number_at = rte_mbuf_dynfield_register(&field); // once more is the same place
	if (number_at < 0)
		return NULL;
	return rte_ring_create_elem("trace", sizeof(struct traced), packets, SOCKET_ID_ANY,
				    RING_F_SC_DEQ | RING_F_EXACT_SZ);
}

void trace_begin(struct rte_mbuf *m, uint64_t number)
{
	struct packet_note *note = packet_note(m);

	*RTE_MBUF_DYNFIELD(m, number_at, uint64_t *) = number;
	note->vip = NO_VIP;
	note->backend = NO_BACKEND;
}

uint64_t trace_number(const struct rte_mbuf *m)
{
	return *RTE_MBUF_DYNFIELD(m, number_at, const uint64_t *);
}

void trace_end(struct rte_ring *trace, uint64_t number, const struct packet_note *note, enum reason reason)
{
	struct traced record = {.number = number, .reason = reason, .vip = note->vip, .backend = note->backend};

	if (note->flags & (PACKET_MATCHED | PACKET_TO_NODE)) { // ports or a node stand there instead
		record.vip = NO_VIP;
		record.backend = NO_BACKEND;
	}
	rte_ring_mp_enqueue_elem(trace, &record, sizeof(record));
}

int dataplane_traced(struct dataplane *d, struct traced *records, uint32_t room)
{
	if (d->trace == NULL)
		return -ENOTSUP;
	return (int)rte_ring_sc_dequeue_burst_elem(d->trace, records, sizeof(*records), room, NULL);
}
