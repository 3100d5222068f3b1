// The memory floor: what no implementation can avoid. One header line read, one line of a table of the same size read
// and stamped, the headers written.

#ifndef MAGLEV_FLOOR_H
#define MAGLEV_FLOOR_H

#include <stdint.h>

#include <rte_mbuf.h>

struct floor {
	uint64_t *lines; // of 64 bytes each
	uint32_t mask;
	uint32_t address, ports; // of the frame, where its flows differ
};

// At least as many lines as the connection table has buckets. Returns 0 or -ENOMEM.
int floor_open(struct floor *f, uint32_t buckets, uint8_t version); // floor_close
void floor_close(struct floor *f);

// One burst.
void floor_burst(struct floor *f, struct rte_mbuf **burst);

#endif
