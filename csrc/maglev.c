#include "maglev.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "seek.h"
#include "siphash.h"
#include "turns.h"

void maglev_permutation(const void *name, size_t length, uint32_t size, struct maglev_member *member)
{
	member->offset = (uint32_t)(siphash(2, 4, 0xdeadbabe, 0, name, length) % size);
	member->skip = (uint32_t)(siphash(2, 4, 0xdeadbeef, 0, name, length) % (size - 1) + 1);
}

// Trial division: nothing beside filling a table, and without a prime a skip could miss slots for ever.
static bool is_prime(uint32_t number)
{
	for (uint32_t divisor = 2; divisor * divisor <= number; divisor++)
		if (number % divisor == 0)
			return false;
	return number > 1;
}

int maglev_populate(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots)
{
	uint32_t playing = 0;
	uint16_t *order;
	int rc = 0;

	if (size > MAGLEV_MAX_SIZE || count > MAGLEV_MAX_MEMBERS || !is_prime(size))
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		const struct maglev_member *m = &members[i];

		if (m->weight != 0 && (m->offset >= size || m->skip == 0 || m->skip >= size))
			return -EINVAL;
		playing += m->weight != 0;
	}
	memset(slots, 0xff, size * sizeof(*slots));
	if (playing == 0)
		return 0;
	order = malloc(size * sizeof(*order));
	if (order == NULL)
		return -ENOMEM;
	rc = turns_order(members, count, size, order);
	if (rc == 0)
		rc = seek_slots(members, count, size, playing, order, slots);
	free(order);
	return rc;
}
