// The Maglev table by the straightforward loop: what csrc/maglev.c is compared with, for its result and for its time.
// Every probe computes its slot anew with one %, every round is played, and nothing is cleverer than that.

#ifndef MAGLEV_REFERENCE_MAGLEV_H
#define MAGLEV_REFERENCE_MAGLEV_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "maglev.h"

struct reference_member {
	uint64_t step; // of its permutation
	uint64_t credit;
	uint64_t quota;
	uint64_t remainder;
	uint32_t position;
};

static int reference_by_remainder(const void *a, const void *b)
{
	const struct reference_member *x = a, *y = b;

	if (x->remainder != y->remainder)
		return x->remainder < y->remainder ? 1 : -1;
	return x->position < y->position ? -1 : 1;
}

static int reference_by_position(const void *a, const void *b)
{
	const struct reference_member *x = a, *y = b;

	return x->position < y->position ? -1 : x->position > y->position;
}

static void reference_take(const struct maglev_member *m, struct reference_member *r, uint64_t size, uint16_t *slots)
{
	uint64_t slot = (m->offset + r->step * m->skip) % size;

	while (slots[slot] != MAGLEV_EMPTY) {
		r->step++;
		slot = (m->offset + r->step * m->skip) % size;
	}
	slots[slot] = (uint16_t)r->position;
	r->step++;
}

// The paper's: everybody takes one slot a round.
static void reference_equal(const struct maglev_member *members, uint32_t count, uint64_t size,
			    struct reference_member *state, uint16_t *slots)
{
	uint64_t filled = 0;

	while (true)
		for (uint32_t i = 0; i < count; i++) {
			if (members[i].weight == 0)
				continue;
			reference_take(&members[i], &state[i], size, slots);
			if (++filled == size)
				return;
		}
}

// DESIGN 5: a turn for each largest weight of credit, never beyond the quota.
static void reference_weighted(const struct maglev_member *members, uint32_t count, uint64_t size, uint64_t total,
			       uint64_t largest, struct reference_member *state, uint16_t *slots)
{
	uint64_t dealt = 0, filled = 0;

	for (uint32_t i = 0; i < count; i++) {
		state[i].quota = size * members[i].weight / total;
		state[i].remainder = size * members[i].weight % total;
		dealt += state[i].quota;
	}
	qsort(state, count, sizeof(*state), reference_by_remainder);
	for (uint32_t i = 0; dealt < size; i++, dealt++)
		state[i].quota++;
	qsort(state, count, sizeof(*state), reference_by_position);
	while (filled < size)
		for (uint32_t i = 0; i < count; i++) {
			state[i].credit += members[i].weight;
			if (state[i].credit < largest || state[i].quota == 0)
				continue;
			state[i].credit -= largest;
			state[i].quota--;
			reference_take(&members[i], &state[i], size, slots);
			filled++;
		}
}

// As maglev_populate(), of arguments that are in range. Returns false when there is no memory.
static bool reference_populate(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots)
{
	struct reference_member *state = calloc(count + 1u, sizeof(*state));
	uint64_t total = 0, largest = 0, smallest = UINT64_MAX;

	if (state == NULL)
		return false;
	memset(slots, 0xff, size * sizeof(*slots));
	for (uint32_t i = 0; i < count; i++) {
		uint64_t weight = members[i].weight;

		state[i].position = i;
		total += weight;
		largest = weight > largest ? weight : largest;
		smallest = weight != 0 && weight < smallest ? weight : smallest;
	}
	if (total > 0 && smallest == largest)
		reference_equal(members, count, size, state, slots);
	else if (total > 0)
		reference_weighted(members, count, size, total, largest, state, slots);
	free(state);
	return true;
}

#endif
