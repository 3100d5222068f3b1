#include "maglev.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "siphash.h"

// Where one member stands while the table is filled.
struct turn {
	uint32_t position; // index into the caller's members
	uint32_t next;     // the slot it asks for next
	uint32_t skip;
	uint32_t left;   // turns until its quota is reached
	uint64_t weight; // credit gained per round
	uint64_t credit;
	uint64_t remainder; // of the quota's division, only used while quotas are dealt
};

void maglev_permutation(const void *name, size_t length, uint32_t size, struct maglev_member *member)
{
	member->offset = (uint32_t)(siphash(2, 4, 0xdeadbabe, 0, name, length) % size);
	member->skip = (uint32_t)(siphash(2, 4, 0xdeadbeef, 0, name, length) % (size - 1) + 1);
}

// Larger remainder first; equal ones in order of name, which is the order of position.
static int by_remainder(const void *a, const void *b)
{
	const struct turn *x = *(const struct turn *const *)a;
	const struct turn *y = *(const struct turn *const *)b;

	if (x->remainder != y->remainder)
		return x->remainder < y->remainder ? 1 : -1;
	return x->position < y->position ? -1 : 1;
}

// Exact share of the table by weight, rounded by largest remainder.
static int deal_quotas(struct turn *turns, uint32_t count, uint32_t size, uint64_t total)
{
	struct turn **order = malloc(count * sizeof(*order));
	uint64_t dealt = 0;

	if (order == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		turns[i].left = (uint32_t)(size * turns[i].weight / total);
		turns[i].remainder = size * turns[i].weight % total;
		dealt += turns[i].left;
		order[i] = &turns[i];
	}
	qsort(order, count, sizeof(*order), by_remainder);
	for (uint32_t i = 0; dealt < size; i++, dealt++)
		order[i]->left++;
	free(order);
	return 0;
}

// Give the member the first slot of its permutation that is still empty.
static void take_turn(struct turn *t, uint32_t size, uint16_t *slots)
{
	uint32_t slot = t->next;

	while (slots[slot] != MAGLEV_EMPTY) {
		slot += t->skip;
		if (slot >= size)
			slot -= size;
	}
	slots[slot] = (uint16_t)t->position;
	t->next = slot;
	t->left--;
}

// How many rounds would pass before anybody's credit is enough for a turn. No member here has it yet.
static uint64_t idle_rounds(const struct turn *turns, uint32_t count, uint64_t largest)
{
	uint64_t idle = UINT64_MAX;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t rounds = (largest - 1 - turns[i].credit) / turns[i].weight;

		idle = rounds < idle ? rounds : idle;
	}
	return idle;
}

// Rounds in order of name until the table is full; members at their quota leave, the others keep their order.
// After a round without a turn the idle ones behind it are passed at once: small weights beside large make millions.
static void play_rounds(struct turn *turns, uint32_t count, uint32_t size, uint16_t *slots, uint64_t largest)
{
	while (count > 0) {
		uint32_t kept = 0;
		bool taken = false;

		for (uint32_t i = 0; i < count; i++) {
			struct turn *t = &turns[i];

			t->credit += t->weight;
			while (t->credit >= largest && t->left > 0) {
				t->credit -= largest;
				take_turn(t, size, slots);
				taken = true;
			}
			if (t->left > 0)
				turns[kept++] = *t;
		}
		count = kept;
		if (!taken && count > 0) {
			uint64_t idle = idle_rounds(turns, count, largest);

			for (uint32_t i = 0; i < count; i++)
				turns[i].credit += idle * turns[i].weight;
		}
	}
}

int maglev_populate(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots)
{
	uint64_t total = 0, largest = 0;
	uint32_t playing = 0;
	struct turn *turns;
	int rc;

	if (size < 2 || size > MAGLEV_MAX_SIZE || count > MAGLEV_MAX_MEMBERS)
		return -EINVAL;
	memset(slots, 0xff, size * sizeof(*slots));
	turns = calloc(count + 1u, sizeof(*turns));
	if (turns == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const struct maglev_member *m = &members[i];

		if (m->weight == 0)
			continue;
		if (m->offset >= size || m->skip == 0 || m->skip >= size) {
			free(turns);
			return -EINVAL;
		}
		turns[playing++] = (struct turn){
			.position = i, .next = m->offset, .skip = m->skip, .weight = m->weight};
		total += m->weight;
		largest = m->weight > largest ? m->weight : largest;
	}
	rc = playing > 0 ? deal_quotas(turns, playing, size, total) : 0;
	if (rc == 0)
		play_rounds(turns, playing, size, slots, largest);
	free(turns);
	return rc;
}
