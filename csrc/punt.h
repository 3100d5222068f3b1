// Both ways between a NIC that only DPDK sees and the kernel's interface beside it (kernel_side.h): what is not for a vip
// goes to the kernel, what the kernel sends goes out by the NIC.

#ifndef MAGLEV_PUNT_H
#define MAGLEV_PUNT_H

#include "parse.h"
#include "port.h"
#include "worker.h"

// What one worker hands to the kernel in a second, at most: each frame costs a system call. Routing (BGP, BFD, neighbor
// discovery, whatever is not IP) has a share of its own, so that a flood at the node's address ends no session.
enum { PUNTS_PER_SECOND = 50000, ROUTING_PUNTS_PER_SECOND = 10000 };

// A packet that is not for a vip; `v` is NULL for a frame that is not IP. Returns the reason of its fate: the kernel has it
// (then it is among the worker's answers, where the port has a kernel's side of its own), or why it may not.
enum reason punt(struct worker *w, struct rte_mbuf *m, const struct packet_view *v);

// Frames that came from the kernel by `side` are on their way to its NIC. No worker has to see them.
void punt_back(const struct port *side, struct rte_mbuf **burst, uint16_t n);

#endif
