// Any sequence of operations on a small table: counts are true, what is found is what was last inserted, and nothing
// that is still needed makes room.

#include "fuzz.h"

#include "conn_table.h"
#include "parse.h"

enum {
	MAX_ENTRIES = 40,
	MAX_BUCKETS = MAX_ENTRIES / CONN_WAYS,
	TAGS = 8,
	IDS = 4,
	CLOCK_MASK = (1 << CONN_CLOCK_BITS) - 1,
	LONGEST_PAUSE = 1 << 17, // seconds; the worker sweeps long before the clock in the entries comes round
};

static const uint32_t TAG[TAGS] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xaaaaaaaa, 0xfffffffe, 0xffffffff};
static const uint16_t VIP[IDS] = {0, 1, 0x1555, CONN_MAX_VIPS - 1};
static const uint16_t BACKEND[IDS] = {0, 1, 0xaaaa, CONN_MAX_BACKENDS - 1};

// A flow of a vip; flows of one bucket differ in their tags.
struct flow {
	uint64_t hash;
	uint8_t tag, bucket, vip;
};

struct world {
	struct conn_table table;
	uint32_t now;
	struct conn_entry last[TAGS][MAX_BUCKETS][IDS]; // last inserted; generation 0: never
	struct conn_bucket before[MAX_BUCKETS];         // an insert
};

static struct flow take_flow(struct input *in, const struct conn_table *t)
{
	uint32_t choice = (uint32_t)take(in, 2);
	uint32_t bucket = choice / TAGS % t->bucket_count;
	uint64_t low = ((uint64_t)bucket << 32) / t->bucket_count + 1;
	struct flow f = {.tag = choice % TAGS, .bucket = (uint8_t)bucket, .vip = choice >> 14};

	f.hash = (uint64_t)TAG[f.tag] << 32 | low;
	return f;
}

static uint32_t age(const struct world *w, const struct conn_entry *e)
{
	return (w->now - e->seen) & CLOCK_MASK;
}

// What conn_table.h says of an entry word.
static struct conn_entry entry_of(uint64_t word)
{
	return (struct conn_entry){.seen = word & CLOCK_MASK,
				   .state = (enum conn_state)(word >> 20 & 3),
				   .vip = word >> 22 & 0x3fff,
				   .generation = word >> 36 & 0xfff,
				   .backend = (uint16_t)(word >> 48)};
}

static bool same(const struct conn_entry *a, const struct conn_entry *b)
{
	return a->backend == b->backend && a->generation == b->generation && a->vip == b->vip &&
	       a->state == b->state && a->seen == b->seen;
}

static void check_counts(const struct world *w)
{
	const struct conn_table *t = &w->table;
	uint32_t live = 0, alive = 0, of_vip[IDS] = {0}, of_backend[IDS] = {0};

	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int way = 0; way < CONN_WAYS; way++) {
			struct conn_entry e = entry_of(t->buckets[i].entry[way]);

			if (t->buckets[i].entry[way] == 0)
				continue;
			live++;
			alive += age(w, &e) <= t->timeouts.seconds[e.state];
			for (int k = 0; k < IDS; k++) {
				of_vip[k] += e.vip == VIP[k];
				of_backend[k] += e.backend == BACKEND[k];
			}
		}
	must(t->counters.live == live);
	must(conn_count_alive(t, w->now) == alive);
	for (int k = 0; k < IDS; k++)
		must(t->vip_live[VIP[k]] == of_vip[k] && t->backend_live[BACKEND[k]] == of_backend[k]);
}

static uint32_t distance(const struct conn_bucket *b, int way)
{
	return b->distance >> (3 * way) & 7;
}

// The bucket where a flow would stand, had it been alone: what the entry at this way says.
static uint32_t home(const struct world *w, uint32_t bucket, int way)
{
	uint32_t buckets = w->table.bucket_count;

	return (bucket + buckets - distance(&w->table.buckets[bucket], way)) % buckets;
}

static void check_away(const struct world *w)
{
	const struct conn_table *t = &w->table;
	uint32_t away[MAX_BUCKETS] = {0};

	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int way = 0; way < CONN_WAYS; way++)
			if (t->buckets[i].entry[way] != 0 && distance(&t->buckets[i], way) != 0)
				away[home(w, i, way)]++;
	for (uint32_t i = 0; i < t->bucket_count; i++)
		must(t->buckets[i].away == away[i]);
}

// Look a flow up; what is found is alive and has what was last inserted, but for its state and clock.
static int look_up(const struct world *w, const struct flow *f, struct conn_entry *found)
{
	const struct conn_entry *last = &w->last[f->tag][f->bucket][f->vip];
	int way = conn_lookup(&w->table, f->hash, VIP[f->vip], w->now, found);
	const struct conn_bucket *b =
		&w->table.buckets[(f->bucket + (way < 0 ? 0 : (uint32_t)way / CONN_WAYS)) % w->table.bucket_count];
	uint32_t match = conn_match(b, TAG[f->tag]);

	must(match == conn_match_scalar(b, TAG[f->tag]) && match >> CONN_WAYS == 0);
	for (enum conn_state state = CONN_ESTABLISHED; state <= CONN_DATAGRAM; state++) { // the short way
		uint64_t *entry = conn_find(&w->table, f->hash, VIP[f->vip], state, w->now);
		bool same = way >= 0 && way < CONN_WAYS && found->state == state;

		must(entry == NULL || (same && entry == &b->entry[way]));
		must(entry != NULL || !same || (match & (match - 1)) != 0);
	}
	if (way < 0)
		return way;
	must(way < CONN_WAYS * CONN_REACH && (match >> (way % CONN_WAYS) & 1) == 1);
	must(distance(b, way % CONN_WAYS) == (uint32_t)way / CONN_WAYS);
	must(found->vip == VIP[f->vip] && found->backend == last->backend && found->generation == last->generation);
	must(age(w, found) <= w->table.timeouts.seconds[found->state]);
	return way;
}

// What the table had before the insert: no more than one way is another's now, and only if it could be spared. A flow
// that found no place had a bucket full of such as are needed.
static void check_spared(const struct world *w, const struct flow *f, bool inserted)
{
	int changed = 0;

	for (uint32_t i = 0; i < w->table.bucket_count; i++)
		for (int way = 0; way < CONN_WAYS; way++) {
			uint64_t was = w->before[i].entry[way];
			struct conn_entry e = entry_of(was);
			bool own = w->before[i].tag[way] == TAG[f->tag] && e.vip == VIP[f->vip] &&
				   i == (f->bucket + (w->before[i].distance >> (3 * way) & 7)) % w->table.bucket_count;
			bool needed = was != 0 && !own && age(w, &e) <= w->table.timeouts.seconds[e.state] &&
				      (e.state == CONN_ESTABLISHED || e.state == CONN_DATAGRAM);

			must(inserted || needed || i != f->bucket);
			if (was == w->table.buckets[i].entry[way] &&
			    w->before[i].tag[way] == w->table.buckets[i].tag[way])
				continue;
			changed++;
			must(!needed);
		}
	must(changed <= (inserted ? 1 : 0));
}

static void insert(struct world *w, struct input *in)
{
	struct flow f = take_flow(in, &w->table);
	uint32_t choice = (uint32_t)take(in, 2);
	struct conn_entry found, e = {.backend = BACKEND[choice % IDS],
				      .generation = 1 + (choice >> 4) % CONN_MAX_GENERATION,
				      .vip = VIP[f.vip],
				      .state = (enum conn_state)(choice >> 2 & 3)};
	bool inserted;

	memcpy(w->before, w->table.buckets, w->table.bucket_count * sizeof(w->before[0]));
	inserted = conn_insert(&w->table, f.hash, &e, w->now);
	check_spared(w, &f, inserted);
	if (!inserted)
		return;
	e.seen = w->now & CLOCK_MASK;
	w->last[f.tag][f.bucket][f.vip] = e;
	must(look_up(w, &f, &found) >= 0 && same(&found, &e));
}

static bool may_become(enum conn_state from, enum conn_state to, uint8_t tcp_flags)
{
	if (from == CONN_DATAGRAM || from == CONN_CLOSING)
		return to == from;
	if (tcp_flags & (TCP_FIN | TCP_RST))
		return to == CONN_CLOSING;
	return to == from || (to == CONN_ESTABLISHED && !(tcp_flags & TCP_SYN));
}

static void packet(struct world *w, struct input *in)
{
	struct flow f = take_flow(in, &w->table);
	uint8_t flags = (uint8_t)take(in, 1);
	struct conn_entry found, before, again;
	int way = look_up(w, &f, &found);

	if (way < 0)
		return;
	before = found;
	must(conn_starts_anew(&found, flags) ==
	     (found.state == CONN_CLOSING && (flags & TCP_SYN) != 0 && (flags & TCP_RST) == 0));
	conn_seen(&w->table, f.hash, way, &found, flags, w->now);
	must(may_become(before.state, found.state, flags) && found.seen == (w->now & CLOCK_MASK));
	must(look_up(w, &f, &again) == way && same(&again, &found));
}

static void flush(struct world *w, uint16_t backend, uint32_t slice)
{
	uint32_t at = 0;

	while (!conn_flush(&w->table, backend, &at, slice))
		must(at < w->table.bucket_count);
	must(at == 0 && w->table.backend_live[backend] == 0);
}

static void operate(struct world *w, struct input *in)
{
	struct conn_table *t = &w->table;

	switch (take(in, 1) % 6) {
	case 0:
		insert(w, in);
		break;
	case 1:
		packet(w, in);
		break;
	case 2:
		w->now += (uint32_t)take(in, 1);
		break;
	case 3: // a long silence, and the sweep of it
		w->now += (uint32_t)take(in, 3) % LONGEST_PAUSE;
		conn_sweep(t, t->bucket_count, w->now);
		must(conn_count_alive(t, w->now) == t->counters.live);
		break;
	case 4:
		conn_sweep(t, (uint32_t)take(in, 1), w->now);
		break;
	default:
		flush(w, BACKEND[take(in, 1) % IDS], 1 + (uint32_t)take(in, 1) % MAX_BUCKETS);
	}
	must(t->counters.live * 4 > (uint64_t)t->bucket_count * CONN_WAYS * 3 || conn_fair(t, VIP[0], IDS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void *memory; // zeros again when every flow is flushed and the buckets are cleared
	struct input in = {data, size};
	static struct world w;
	uint32_t entries = 1 + (uint32_t)take(&in, 1) % MAX_ENTRIES;
	struct conn_timeouts timeouts;

	if (memory == NULL) {
		memory = aligned_alloc(64, conn_table_memory(MAX_ENTRIES));
		memset(memory, 0, conn_table_memory(MAX_ENTRIES));
	}
	for (int i = 0; i < 4; i++)
		timeouts.seconds[i] = 1 + (uint32_t)take(&in, 2);
	memset(&w, 0, sizeof(w));
	w.now = (uint32_t)take(&in, 4);
	conn_table_init(&w.table, memory, entries, &timeouts);
	while (in.left > 0) {
		operate(&w, &in);
		check_counts(&w);
		check_away(&w);
	}
	for (int k = 0; k < IDS; k++)
		flush(&w, BACKEND[k], MAX_BUCKETS);
	must(w.table.counters.live == 0);
	check_counts(&w);
	memset(w.table.buckets, 0, w.table.bucket_count * sizeof(struct conn_bucket));
	return 0;
}
