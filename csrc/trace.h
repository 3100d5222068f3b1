// The trace: what became of each packet, for those who ask about single packets (`maglev explain`, tests).
//
// Asked for when a data plane is made. Then steering numbers the packets in their order of arrival (lanes each theirs,
// from one count), and where the reason of one is counted a record goes into a ring that the control thread empties.
// Not asked for, the stages find a null pointer beside a counter that they write anyway.

#ifndef MAGLEV_TRACE_H
#define MAGLEV_TRACE_H

#include <rte_ring.h>

#include "dataplane.h"
#include "fate.h"
#include "packet_pool.h"

// A ring for as many unread records as the pool has packets. NULL with rte_errno.
struct rte_ring *trace_create(uint32_t packets);

// A packet came: write its number into it, and into its note that it has no vip and no backend.
void trace_begin(struct rte_mbuf *m, uint64_t number);

// The number is in a dynamic field of the mbuf: whoever hands a packet's note on to another mbuf hands this on too,
// by rte_mbuf_dynfield_copy().
uint64_t trace_number(const struct rte_mbuf *m);

// A packet's road has ended. All stages may call this at once; what finds no room, since nobody reads, is lost.
void trace_end(struct rte_ring *trace, uint64_t number, const struct packet_note *note, enum reason reason);

#endif
