// Any table, any two states: each flow is counted as its entry, its slots and its backend say, and nothing is changed.

#include "fuzz.h"

#include "churn.h"
#include "conn_table.h"

enum { MAX_ENTRIES = 40, BACKENDS = 11, VIPS = 3, SLOTS = 16, BITS = (BACKENDS + 7) / 8 };

static const uint16_t NUMBER[VIPS] = {0, 7, CONN_MAX_VIPS - 1}; // of the vips; entries may have others

struct side {
	uint16_t slots[SLOTS];
	uint8_t usable[BITS];
};

static struct churn_side take_side(struct input *in, struct side *s)
{
	for (int i = 0; i < SLOTS; i++) {
		s->slots[i] = (uint16_t)take(in, 1) % (BACKENDS + 2);
		if (s->slots[i] > BACKENDS)
			s->slots[i] = 0xffff;
	}
	take_bytes(in, s->usable, BITS);
	return (struct churn_side){s->slots, (uint32_t)take(in, 1) % (SLOTS + 1), s->usable};
}

static bool chooses(const struct churn_side *side, uint32_t tag, uint16_t backend)
{
	return side->size > 0 && side->slots[tag % side->size] == backend;
}

static bool usable(const struct churn_side *side, uint16_t backend)
{
	return side->usable[backend / 8] >> (backend % 8) & 1;
}

// What churn.h says of one entry.
static void expect(struct churn_vip *v, const struct churn *c, uint64_t word, uint32_t tag)
{
	uint16_t backend = (uint16_t)(word >> 48);
	bool stays, stayed, keeps;

	if (backend >= c->backend_count || (word >> 36 & 0xfff) != c->generations[backend] || !usable(&v->now, backend))
		return;
	stays = chooses(&v->next, tag, backend);
	stayed = chooses(&v->now, tag, backend);
	keeps = usable(&v->next, backend);
	v->live += 1;
	v->at_risk += !stays;
	v->moved += !stays && (stayed || !keeps);
	v->lost += !stays && !keeps;
}

static void check(const struct churn *c, const struct conn_table *t, uint32_t now)
{
	struct churn_vip expected[VIPS];

	memcpy(expected, c->vips, sizeof(expected));
	for (int k = 0; k < VIPS; k++)
		expected[k].live = expected[k].at_risk = expected[k].moved = expected[k].lost = 0;
	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int way = 0; way < CONN_WAYS; way++) {
			uint64_t word = t->buckets[i].entry[way];
			uint32_t age = (now - (uint32_t)word) & 0xfffff, vip = word >> 22 & 0x3fff;

			if (word == 0 || (age > t->timeouts.seconds[word >> 20 & 3] && age < 1 << 19))
				continue;
			for (int k = 0; k < VIPS; k++)
				if (NUMBER[k] == vip)
					expect(&expected[k], c, word, t->buckets[i].tag[way]);
		}
	for (int k = 0; k < VIPS; k++) {
		const struct churn_vip *v = &c->vips[k], *e = &expected[k];

		must(v->live == e->live && v->at_risk == e->at_risk && v->moved == e->moved && v->lost == e->lost);
		must(v->lost <= v->moved && v->moved <= v->at_risk && v->at_risk <= v->live);
	}
}

static void insert(struct conn_table *t, struct input *in, uint32_t now)
{
	struct conn_entry e = {.backend = (uint16_t)take(in, 1) % (BACKENDS + 2)};
	uint64_t hash = take(in, 4) << 32 | take(in, 1) << 24;

	e.generation = 1 + (uint16_t)take(in, 1) % 2;
	e.vip = NUMBER[take(in, 1) % VIPS] ^ (take(in, 1) == 1);
	e.state = (enum conn_state)(take(in, 1) & 3);
	conn_insert(t, hash, &e, now - (uint32_t)take(in, 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint16_t position[CONN_MAX_VIPS];
	struct input in = {data, size};
	uint32_t entries = 1 + (uint32_t)take(&in, 1) % MAX_ENTRIES, now = (uint32_t)take(&in, 4);
	void *memory = aligned_alloc(64, conn_table_memory(entries)), *before;
	struct conn_timeouts timeouts = {{1 + (uint32_t)take(&in, 1), 1 + (uint32_t)take(&in, 1), 1, CONN_LONGEST}};
	uint16_t generations[BACKENDS];
	struct side sides[VIPS][2];
	struct churn_vip vips[VIPS] = {0};
	struct churn c = {generations, BACKENDS, position, vips};
	struct conn_table t;

	memset(memory, 0, conn_table_memory(entries));
	conn_table_init(&t, memory, entries, &timeouts);
	memset(position, 0xff, sizeof(position));
	for (int i = 0; i < BACKENDS; i++)
		generations[i] = (uint16_t)take(&in, 1) % 3;
	for (int k = 0; k < VIPS; k++) {
		position[NUMBER[k]] = (uint16_t)k;
		vips[k].now = take_side(&in, &sides[k][0]);
		vips[k].next = take_side(&in, &sides[k][1]);
	}
	while (in.left > 0)
		insert(&t, &in, now);
	before = malloc(conn_table_memory(entries));
	memcpy(before, memory, conn_table_memory(entries));
	churn_count(&c, &t, now);
	must(memcmp(before, memory, conn_table_memory(entries)) == 0);
	check(&c, &t, now);
	free(before);
	free(memory);
	return 0;
}
