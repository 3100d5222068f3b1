#include "conn_table.h"

#include <stdlib.h>
#include <string.h>

#include "parse.h"

enum { CLOCK_MASK = (1 << CONN_CLOCK_BITS) - 1 };

static uint64_t pack(const struct conn_entry *e)
{
	return (e->seen & CLOCK_MASK) | (uint64_t)e->state << 20 | (uint64_t)e->vip << 22 |
	       (uint64_t)e->generation << 36 | (uint64_t)e->backend << 48;
}

static struct conn_entry unpack(uint64_t word)
{
	return (struct conn_entry){
		.seen = word & CLOCK_MASK,
		.state = (enum conn_state)(word >> 20 & 3),
		.vip = word >> 22 & (CONN_MAX_VIPS - 1),
		.generation = word >> 36 & CONN_MAX_GENERATION,
		.backend = (uint16_t)(word >> 48),
	};
}

// Readers in other threads see whole words. Release, so that the stores of a change happen in the order in which they
// are written down: the owner may be killed between any two of them, and what is then there is a table still.
static void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static bool expired(const struct conn_table *t, uint64_t word, uint32_t now)
{
	uint32_t age = (now - (uint32_t)word) & CLOCK_MASK;

	return age > t->timeouts.seconds[word >> 20 & 3];
}

// The bucket `distance` after the flow's own.
static struct conn_bucket *bucket_of(const struct conn_table *t, uint64_t flow_hash, uint32_t distance)
{
	uint32_t index = (uint32_t)((flow_hash & 0xffffffff) * t->bucket_count >> 32) + distance;

	return &t->buckets[index < t->bucket_count ? index : index - t->bucket_count];
}

static uint32_t distance_of(const struct conn_bucket *b, int way)
{
	return b->distance >> (3 * way) & (CONN_REACH - 1);
}

// The own bucket of the flow that stands at this way.
static struct conn_bucket *home_of(const struct conn_table *t, struct conn_bucket *b, int way)
{
	uint32_t index = (uint32_t)(b - t->buckets), distance = distance_of(b, way);

	return &t->buckets[index >= distance ? index - distance : index + t->bucket_count - distance];
}

static void forget(struct conn_table *t, struct conn_bucket *b, int way)
{
	struct conn_entry old = unpack(b->entry[way]);

	store(&b->entry[way], 0);
	if (distance_of(b, way) != 0)
		home_of(t, b, way)->away--;
	t->counters.live--;
	t->vip_live[old.vip]--;
	t->backend_live[old.backend]--;
}

// The way is empty, so its tag and distance mean nothing before the entry is there, which is one store.
static void remember(struct conn_table *t, uint64_t flow_hash, uint32_t distance, int way, const struct conn_entry *e)
{
	struct conn_bucket *b = bucket_of(t, flow_hash, distance);
	uint32_t distances = (b->distance & ~(7u << (3 * way))) | distance << (3 * way);

	__atomic_store_n(&b->tag[way], (uint32_t)(flow_hash >> 32), __ATOMIC_RELEASE);
	__atomic_store_n(&b->distance, (uint16_t)distances, __ATOMIC_RELEASE);
	if (distance != 0)
		bucket_of(t, flow_hash, 0)->away++;
	store(&b->entry[way], pack(e));
	t->counters.live++;
	t->vip_live[e->vip]++;
	t->backend_live[e->backend]++;
}

static uint32_t bucket_count(uint32_t entries)
{
	return (entries + CONN_WAYS - 1) / CONN_WAYS;
}

size_t conn_table_memory(uint32_t entries)
{
	return (size_t)bucket_count(entries) * sizeof(struct conn_bucket) +
	       (CONN_MAX_VIPS + CONN_MAX_BACKENDS) * sizeof(uint32_t) + sizeof(struct conn_tail);
}

void conn_table_init(struct conn_table *t, void *memory, uint32_t entries, const struct conn_timeouts *timeouts)
{
	memset(t, 0, sizeof(*t));
	t->buckets = memory;
	t->bucket_count = bucket_count(entries);
	t->reach = t->bucket_count < CONN_REACH ? t->bucket_count : CONN_REACH;
	t->vip_live = (uint32_t *)(t->buckets + t->bucket_count);
	t->backend_live = t->vip_live + CONN_MAX_VIPS;
	t->tail = (struct conn_tail *)(t->backend_live + CONN_MAX_BACKENDS);
	t->timeouts = *timeouts;
	memset(t->vip_live, 0, CONN_MAX_VIPS * sizeof(*t->vip_live));
	memset(t->backend_live, 0, CONN_MAX_BACKENDS * sizeof(*t->backend_live));
}

bool conn_table_whole(const struct conn_table *t)
{
	return t->tail->layout == CONN_LAYOUT && t->tail->bucket_count == t->bucket_count;
}

// Count an entry of a former owner, or forget it.
static void inherit(struct conn_table *t, struct conn_bucket *b, int way, const struct conn_known *known, uint32_t now)
{
	struct conn_entry e = unpack(b->entry[way]);

	if (known->generation[e.backend] == 0 || known->generation[e.backend] != e.generation ||
	    known->vip[e.vip] == 0 || expired(t, b->entry[way], now) || distance_of(b, way) >= t->reach) {
		store(&b->entry[way], 0);
		return;
	}
	if (distance_of(b, way) != 0)
		home_of(t, b, way)->away++;
	t->counters.live++;
	t->vip_live[e.vip]++;
	t->backend_live[e.backend]++;
}

void conn_table_take_over(struct conn_table *t, const struct conn_known *known, uint32_t now)
{
	if (known == NULL || now - t->tail->clock > CONN_LONGEST)
		memset(t->buckets, 0, t->bucket_count * sizeof(*t->buckets));
	for (uint32_t i = 0; i < t->bucket_count; i++)
		t->buckets[i].away = 0;
	for (uint32_t i = 0; known != NULL && i < t->bucket_count; i++)
		for (int w = 0; w < CONN_WAYS; w++)
			if (t->buckets[i].entry[w] != 0)
				inherit(t, &t->buckets[i], w, known, now);
	// In this order: until old entries are gone the clock must say how old they are.
	__atomic_store_n(&t->tail->clock, now, __ATOMIC_RELEASE);
	__atomic_store_n(&t->tail->bucket_count, t->bucket_count, __ATOMIC_RELEASE);
	__atomic_store_n(&t->tail->layout, CONN_LAYOUT, __ATOMIC_RELEASE);
}

static bool is_of_vip(uint64_t word, uint16_t vip)
{
	return word != 0 && (word >> 22 & (CONN_MAX_VIPS - 1)) == vip;
}

// The way of a flow of this vip in the bucket at this distance from its own, expired or not, or -1. The vip is part of
// the match: a colliding tag never leads to another service's backend.
static inline int way_of(const struct conn_bucket *b, uint64_t flow_hash, uint16_t vip, uint32_t distance)
{
	uint32_t match = conn_match(b, (uint32_t)(flow_hash >> 32));

	for (; match != 0; match &= match - 1) {
		int way = __builtin_ctz(match);

		if (is_of_vip(b->entry[way], vip) && distance_of(b, way) == distance)
			return way;
	}
	return -1;
}

// As way_of(), in all buckets where the flow may stand: way + CONN_WAYS for each bucket further on.
static int find(const struct conn_table *t, uint64_t flow_hash, uint16_t vip)
{
	const struct conn_bucket *home = bucket_of(t, flow_hash, 0);
	int way = way_of(home, flow_hash, vip, 0);

	for (uint32_t d = 1; way < 0 && home->away != 0 && d < t->reach; d++) {
		int found = way_of(bucket_of(t, flow_hash, d), flow_hash, vip, d);

		way = found < 0 ? -1 : (int)d * CONN_WAYS + found;
	}
	return way;
}

int conn_lookup(const struct conn_table *t, uint64_t flow_hash, uint16_t vip, uint32_t now, struct conn_entry *found)
{
	const struct conn_bucket *b = bucket_of(t, flow_hash, 0);
	int way = way_of(b, flow_hash, vip, 0);
	uint64_t word;

	if (way < 0) {
		if (b->away == 0)
			return CONN_ABSENT;
		way = find(t, flow_hash, vip);
		if (way < 0)
			return CONN_ABSENT;
		b = bucket_of(t, flow_hash, (uint32_t)way / CONN_WAYS);
	}
	word = b->entry[way % CONN_WAYS];
	if (expired(t, word, now))
		return CONN_EXPIRED;
	*found = unpack(word);
	return way;
}

static enum conn_state next_state(const struct conn_entry *e, uint8_t tcp_flags, uint32_t now)
{
	if (e->state == CONN_DATAGRAM)
		return CONN_DATAGRAM;
	if (e->state == CONN_CLOSING || (tcp_flags & (TCP_FIN | TCP_RST)) != 0)
		return CONN_CLOSING;
	// A flood's packets come once: only a flow that is still there a tick later is worth a long timer.
	if (e->state == CONN_HALF_OPEN && (tcp_flags & TCP_SYN) == 0 && e->seen != (now & CLOCK_MASK))
		return CONN_ESTABLISHED;
	return e->state;
}

void conn_seen(struct conn_table *t, uint64_t flow_hash, int way, struct conn_entry *found, uint8_t tcp_flags,
	       uint32_t now)
{
	enum conn_state state = next_state(found, tcp_flags, now);

	if (state == found->state && found->seen == (now & CLOCK_MASK))
		return;
	found->state = state;
	found->seen = now & CLOCK_MASK;
	store(&bucket_of(t, flow_hash, (uint32_t)way / CONN_WAYS)->entry[way % CONN_WAYS], pack(found));
}

// A free way of a bucket, else an expired one, or -1.
static int free_way(const struct conn_table *t, const struct conn_bucket *b, uint32_t now)
{
	uint32_t empty = 0;
	int stale = -1;

	for (int w = 0; w < CONN_WAYS; w++) // where the first one is could not be foretold: no branch
		empty |= (uint32_t)(b->entry[w] == 0) << w;
	if (empty != 0)
		return __builtin_ctz(empty);
	for (int w = 0; w < CONN_WAYS; w++)
		if (expired(t, b->entry[w], now))
			stale = w;
	return stale;
}

// The way of a flow that may be given up for a new one, or -1: a closing one, then a half-open one. A closing flow has
// only its last packets to come, and most of them find the same backend. Of half-open ones, one that stands here because
// its own bucket was full: lookups of that bucket then end in it again.
static int lesser_way(const struct conn_bucket *b)
{
	int half_open = -1;

	for (int w = 0; w < CONN_WAYS; w++) {
		uint32_t state = b->entry[w] >> 20 & 3;

		if (state == CONN_CLOSING)
			return w;
		if (state == CONN_HALF_OPEN && (half_open < 0 || distance_of(b, w) != 0))
			half_open = w;
	}
	return half_open;
}

// The way for an entry of a new flow, as conn_lookup() counts them: a free one, a lesser flow's; or -1.
// A table that is nearly full is not searched for the last free places: a flood would make that the common case.
static int choose_way(const struct conn_table *t, uint64_t flow_hash, uint32_t now)
{
	uint64_t capacity = (uint64_t)t->bucket_count * CONN_WAYS;
	uint32_t reach = t->counters.live * 8 < capacity * 7 ? t->reach : 1;
	int way = -1;

	for (uint32_t d = 0; way < 0 && d < reach; d++) {
		int found = free_way(t, bucket_of(t, flow_hash, d), now);

		way = found < 0 ? -1 : (int)d * CONN_WAYS + found;
	}
	return way < 0 ? lesser_way(bucket_of(t, flow_hash, 0)) : way;
}

// `own` is the way of the flow's old entry, or -1.
static bool insert(struct conn_table *t, uint64_t flow_hash, const struct conn_entry *entry, uint32_t now, int own)
{
	struct conn_entry e = *entry;
	int way = own >= 0 ? own : choose_way(t, flow_hash, now);
	struct conn_bucket *b;
	uint64_t old;

	if (way < 0) {
		t->counters.refused++;
		return false;
	}
	b = bucket_of(t, flow_hash, (uint32_t)way / CONN_WAYS);
	old = b->entry[way % CONN_WAYS];
	if (old != 0) {
		if (own < 0 && !expired(t, old, now))
			t->counters.evicted++;
		forget(t, b, way % CONN_WAYS);
	}
	e.seen = now;
	remember(t, flow_hash, (uint32_t)way / CONN_WAYS, way % CONN_WAYS, &e);
	t->counters.inserted++;
	return true;
}

bool conn_insert(struct conn_table *t, uint64_t flow_hash, const struct conn_entry *entry, uint32_t now)
{
	return insert(t, flow_hash, entry, now, find(t, flow_hash, entry->vip));
}

bool conn_insert_absent(struct conn_table *t, uint64_t flow_hash, const struct conn_entry *entry, uint32_t now)
{
	return insert(t, flow_hash, entry, now, -1);
}

bool conn_fair(const struct conn_table *t, uint16_t vip, uint32_t vips)
{
	uint64_t capacity = (uint64_t)t->bucket_count * CONN_WAYS;

	if (t->counters.live * 4 <= capacity * 3)
		return true;
	return (uint64_t)t->vip_live[vip] * vips <= capacity;
}

void conn_sweep(struct conn_table *t, uint32_t buckets, uint32_t now)
{
	for (; buckets > 0; buckets--) {
		struct conn_bucket *b = &t->buckets[t->sweep_at];

		for (int w = 0; w < CONN_WAYS; w++)
			if (b->entry[w] != 0 && expired(t, b->entry[w], now))
				forget(t, b, w);
		t->sweep_at = t->sweep_at + 1 < t->bucket_count ? t->sweep_at + 1 : 0;
	}
}

bool conn_flush(struct conn_table *t, uint32_t backend, uint32_t *at, uint32_t buckets)
{
	for (; buckets > 0 && *at < t->bucket_count; buckets--, (*at)++)
		for (int w = 0; w < CONN_WAYS; w++) {
			struct conn_bucket *b = &t->buckets[*at];

			if (b->entry[w] != 0 &&
			    (backend == CONN_ALL_BACKENDS || conn_word_backend(b->entry[w]) == backend))
				forget(t, b, w);
		}
	if (*at < t->bucket_count)
		return false;
	*at = 0;
	return true;
}

uint64_t conn_count_alive(const struct conn_table *t, uint32_t now)
{
	uint64_t alive = 0;

	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int w = 0; w < CONN_WAYS; w++) {
			uint64_t word = t->buckets[i].entry[w];

			alive += word != 0 && !expired(t, word, now);
		}
	return alive;
}
