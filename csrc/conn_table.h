// Connection table: flow hash -> backend, a bounded cache owned by one worker (DESIGN 6).
// [pure] An insert may fail; the packet still goes where the Maglev table says.
//
// Only the owning worker calls the functions that change a table. Other threads may read counters and buckets with
// relaxed loads: an entry is one aligned 64-bit word, so it is seen whole or not at all.

#ifndef MAGLEV_CONN_TABLE_H
#define MAGLEV_CONN_TABLE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum conn_state { CONN_HALF_OPEN, CONN_ESTABLISHED, CONN_CLOSING, CONN_DATAGRAM };

enum {
	CONN_WAYS = 5,
	CONN_REACH = 8, // buckets where a flow may stand: its own, and when that is full one of the next
	CONN_MAX_BACKENDS = 1 << 16,
	CONN_ALL_BACKENDS = CONN_MAX_BACKENDS, // for conn_flush()
	CONN_MAX_VIPS = 1 << 14,
	CONN_MAX_GENERATION = (1 << 12) - 1, // generations are 1 .. this
	CONN_CLOCK_BITS = 20,                // seconds; wraps after 12 days, and the sweep visits every bucket in minutes
	CONN_LONGEST = 86400,                // seconds: the longest timeout there is
	CONN_LAYOUT = 1,                     // raised with every change of what a table's memory means, hash included
};

// One bucket is one cache line, so a lookup costs one memory access, which the caller has prefetched; only of a bucket
// whose flows had to go further on are the next ones looked at: at half load one bucket in 22, and no flow is refused.
// entry word, from the low end: clock 20 | state 2 | vip 14 | generation 12 | backend 16; 0 = empty.
struct conn_bucket {
	uint32_t tag[CONN_WAYS]; // upper half of the flow hash
	uint16_t away;           // flows of this bucket that stand further on
	uint16_t distance;       // 3 bits per way: how many buckets before this one the flow's own is
	uint64_t entry[CONN_WAYS];
} __attribute__((aligned(64)));
static_assert(sizeof(struct conn_bucket) == 64, "a bucket is one cache line");
static_assert(CONN_REACH <= 8 && 3 * CONN_WAYS <= 16, "the distances of all ways fit their field");

// The end of a table's memory: what its next owner must find there, should this one be killed.
struct conn_tail {
	uint32_t layout;       // CONN_LAYOUT; 0 = never was a table
	uint32_t bucket_count;
	uint32_t clock;        // of the owner's last tick; long after it, old entries could be taken for new ones
} __attribute__((aligned(64)));

// What an entry says, unpacked.
struct conn_entry {
	uint16_t backend;    // stable index of the backend
	uint16_t generation; // of that index; tells a reused index from its former owner
	uint16_t vip;        // stable index of the vip
	enum conn_state state;
	uint32_t seen; // clock of the last packet, in seconds
};

// Seconds after the last packet, by state; each 1 .. CONN_LONGEST.
struct conn_timeouts {
	uint32_t seconds[4];
};

// Single writer: the owning worker.
struct conn_counters {
	uint64_t live;     // entries that hold a flow, expired ones not yet swept included
	uint64_t inserted; // new entries
	uint64_t evicted;  // closing or half-open entries that made room for another
	uint64_t refused;  // inserts that found no room
};

struct conn_table {
	struct conn_bucket *buckets; // memory of the caller
	uint32_t bucket_count;
	uint32_t sweep_at; // next bucket of the sweep
	uint32_t reach;    // CONN_REACH, or all buckets of a smaller table
	struct conn_timeouts timeouts;
	struct conn_counters counters;
	uint32_t *vip_live;     // [CONN_MAX_VIPS] live entries per vip
	uint32_t *backend_live; // [CONN_MAX_BACKENDS] live entries per backend
	struct conn_tail *tail;
};

// Which numbers in entries mean something to a table's next owner.
struct conn_known {
	const uint16_t *generation; // [CONN_MAX_BACKENDS] by backend; 0 = nobody has this number
	const uint8_t *vip;         // [CONN_MAX_VIPS] 1 = a vip has this number
};

// Bytes that a table of `entries` entries needs, 64-byte aligned, given to conn_table_init() as `memory`: zeroed, or
// that of a former owner, and then conn_table_take_over() comes next.
size_t conn_table_memory(uint32_t entries);
void conn_table_init(struct conn_table *t, void *memory, uint32_t entries, const struct conn_timeouts *timeouts);

// Whether the memory was a table of this layout and size when its former owner ended, at whatever instruction.
bool conn_table_whole(const struct conn_table *t);

// Once, after conn_table_init() on memory that outlived its owner: forget what has expired by `now` or is not known
// (NULL: everything), count the rest. `now` must go on from the former owner's clock.
void conn_table_take_over(struct conn_table *t, const struct conn_known *known, uint32_t now);

// The owner is there at `now`; to be said every second. Not before it has taken over.
static inline void conn_tick(struct conn_table *t, uint32_t now)
{
	__atomic_store_n(&t->tail->clock, now, __ATOMIC_RELAXED);
}

// The flow's own bucket.
static inline struct conn_bucket *conn_home(const struct conn_table *t, uint64_t flow_hash)
{
	return &t->buckets[(flow_hash & 0xffffffff) * t->bucket_count >> 32];
}

// Bring the flow's bucket near; call for a whole burst before the first lookup.
static inline void conn_prefetch(const struct conn_table *t, uint64_t flow_hash)
{
	__builtin_prefetch(conn_home(t, flow_hash), 1);
}

// Where a flow may stand that is not in its own bucket, which is near already: most of these are in the next one.
static inline void conn_prefetch_next(const struct conn_table *t, uint64_t flow_hash)
{
	const struct conn_bucket *home = conn_home(t, flow_hash);

	if (home->away != 0)
		__builtin_prefetch(home + 1); // behind the last one are counters: harmless
}

// The two ways to compare tags, equal in result: bit w is set when tag[w] equals `tag`.
static inline uint32_t conn_match_scalar(const struct conn_bucket *b, uint32_t tag)
{
	uint32_t match = 0;

	for (int w = 0; w < CONN_WAYS; w++)
		match |= (uint32_t)(b->tag[w] == tag) << w;
	return match;
}

static inline uint32_t conn_match(const struct conn_bucket *b, uint32_t tag)
{
#ifdef __SSE2__
	// Four and again four that overlap, since a branch for the fifth could not be foretold.
	const __m128i wanted = _mm_set1_epi32((int)tag);
	__m128i first = _mm_cmpeq_epi32(_mm_load_si128((const __m128i *)b->tag), wanted);
	__m128i last = _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)(b->tag + 1)), wanted);

	return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(first)) |
	       (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(last)) << 1;
#else
	return conn_match_scalar(b, tag);
#endif
}

static inline uint16_t conn_word_backend(uint64_t word)
{
	return (uint16_t)(word >> 48);
}

static inline uint16_t conn_word_generation(uint64_t word)
{
	return word >> 36 & CONN_MAX_GENERATION;
}

// Seconds since the last packet of an entry.
static inline uint32_t conn_age(uint64_t word, uint32_t now)
{
	return (now - (uint32_t)word) & ((1u << CONN_CLOCK_BITS) - 1);
}

// What nearly every lookup finds: the flow's live entry, in this state, in its own bucket. NULL: conn_lookup() tells.
// Not for CONN_HALF_OPEN: with vip 0 that is also what an empty entry says, whose tag means nothing.
static inline uint64_t *conn_find(const struct conn_table *t, uint64_t flow_hash, uint16_t vip, enum conn_state state,
				  uint32_t now)
{
	struct conn_bucket *b = conn_home(t, flow_hash);
	uint32_t match = conn_match(b, (uint32_t)(flow_hash >> 32)), age;
	uint64_t word;
	int way;

	if (match == 0)
		return NULL;
	way = __builtin_ctz(match);
	word = b->entry[way];
	if ((uint16_t)(word >> CONN_CLOCK_BITS) != (state | vip << 2) ||
	    (b->distance >> (3 * way) & (CONN_REACH - 1)) != 0)
		return NULL;
	age = conn_age(word, now);
	return age == 0 || age <= t->timeouts.seconds[state] ? &b->entry[way] : NULL;
}

// One more packet of an entry whose state it leaves as it is. Written only when the second changed.
static inline void conn_stamp(uint64_t *entry, uint32_t now)
{
	uint32_t age = conn_age(*entry, now);
	const uint64_t clock = (1u << CONN_CLOCK_BITS) - 1;

	if (age != 0)
		__atomic_store_n(entry, (*entry & ~clock) | (now & clock), __ATOMIC_RELAXED); // complete in itself
}

enum { CONN_ABSENT = -1, CONN_EXPIRED = -2 };

// The live entry of a flow of this vip. Returns its way (0 .. CONN_WAYS * CONN_REACH - 1) and fills `found`; else says
// that there is none, or one that is not live any more.
int conn_lookup(const struct conn_table *t, uint64_t flow_hash, uint16_t vip, uint32_t now, struct conn_entry *found);

// One more packet of the entry at `way`: moves its state by the packet's TCP flags and stamps it. `found` is what
// conn_lookup() said. Writes only when the state or the second changed.
void conn_seen(struct conn_table *t, uint64_t flow_hash, int way, struct conn_entry *found, uint8_t tcp_flags,
	       uint32_t now);

// Whether a packet with these flags starts a new flow although an entry is there: a SYN on a closing one.
static inline bool conn_starts_anew(const struct conn_entry *found, uint8_t tcp_flags)
{
	return found->state == CONN_CLOSING && (tcp_flags & 0x06) == 0x02;
}

// Remember a new flow, or rewrite the one that is there. It takes a free or expired place, in its own bucket or, while
// the table is not nearly full, further on; else the place of a closing flow of its bucket, then of a half-open one.
// Returns false when there is no room: then nothing changed.
bool conn_insert(struct conn_table *t, uint64_t flow_hash, const struct conn_entry *entry, uint32_t now);

// Likewise, when conn_lookup() has just said CONN_ABSENT.
bool conn_insert_absent(struct conn_table *t, uint64_t flow_hash, const struct conn_entry *entry, uint32_t now);

// Whether the vip may make new entries: past three quarters full, only within its fair share.
bool conn_fair(const struct conn_table *t, uint16_t vip, uint32_t vips);

// Clear what has expired in the next `buckets` buckets, going round.
void conn_sweep(struct conn_table *t, uint32_t buckets, uint32_t now);

// Forget every flow of one backend, or of CONN_ALL_BACKENDS, in the next `buckets` buckets from *at on. Returns true, and *at is 0 again, when
// the end was reached.
bool conn_flush(struct conn_table *t, uint32_t backend, uint32_t *at, uint32_t buckets);

// Entries alive at `now`; reads the whole table.
uint64_t conn_count_alive(const struct conn_table *t, uint32_t now);

#endif
