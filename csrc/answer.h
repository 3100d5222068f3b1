// What the node answers itself: echo requests to a vip, and packets that are too big for the tunnel.
//
// An answer is the packet it answers, rewritten in its own buffer and sent back to where it came from. Answers wait in
// the worker's `answers` until the end of its turn.

#ifndef MAGLEV_ANSWER_H
#define MAGLEV_ANSWER_H

#include "parse.h"
#include "worker.h"

// Both return the reason of the packet's fate: that it was answered, or why no answer may be given (rate, addresses); then
// nothing changed and the caller still has the packet.
enum reason answer_echo(struct worker *w, struct rte_mbuf *m, const struct packet_view *v);

// `mtu`: what would fit. The packet must not be about to be fragmented by us.
enum reason answer_too_big(struct worker *w, struct rte_mbuf *m, const struct packet_view *v, uint32_t mtu);

#endif
