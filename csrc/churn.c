#include "churn.h"

#include "conn_table.h"

static bool may_use(const struct churn_side *side, uint16_t backend)
{
	return (side->usable[backend / 8] >> (backend % 8) & 1) != 0;
}

static bool chooses(const struct churn_side *side, uint32_t tag, uint16_t backend)
{
	return side->size != 0 && side->slots[tag % side->size] == backend;
}

static void count_flow(struct churn_vip *v, uint32_t tag, uint16_t backend)
{
	bool at_risk = !chooses(&v->next, tag, backend);
	bool lost = at_risk && !may_use(&v->next, backend);

	v->live++;
	v->at_risk += at_risk;
	v->lost += lost;
	v->moved += lost || (at_risk && chooses(&v->now, tag, backend));
}

// The clock of the owner may have gone on since `now` was read, and an entry may be of then.
static bool live(const struct conn_table *t, uint64_t word, uint32_t now)
{
	uint32_t age = conn_age(word, now);

	return age <= t->timeouts.seconds[word >> CONN_CLOCK_BITS & 3] || age >= 1u << (CONN_CLOCK_BITS - 1);
}

// The entry and its tag. A way is given to another flow by storing 0, the tag and the entry, in this order, so that a tag
// between two readings of one flow's entry is its own.
static uint64_t read_way(const struct conn_bucket *b, int way, uint32_t *tag)
{
	uint64_t word, again = __atomic_load_n(&b->entry[way], __ATOMIC_ACQUIRE);

	do {
		word = again;
		*tag = __atomic_load_n(&b->tag[way], __ATOMIC_ACQUIRE);
		again = __atomic_load_n(&b->entry[way], __ATOMIC_ACQUIRE);
	} while ((word ^ again) >> (CONN_CLOCK_BITS + 2) != 0); // clock and state are of the same flow
	return again;
}

void churn_count(struct churn *c, const struct conn_table *t, uint32_t now)
{
	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int way = 0; way < CONN_WAYS; way++) {
			uint32_t tag;
			uint64_t word = read_way(&t->buckets[i], way, &tag);
			uint16_t backend = conn_word_backend(word);
			uint16_t position = c->position[word >> (CONN_CLOCK_BITS + 2) & (CONN_MAX_VIPS - 1)];
			struct churn_vip *v;

			if (word == 0 || position == CHURN_NO_VIP || !live(t, word, now))
				continue;
			v = &c->vips[position];
			if (backend < c->backend_count && may_use(&v->now, backend) &&
			    c->generations[backend] == conn_word_generation(word))
				count_flow(v, tag, backend);
		}
}
