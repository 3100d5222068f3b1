// Any loads, weights and slots: who is over is what whole numbers say, never all are, and a flow goes to the next that
// is not.

#include "fuzz.h"

#include "load_bound.h"

enum { MAX_MEMBERS = 100, MAX_SLOTS = 256, WORDS = MAX_MEMBERS / 64 + 1 };

// In whole numbers, factor = percent / 100: more than the bound rounded up. Sums stay far below 64 bits.
static bool is_over(const struct load_bound *b, const uint64_t *live, uint32_t percent, uint32_t of)
{
	uint64_t flows = 0, weights = 0, share;

	for (uint32_t i = 0; i < b->count; i++) {
		flows += live[b->backends[i]];
		weights += b->weights[i];
	}
	share = percent * flows * b->weights[of];
	return live[b->backends[of]] > LOAD_FEW &&
	       live[b->backends[of]] > (share + 100 * weights - 1) / (100 * weights);
}

static void check_choice(const struct load_bound *b, struct input *in)
{
	uint32_t size = 1 + (uint32_t)take(in, 1), slot = (uint32_t)take(in, 1) % size, at = slot;
	uint16_t slots[MAX_SLOTS];
	int step = 0;

	for (uint32_t i = 0; i < size; i++)
		slots[i] = b->backends[take(in, 1) % b->count];
	for (; step < LOAD_STEPS && load_is_over(b->over, slots[at]); step++)
		at = (at + load_bound_stride(size)) % size;
	must(load_bound_choose(slots, size, slot, b->over) == (step == LOAD_STEPS ? slots[slot] : slots[at]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint32_t percent = 101 + (uint32_t)take(&in, 2) % 900, over = 0;
	uint16_t backends[MAX_MEMBERS];
	uint32_t weights[MAX_MEMBERS];
	uint64_t live[MAX_MEMBERS] = {0}, marks[WORDS] = {~0ULL};
	struct load_bound b = {percent / 100.0, backends, weights, 1 + (uint32_t)take(&in, 1) % MAX_MEMBERS, marks};

	for (uint32_t i = 0; i < b.count; i++) {
		backends[i] = (uint16_t)(MAX_MEMBERS - 1 - i);
		live[backends[i]] = take(&in, 2);
		weights[i] = 1 + (uint32_t)take(&in, 2);
	}
	load_bound_mark(&b, live);
	for (uint32_t i = 0; i < b.count; i++) {
		must(load_is_over(b.over, b.backends[i]) == is_over(&b, live, percent, i));
		over += load_is_over(b.over, b.backends[i]);
	}
	must(over < b.count);
	check_choice(&b, &in);
	return 0;
}
