#include "quotas.h"

#include <errno.h>
#include <stdlib.h>

// The largest remainder that `wanted` (at least one) of the members reach.
static uint64_t least_rounded_up(const uint64_t *remainders, uint32_t count, uint32_t wanted, uint64_t total)
{
	uint64_t low = 0, high = total; // enough reach `low`, too few `high`

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		uint32_t reach = 0;

		for (uint32_t i = 0; i < count; i++)
			reach += remainders[i] >= middle;
		if (reach >= wanted)
			low = middle;
		else
			high = middle;
	}
	return low;
}

// One slot more for `rest` members. The remainders are a whole number of totals, so enough of them are above 0.
static void round_up(const uint64_t *remainders, uint32_t count, uint32_t rest, uint64_t total, uint32_t *quotas)
{
	uint64_t least = least_rounded_up(remainders, count, rest, total);

	for (uint32_t i = 0; i < count; i++)
		if (remainders[i] > least) {
			quotas[i]++;
			rest--;
		}
	for (uint32_t i = 0; rest > 0; i++)
		if (remainders[i] == least) {
			quotas[i]++;
			rest--;
		}
}

int quotas_deal(const struct maglev_member *members, uint32_t count, uint32_t size, uint32_t *quotas)
{
	uint64_t *remainders = malloc(count * sizeof(*remainders)), total = 0;
	uint32_t rest = size;

	if (remainders == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		total += members[i].weight;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t share = (uint64_t)size * members[i].weight;

		quotas[i] = (uint32_t)(share / total);
		remainders[i] = share % total;
		rest -= quotas[i];
	}
	if (rest > 0)
		round_up(remainders, count, rest, total, quotas);
	free(remainders);
	return 0;
}
