// Any members and weights: every slot has an owner, and each owns exactly its quota by largest remainder.

#include "fuzz.h"

#include <errno.h>

#include "maglev.h"

enum { MAX_MEMBERS = 24, LARGEST = 251 };

static const uint8_t SIZES[] = {2, 3, 5, 7, 11, 13, 31, LARGEST}; // primes

static struct maglev_member take_member(struct input *in, uint32_t size)
{
	uint8_t choice = (uint8_t)take(in, 1);
	uint32_t weight = (uint32_t)take(in, 4) >> (choice & 31);
	struct maglev_member m;

	if (choice >> 5 == 0) { // unchecked numbers, now and then
		m.offset = (uint32_t)take(in, 1);
		m.skip = (uint32_t)take(in, 1);
	} else {
		uint8_t name[4];

		take_bytes(in, name, sizeof(name));
		maglev_permutation(name, sizeof(name), size, &m);
		must(m.offset < size && m.skip > 0 && m.skip < size);
	}
	m.weight = weight;
	return m;
}

static uint64_t total_weight(const struct maglev_member *members, uint32_t count)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < count; i++)
		total += members[i].weight;
	return total;
}

// Slots by whole shares, and the rest one each to the largest remainders, the first of equal ones before the others.
static uint32_t quota(const struct maglev_member *members, uint32_t count, uint32_t size, uint32_t of)
{
	uint64_t total = total_weight(members, count), mine = size * (uint64_t)members[of].weight % total;
	uint32_t rest = size, before = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t remainder = size * (uint64_t)members[i].weight % total;

		rest -= (uint32_t)(size * (uint64_t)members[i].weight / total);
		before += members[i].weight > 0 && (remainder > mine || (remainder == mine && i < of));
	}
	return (uint32_t)(size * (uint64_t)members[of].weight / total) + (members[of].weight > 0 && before < rest);
}

static void check_table(const struct maglev_member *members, uint32_t count, uint32_t size, const uint16_t *slots)
{
	uint32_t owned[MAX_MEMBERS] = {0};
	bool empty = total_weight(members, count) == 0;

	for (uint32_t s = 0; s < size; s++) {
		must(empty ? slots[s] == MAGLEV_EMPTY : slots[s] < count);
		if (!empty)
			owned[slots[s]]++;
	}
	for (uint32_t i = 0; i < count; i++)
		must(owned[i] == (empty ? 0 : quota(members, count, size, i)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint32_t slot_count = SIZES[take(&in, 1) % COUNT(SIZES)], count = 0;
	uint16_t *slots = malloc(slot_count * sizeof(*slots));
	struct maglev_member members[MAX_MEMBERS] = {0};
	bool valid = true;
	int rc;

	while (in.left > 0 && count < MAX_MEMBERS) {
		struct maglev_member m = take_member(&in, slot_count);

		valid = valid && (m.weight == 0 || (m.offset < slot_count && m.skip > 0 && m.skip < slot_count));
		members[count++] = m;
	}
	rc = maglev_populate(members, count, slot_count, slots);
	must(rc == (valid ? 0 : -EINVAL));
	if (rc == 0)
		check_table(members, count, slot_count, slots);
	free(slots);
	return 0;
}
