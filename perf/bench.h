// The benchmark of one worker: its real turn over generated packets, and beside it the memory floor.
// One at a time, on the calling thread; dataplane_init() comes first.

#ifndef MAGLEV_BENCH_H
#define MAGLEV_BENCH_H

#include <stdbool.h>
#include <stdint.h>

enum bench_traffic {
	BENCH_HIT,     // packets of flows that the connection table knows, in random order
	BENCH_NEW,     // the first packet of a flow each, on a table that has room
	BENCH_FLOOD,   // SYNs of flows that are never seen again, on a table full of such
	BENCH_NOT_VIP, // to the vips' addresses, another port
};

struct bench_config {
	uint32_t flows;
	uint32_t vips;
	uint32_t backends;
	uint32_t table_size; // of the Maglev table; a prime
	uint8_t version;     // inner IP: 4 or 6
	uint16_t bytes;      // frame length, at least 74
	enum bench_traffic traffic;
	bool cold; // buffers in rotation, not the ones just given back
};

struct bench;

// Returns NULL and a negative errno in *error.
struct bench *bench_new(const struct bench_config *config, int *error); // bench_delete
void bench_delete(struct bench *b);

struct bench_round {
	double worker_ns; // per packet
	double floor_ns;  // per packet
	uint64_t packets;
	uint64_t expected; // packets that met the fate that this traffic is to have
};

// `bursts` bursts of 32 packets through the worker, and as many through the floor, in turns of a few bursts.
void bench_run(struct bench *b, uint32_t bursts, struct bench_round *round);

#endif
