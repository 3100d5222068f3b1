// Delays in TSC cycles, counted in buckets that are a 64th of their value wide.

#ifndef MAGLEV_HISTOGRAM_H
#define MAGLEV_HISTOGRAM_H

#include <stdint.h>

enum { FINE_BITS = 6, FINE = 1 << FINE_BITS, HISTOGRAM_BUCKETS = FINE * (64 - FINE_BITS + 1) };

struct histogram {
	uint64_t buckets[HISTOGRAM_BUCKETS];
	uint64_t total;
	uint64_t longest;
};

static inline void histogram_add(struct histogram *h, uint64_t value)
{
	uint32_t coarse = value < FINE ? 0 : 64u - FINE_BITS - (uint32_t)__builtin_clzll(value);
	uint32_t bucket = coarse == 0 ? (uint32_t)value : coarse * FINE + (uint32_t)(value >> (coarse - 1)) - FINE;

	h->buckets[bucket]++;
	h->total++;
	if (value > h->longest)
		h->longest = value;
}

// The value that a share of all values (0 to 1) does not exceed, to within a 64th.
static inline uint64_t histogram_at(const struct histogram *h, double share)
{
	uint64_t wanted = (uint64_t)(share * (double)h->total), seen = 0;

	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > wanted)
			return i < FINE ? i : (uint64_t)(i % FINE + FINE) << (i / FINE - 1);
	}
	return h->longest;
}

#endif
