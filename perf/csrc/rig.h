// What every benchmark drives: a data plane with vips, backends and a published state, over one port.

#ifndef MAGLEV_RIG_H
#define MAGLEV_RIG_H

#include <rte_cycles.h>

#include "packet_pool.h"
#include "road.h"

// A turn of a few bursts takes some microseconds. One that took so long was interrupted: another process had the CPU,
// or a hypervisor. Its time says nothing about us, and it is left out and counted.
enum { INTERRUPTED_US = 100 };

static inline uint64_t rig_longest_turn(void)
{
	return rte_get_tsc_hz() / 1000000 * INTERRUPTED_US;
}

struct rig_config {
	const char *name;    // of pool and port; one rig of a name at a time
	const char *devargs; // of the DPDK device that is the port; NULL: a memory port
	uint32_t vips;
	uint32_t backends;
	uint32_t table_size; // of the Maglev table; a prime
	uint32_t workers;
	enum layout layout;
	uint32_t ring_size;
	uint32_t entries; // of the connection table, per worker
	uint32_t packets; // of the pool
	uint8_t version;  // of the vips' addresses: 4 or 6
	bool cold;        // no cache: each buffer comes back after all others
	bool only_own;    // frames to another MAC than the port's are not for us
	enum idle_policy idle;
};

struct rig {
	struct packet_pool pool;
	struct port *port;
	struct dataplane *dataplane;
	struct state *state;
	uint16_t *slots;
};

// Returns 0 or a negative errno; on failure nothing is left.
int rig_open(struct rig *r, const struct rig_config *config); // rig_close
void rig_close(struct rig *r);

// Wait for what runs on an lcore and was told to end. Sleeps: the library's own wait spins, on a CPU that somebody
// measures on, and for ever when it has a higher priority than the lcore that it keeps from running.
void rig_wait(unsigned int lcore);

// Packets by what became of them, since the rig was opened.
struct rig_fates {
	uint64_t forwarded;
	uint64_t dropped; // passed and answered ones too: none are meant to be
	uint64_t known;   // forwarded because the connection table knew the flow
};
void rig_fates(const struct rig *r, struct rig_fates *fates);

#endif
