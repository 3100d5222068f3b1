#include "seek.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST_TOGETHER = 512, // turns that are looked ahead for at once: their seekers stay in the first cache
	FEW = 8,             // seekers that are not worth a sweep
};

// Where a member looks next: every slot of its permutation before this one is taken.
struct seeker {
	uint32_t slot;
	uint32_t skip;
};

struct search {
	struct seeker *seekers; // [count], by position
	uint64_t *taken;        // a bit per slot
	uint16_t *slots;
	uint32_t size;
};

static uint32_t is_taken(const struct search *s, uint32_t slot)
{
	return s->taken[slot / 64] >> (slot % 64) & 1;
}

static uint32_t step(const struct search *s, uint32_t slot, uint32_t skip)
{
	uint32_t on = slot + skip - s->size;

	return on + (s->size & -(on >> 31)); // no branch: the processor could not guess where it leads
}

// Move the seekers of the next turns on to slots that are empty now. Whoever has its turn before may take one of them,
// so take() looks again; what is passed here stays taken. The processor cannot guess whether a slot is taken: a sweep
// moves all seekers by at most one slot and asks nothing, and those who have found one stay out of the next.
static void look_ahead(const struct search *s, const uint16_t *order, uint32_t turns)
{
	uint16_t looking[MOST_TOGETHER];

	memcpy(looking, order, turns * sizeof(*looking));
	while (turns > FEW) {
		uint32_t kept = 0;

		for (uint32_t i = 0; i < turns; i++) {
			uint16_t position = looking[i];
			struct seeker *k = &s->seekers[position];
			uint32_t slot = k->slot, taken = is_taken(s, slot);

			k->slot = step(s, slot, k->skip & -taken);
			looking[kept] = position;
			kept += taken;
		}
		turns = kept;
	}
}

static void take(const struct search *s, uint16_t position)
{
	struct seeker *k = &s->seekers[position];
	uint32_t slot = k->slot;

	while (is_taken(s, slot))
		slot = step(s, slot, k->skip);
	s->taken[slot / 64] |= 1ULL << (slot % 64);
	s->slots[slot] = position;
	k->slot = slot;
}

// -- the last slots ------------------------------------------------------------------------------------------------

// At so few empty slots it is quicker to ask which of them comes first in a permutation than to walk to it.
static uint32_t last_slots(uint32_t size)
{
	uint32_t last = 1;

	while ((uint64_t)last * last < 4 * (uint64_t)size)
		last++;
	return last < size ? last : size;
}

static uint32_t inverse(uint64_t number, uint32_t size)
{
	uint64_t result = 1;

	for (uint32_t exponent = size - 2; exponent > 0; exponent /= 2) { // Fermat: number ^ (size - 1) is 1
		if (exponent % 2 == 1)
			result = result * number % size;
		number = number * number % size;
	}
	return (uint32_t)result;
}

// 1 / skip mod size for each turn, by one division for all of them.
static void invert_skips(const struct search *s, const uint16_t *order, uint32_t turns, uint32_t *inverses)
{
	uint64_t product = 1;

	for (uint32_t i = 0; i < turns; i++) {
		inverses[i] = (uint32_t)product;
		product = product * s->seekers[order[i]].skip % s->size;
	}
	product = inverse(product, s->size);
	for (uint32_t i = turns; i-- > 0;) {
		inverses[i] = (uint32_t)(inverses[i] * product % s->size);
		product = product * s->seekers[order[i]].skip % s->size;
	}
}

// How many steps from `from` the nearest of the `empty` slots is, in the permutation whose skip has this inverse. A
// slot's place is slot * inverse mod size: by Shoup's quotient, which is right or one too small.
#ifdef __x86_64__
__attribute__((target("sse4.1"))) // which has what four slots at once need; DPDK asks for more
#endif
static uint32_t nearest(const uint32_t *empty, uint32_t count, uint32_t inverse, uint32_t from, uint32_t size)
{
	const uint32_t quotient = (uint32_t)(((uint64_t)inverse << 32) / size);
	const uint32_t origin = (uint32_t)((uint64_t)from * inverse % size);
	uint32_t nearest = UINT32_MAX;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t over = (uint32_t)((uint64_t)empty[i] * quotient >> 32);
		uint32_t place = empty[i] * inverse - over * size, steps;

		place = place - size < place ? place - size : place;
		steps = place - origin;
		steps = steps + size < steps ? steps + size : steps;
		nearest = steps < nearest ? steps : nearest;
	}
	return nearest;
}

// List the empty slots; until it is taken, a slot holds its place in the list.
static uint32_t list_empty(const struct search *s, uint32_t *empty)
{
	uint32_t count = 0;

	for (uint32_t word = 0; word <= s->size / 64; word++)
		for (uint64_t left = ~s->taken[word]; left != 0; left &= left - 1) {
			uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(left);

			s->slots[slot] = (uint16_t)count;
			empty[count++] = slot;
		}
	return count;
}

static int take_last(const struct search *s, const uint16_t *order, uint32_t turns)
{
	uint32_t *inverses = malloc(2 * turns * sizeof(*inverses)), *empty = inverses + turns;
	uint32_t count;

	if (inverses == NULL)
		return -ENOMEM;
	invert_skips(s, order, turns, inverses);
	count = list_empty(s, empty);
	for (uint32_t i = 0; i < turns; i++) {
		const struct seeker *k = &s->seekers[order[i]];
		uint64_t steps = nearest(empty, count, inverses[i], k->slot, s->size);
		uint32_t slot = (uint32_t)((k->slot + steps * k->skip) % s->size);
		uint32_t moved = empty[--count];

		empty[s->slots[slot]] = moved;
		s->slots[moved] = s->slots[slot];
		s->slots[slot] = order[i];
	}
	free(inverses);
	return 0;
}

// ------------------------------------------------------------------------------------------------------------------

int seek_slots(const struct maglev_member *members, uint32_t count, uint32_t size, uint32_t group,
	       const uint16_t *order, uint16_t *slots)
{
	struct search s = {.slots = slots, .size = size};
	uint32_t last = last_slots(size), done = 0;
	int rc = -ENOMEM;

	s.seekers = malloc(count * sizeof(*s.seekers));
	s.taken = calloc(size / 64 + 1, sizeof(*s.taken));
	group = group < MOST_TOGETHER ? group : MOST_TOGETHER;
	if (s.seekers != NULL && s.taken != NULL) {
		s.taken[size / 64] = UINT64_MAX << (size % 64); // there are no slots behind the last
		for (uint32_t i = 0; i < count; i++)
			s.seekers[i] = (struct seeker){members[i].offset, members[i].skip};
		for (uint32_t turns; done < size - last; done += turns) {
			turns = size - last - done < group ? size - last - done : group;
			look_ahead(&s, order + done, turns);
			for (uint32_t i = 0; i < turns; i++)
				take(&s, order[done + i]);
		}
		rc = take_last(&s, order + done, last);
	}
	free(s.seekers);
	free(s.taken);
	return rc;
}
