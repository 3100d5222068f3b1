// The benchmark of workers: their real turn over generated packets, and beside it the memory floor.
// One at a time, from the main thread; dataplane_init() comes first.

#ifndef MAGLEV_BENCH_H
#define MAGLEV_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "generator.h"

struct bench_config {
	struct generator_config generator; // each worker has as many flows of its own
	uint32_t backends;
	uint32_t table_size; // of the Maglev table; a prime
	uint32_t workers;    // at once, the first on the main lcore, the others on the lcores from 1 on
	bool cold;           // buffers in rotation, not the ones just given back
	bool only_own;       // the port may bring frames for others, as a NIC does
};

struct bench;

// Returns NULL and a negative errno in *error.
struct bench *bench_new(const struct bench_config *config, int *error); // bench_delete
void bench_delete(struct bench *b);

struct bench_round {
	double worker_ns; // per packet; the median over a few bursts at a time, the mean of the workers
	double floor_ns;  // likewise
	uint64_t packets;
	uint64_t expected;  // packets that met the fate that this traffic is to have
	uint64_t forwarded; // to a backend, for whatever reason
};

// `bursts` bursts of 32 packets through each worker, and as many through the floor, in turns of a few bursts.
void bench_run(struct bench *b, uint32_t bursts, struct bench_round *round);

#endif
