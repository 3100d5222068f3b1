// The kernel's side of a NIC that only DPDK sees: an interface of the kernel (a tap) that stands beside it.
//
// It is a port of its own, with a file for each queue: one read is a frame that the kernel sends, one write a frame that
// it gets. Files are the caller's, do not block, and stay open as long as the port. Each queue is read by one stage and
// written by one stage.

#ifndef MAGLEV_KERNEL_SIDE_H
#define MAGLEV_KERNEL_SIDE_H

#include <stdint.h>

#include "packet_pool.h"

// To ask a file whether there is a frame takes as long as forwarding several packets. So it is asked once in so many
// microseconds rather than in every turn, and a frame of the kernel waits as long at most.
enum { KERNEL_LOOK_MICROSECONDS = 50 };

struct kernel_side {
	int files[MAX_WORKERS];         // of each queue
	struct packet_pool *pool;       // for what is read
	uint64_t look_cycles;           // between looks
	uint64_t next_look[MAX_WORKERS]; // by the clock of rte_rdtsc(); written by who reads the queue
	uint64_t refused[MAX_WORKERS];  // frames that the kernel would not take; written by who writes the queue
	uint64_t too_long[MAX_WORKERS]; // frames of the kernel's that no packet has room for; written by who reads it
};

void kernel_side_open(struct kernel_side *k, const int *files, uint16_t queues, struct packet_pool *pool);

// Frames that the kernel sends, at most `n`; the caller owns them. Without packets in the pool they wait in the kernel. One
// that is longer than a packet's buffer, which somebody has made the interface's MTU for, is dropped and counted.
uint16_t kernel_side_receive(struct kernel_side *k, uint16_t queue, struct rte_mbuf **burst, uint16_t n);

// Give all to the kernel and free them. What it does not take is counted as refused: the interface is down.
void kernel_side_transmit(struct kernel_side *k, uint16_t queue, struct rte_mbuf **burst, uint16_t n);

#endif
