// Load bound of a vip: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016).
// [pure] Once a second the control thread marks the backends that have more live flows than their bound; the SYN of a
// new flow whose slot is such a backend's goes on along the table, to the first slot of one that is not.

#ifndef MAGLEV_LOAD_BOUND_H
#define MAGLEV_LOAD_BOUND_H

#include <stdbool.h>
#include <stdint.h>

enum {
	// A backend with so few flows is never over. To lead a flow away costs it something (whoever does not have
	// its entry sends it by the table), and here evens out nothing that a server would notice.
	LOAD_FEW = 8,
	// Slots that are looked at. Less than 1 / factor of the backends, by weight, can be over, so at a factor of 1.25
	// the search fails for less than one flow in a million, at 1.01 for half of them at worst; those stay with the
	// table's choice.
	LOAD_STEPS = 64,
};

struct load_bound {
	double factor;            // times a backend's share of the vip's live flows; above 1, so that not all can be over
	const uint16_t *backends; // [count] indices of those that own slots; memory of the caller
	const uint32_t *weights;  // [count] theirs; memory of the caller
	uint32_t count;
	uint64_t *over; // bit per backend index; written by the control thread, read by workers
};

// Mark those that are over, by `live` flows per backend index: a whole flow or more above factor * share.
void load_bound_mark(const struct load_bound *bound, const uint64_t *live);

static inline bool load_is_over(const uint64_t *over, uint16_t backend)
{
	// Relaxed: a word is complete in itself, and a mark that is seen later is as good.
	return (__atomic_load_n(&over[backend / 64], __ATOMIC_RELAXED) >> (backend % 64) & 1) != 0;
}

// How far on the next slot is that is looked at: by the golden ratio, since some schedulers give a backend long runs of
// slots, which are left at once so, and no two looks are near each other. A table's size is a prime: all slots come round.
static inline uint32_t load_bound_stride(uint32_t size)
{
	return (uint32_t)((uint64_t)size * 0x9e3779b9 >> 32);
}

// The backend of a new flow whose slot in a table of `size` is `slot`. What one backend gives up is spread over all
// that have room.
static inline uint16_t load_bound_choose(const uint16_t *slots, uint32_t size, uint32_t slot, const uint64_t *over)
{
	uint32_t at = slot;

	for (int step = 0; step < LOAD_STEPS; step++) {
		if (!load_is_over(over, slots[at]))
			return slots[at];
		at = (at + load_bound_stride(size)) % size;
	}
	return slots[slot];
}

#endif
