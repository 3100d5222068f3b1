#include "load_bound.h"

// Single writer. Workers read the line for every new flow, so it is written only where something changes.
static void mark(uint64_t *over, uint16_t backend, bool is_over)
{
	uint64_t *word = &over[backend / 64], bit = 1ULL << (backend % 64);

	if (((*word & bit) != 0) != is_over)
		__atomic_store_n(word, *word ^ bit, __ATOMIC_RELAXED);
}

void load_bound_mark(const struct load_bound *bound, const uint64_t *live)
{
	double flows = 0, weights = 0;

	for (uint32_t i = 0; i < bound->count; i++) {
		flows += (double)live[bound->backends[i]];
		weights += bound->weights[i];
	}
	for (uint32_t i = 0; i < bound->count; i++) {
		uint64_t own = live[bound->backends[i]];
		double most = bound->factor * flows * bound->weights[i]; // times the sum of weights

		// own > most rounded up, which for whole numbers is own - 1 >= most.
		mark(bound->over, bound->backends[i], own > LOAD_FEW && (double)(own - 1) * weights >= most);
	}
}
