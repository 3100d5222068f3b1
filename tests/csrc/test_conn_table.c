#include "harness.h"

#include <sys/mman.h>

#include "conn_table.h"
#include "parse.h"

enum { HALF_OPEN_SECONDS = 10, ESTABLISHED_SECONDS = 7200, CLOSING_SECONDS = 5, DATAGRAM_SECONDS = 60 };
enum { WRAP = 1 << CONN_CLOCK_BITS };

static const struct conn_timeouts TIMEOUTS = {
	{HALF_OPEN_SECONDS, ESTABLISHED_SECONDS, CLOSING_SECONDS, DATAGRAM_SECONDS}};

static struct conn_table table_with(uint32_t entries, const struct conn_timeouts *timeouts)
{
	size_t bytes = conn_table_memory(entries);
	void *memory = aligned_alloc(64, bytes);
	struct conn_table t;

	assert_non_null(memory);
	memset(memory, 0, bytes);
	conn_table_init(&t, memory, entries, timeouts);
	return t;
}

static struct conn_table table_of(uint32_t entries)
{
	return table_with(entries, &TIMEOUTS);
}

// In slices of three buckets, as a worker does it between bursts.
static void flush(struct conn_table *t, uint32_t backend)
{
	uint32_t at = 0, turns = 1;

	while (!conn_flush(t, backend, &at, 3))
		turns++;
	assert_int_equal(at, 0);
	assert_true(turns <= t->bucket_count / 3 + 1);
}

static void drop(struct conn_table *t)
{
	free(t->buckets);
}

static void recount(const struct conn_table *t);

// Flow number `i` of one bucket: in a table of one bucket every lower half leads there.
static uint64_t flow(uint32_t i)
{
	return (uint64_t)(0x1000 + i) << 32 | i;
}

static struct conn_entry entry(uint16_t backend, uint16_t vip, enum conn_state state)
{
	return (struct conn_entry){.backend = backend, .generation = 1, .vip = vip, .state = state};
}

static bool insert(struct conn_table *t, uint64_t hash, uint16_t backend, enum conn_state state, uint32_t now)
{
	struct conn_entry e = entry(backend, 0, state);

	return conn_insert(t, hash, &e, now);
}

// Whether the flow of vip 0 is known at `now`.
static bool known(const struct conn_table *t, uint64_t hash, uint32_t now)
{
	struct conn_entry found;

	return conn_lookup(t, hash, 0, now, &found) >= 0;
}

// One more packet of a flow of vip 0 that must be known; returns the state after it.
static enum conn_state packet(struct conn_table *t, uint64_t hash, uint8_t flags, uint32_t now)
{
	struct conn_entry found;
	int way = conn_lookup(t, hash, 0, now, &found);

	assert_true(way >= 0 && way < CONN_WAYS);
	conn_seen(t, hash, way, &found, flags, now);
	return found.state;
}

static void simd_and_scalar_compare_alike(void **state)
{
	static const uint32_t tags[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
	uint64_t seed = 1;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		struct conn_bucket b;
		uint32_t tag = tags[random_below(&seed, COUNT(tags))], expected = 0;

		memset(&b, 0xff, sizeof(b));
		b.away = tag; // stands behind the tags, and is none
		for (int w = 0; w < CONN_WAYS; w++) {
			bool one_bit_off = random_below(&seed, 2) == 0;

			b.tag[w] = one_bit_off ? tag ^ 1U << random_below(&seed, 32)
					       : tags[random_below(&seed, COUNT(tags))];
			expected |= (uint32_t)(b.tag[w] == tag) << w;
		}
		assert_int_equal(conn_match_scalar(&b, tag), expected);
		assert_int_equal(conn_match(&b, tag), expected);
	}
}

static void a_flow_is_found_with_all_that_was_said(void **state)
{
	static const struct conn_entry rows[] = {
		{0, 1, 0, CONN_HALF_OPEN, 0},
		{65534, CONN_MAX_GENERATION, CONN_MAX_VIPS - 1, CONN_DATAGRAM, 0},
		{0x5555, 0x555, 0x1555, CONN_CLOSING, 0},
		{0xaaaa, 0xaaa, 0x2aaa, CONN_ESTABLISHED, 0},
	};
	struct conn_table t = table_of(1000);

	(void)state;
	for (uint32_t i = 0; i < COUNT(rows); i++) {
		struct conn_entry found;

		assert_true(conn_insert(&t, flow(i), &rows[i], 77));
		assert_true(conn_lookup(&t, flow(i), rows[i].vip, 77, &found) >= 0);
		assert_int_equal(found.backend, rows[i].backend);
		assert_int_equal(found.generation, rows[i].generation);
		assert_int_equal(found.vip, rows[i].vip);
		assert_int_equal(found.state, rows[i].state);
		assert_int_equal(found.seen, 77);
	}
	assert_int_equal(t.counters.inserted, COUNT(rows));
	drop(&t);
}

static void an_unknown_flow_is_not_found(void **state)
{
	struct conn_table t = table_of(5);

	(void)state;
	assert_false(known(&t, 0, 0)); // the tag of an empty way is 0 too
	assert_true(insert(&t, flow(1), 3, CONN_DATAGRAM, 0));
	assert_false(known(&t, flow(2), 0));
	assert_true(known(&t, flow(1), 0));
	drop(&t);
}

static void tag_zero_is_a_tag_like_any_other(void **state)
{
	struct conn_table t = table_of(5);

	(void)state;
	assert_true(insert(&t, 0, 3, CONN_DATAGRAM, 0));
	assert_true(known(&t, 0, 0));
	assert_int_equal(t.counters.live, 1);
	drop(&t);
}

static void the_vip_is_part_of_the_match(void **state)
{
	struct conn_table t = table_of(5);
	struct conn_entry one = entry(1, 1, CONN_ESTABLISHED), two = entry(2, 2, CONN_ESTABLISHED), found;

	(void)state;
	assert_true(conn_insert(&t, flow(1), &one, 0));
	assert_int_equal(conn_lookup(&t, flow(1), 2, 0, &found), -1);
	assert_true(conn_insert(&t, flow(1), &two, 0)); // a colliding flow of another service: a second entry
	assert_int_equal(t.counters.live, 2);
	assert_true(conn_lookup(&t, flow(1), 1, 0, &found) >= 0);
	assert_int_equal(found.backend, 1);
	assert_true(conn_lookup(&t, flow(1), 2, 0, &found) >= 0);
	assert_int_equal(found.backend, 2);
	assert_int_equal(conn_lookup(&t, flow(1), 3, 0, &found), -1);
	drop(&t);
}

// Flows in all buckets.
static uint64_t spread(uint64_t n)
{
	return (n + 1) * 0x9e3779b97f4a7c15;
}

// conn_find() and conn_stamp() do in few instructions what conn_lookup() and conn_seen() do with a packet without flags.
static void the_short_way_leads_to_the_same_entry(void **state)
{
	static const enum conn_state states[] = {CONN_ESTABLISHED, CONN_DATAGRAM};

	(void)state;
	for (size_t i = 0; i < COUNT(states); i++) {
		struct conn_table a = table_of(500), b = table_of(500);

		for (uint64_t n = 0; n < 300; n++) {
			struct conn_entry e = entry((uint16_t)n, 3, states[i]);

			assert_true(conn_insert(&a, spread(n), &e, 50) && conn_insert(&b, spread(n), &e, 50));
		}
		for (uint64_t n = 0; n < 300; n++) {
			uint32_t limit = a.timeouts.seconds[states[i]], age = (uint32_t)n * limit / 200, now = 50 + age;
			struct conn_entry found;
			int way = conn_lookup(&a, spread(n), 3, now, &found);
			uint64_t *entry = conn_find(&b, spread(n), 3, states[i], now);

			assert_int_equal(way >= 0, age <= limit);
			assert_int_equal(entry != NULL, way >= 0 && way < CONN_WAYS);
			assert_null(conn_find(&b, spread(n), 4, states[i], now));
			assert_null(conn_find(&b, spread(n), 3, CONN_HALF_OPEN, now));
			if (entry == NULL)
				continue;
			assert_int_equal(conn_word_backend(*entry), n);
			assert_int_equal(conn_word_generation(*entry), found.generation);
			conn_seen(&a, spread(n), way, &found, TCP_ACK, now);
			conn_stamp(entry, now);
		}
		assert_memory_equal(a.buckets, b.buckets, a.bucket_count * sizeof(*a.buckets));
		drop(&a);
		drop(&b);
	}
}

static void states_move_by_flags_and_ticks(void **state)
{
	static const struct {
		const char *what;
		enum conn_state from;
		uint8_t flags;
		uint32_t later; // ticks after the entry was made
		enum conn_state to;
	} rows[] = {
		{"a SYN again", CONN_HALF_OPEN, TCP_SYN, 0, CONN_HALF_OPEN},
		{"a SYN again, later", CONN_HALF_OPEN, TCP_SYN, 3, CONN_HALF_OPEN},
		{"SYN with ACK, later", CONN_HALF_OPEN, TCP_SYN | TCP_ACK, 3, CONN_HALF_OPEN},
		{"ACK within the tick", CONN_HALF_OPEN, TCP_ACK, 0, CONN_HALF_OPEN},
		{"ACK a tick later", CONN_HALF_OPEN, TCP_ACK, 1, CONN_ESTABLISHED},
		{"no flags at all, a tick later", CONN_HALF_OPEN, 0, 1, CONN_ESTABLISHED},
		{"FIN of a half-open one", CONN_HALF_OPEN, TCP_FIN | TCP_ACK, 1, CONN_CLOSING},
		{"RST of a half-open one", CONN_HALF_OPEN, TCP_RST, 0, CONN_CLOSING},
		{"data", CONN_ESTABLISHED, TCP_ACK, 100, CONN_ESTABLISHED},
		{"SYN on an established one", CONN_ESTABLISHED, TCP_SYN, 1, CONN_ESTABLISHED},
		{"FIN", CONN_ESTABLISHED, TCP_FIN | TCP_ACK, 0, CONN_CLOSING},
		{"RST", CONN_ESTABLISHED, TCP_RST | TCP_ACK, 0, CONN_CLOSING},
		{"the last ACK", CONN_CLOSING, TCP_ACK, 1, CONN_CLOSING},
		{"RST behind FIN", CONN_CLOSING, TCP_RST, 1, CONN_CLOSING},
		{"a datagram", CONN_DATAGRAM, 0, 5, CONN_DATAGRAM},
		{"a datagram has no flags", CONN_DATAGRAM, TCP_FIN | TCP_RST | TCP_SYN, 5, CONN_DATAGRAM},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct conn_table t = table_of(5);
		struct conn_entry found;

		assert_true(insert(&t, flow(1), 1, rows[i].from, 50));
		check_row(rows[i].what, packet(&t, flow(1), rows[i].flags, 50 + rows[i].later) == rows[i].to);
		assert_true(conn_lookup(&t, flow(1), 0, 50 + rows[i].later, &found) >= 0);
		check_row(rows[i].what, found.state == rows[i].to && found.seen == 50 + rows[i].later);
		check_row(rows[i].what, found.backend == 1 && found.generation == 1);
		assert_int_equal(t.counters.live, 1);
		drop(&t);
	}
}

static void only_a_bare_syn_on_a_closing_flow_starts_anew(void **state)
{
	(void)state;
	for (int s = CONN_HALF_OPEN; s <= CONN_DATAGRAM; s++)
		for (uint32_t flags = 0; flags < 64; flags++) {
			struct conn_entry e = entry(1, 0, (enum conn_state)s);
			bool wanted = s == CONN_CLOSING && (flags & TCP_SYN) != 0 && (flags & TCP_RST) == 0;

			assert_int_equal(conn_starts_anew(&e, (uint8_t)flags), wanted);
		}
}

static void a_new_flow_takes_the_place_of_its_closing_one(void **state)
{
	struct conn_table t = table_of(5);
	struct conn_entry found;

	(void)state;
	for (uint32_t i = 0; i < CONN_WAYS; i++)
		assert_true(insert(&t, flow(i), 1, i == 2 ? CONN_CLOSING : CONN_ESTABLISHED, 0));
	assert_true(insert(&t, flow(2), 9, CONN_HALF_OPEN, 1));
	assert_true(conn_lookup(&t, flow(2), 0, 1, &found) >= 0);
	assert_int_equal(found.backend, 9);
	assert_int_equal(found.state, CONN_HALF_OPEN);
	assert_int_equal(t.counters.live, CONN_WAYS);
	assert_int_equal(t.counters.evicted, 0);
	assert_int_equal(t.backend_live[1], CONN_WAYS - 1);
	assert_int_equal(t.backend_live[9], 1);
	for (uint32_t i = 0; i < CONN_WAYS; i++)
		assert_true(known(&t, flow(i), 1));
	drop(&t);
}

static void a_full_bucket_gives_up_expired_then_closing_then_half_open_and_nothing_else(void **state)
{
	static const struct {
		const char *what;
		enum conn_state there[CONN_WAYS];
		int expired;  // which of them, -1 none
		int expected; // which one must go, -1: the insert is refused
	} rows[] = {
		{"expired before half-open", {CONN_HALF_OPEN, CONN_ESTABLISHED, CONN_DATAGRAM, CONN_DATAGRAM, CONN_CLOSING}, 1, 1},
		{"expired before half-open, the other way round", {CONN_ESTABLISHED, 1, 1, 1, CONN_HALF_OPEN}, 0, 0},
		{"closing before half-open", {CONN_ESTABLISHED, CONN_DATAGRAM, CONN_HALF_OPEN, CONN_CLOSING, CONN_ESTABLISHED}, -1, 3},
		{"half-open", {CONN_ESTABLISHED, CONN_DATAGRAM, CONN_HALF_OPEN, CONN_DATAGRAM, CONN_ESTABLISHED}, -1, 2},
		{"first half-open", {CONN_HALF_OPEN, 1, 1, 1, 1}, -1, 0},
		{"last half-open", {1, 1, 1, 1, CONN_HALF_OPEN}, -1, 4},
		{"five established", {1, 1, 1, 1, 1}, -1, -1},
		{"last closing", {1, 1, 1, 1, CONN_CLOSING}, -1, 4},
		{"five datagram", {3, 3, 3, 3, 3}, -1, -1},
		{"one expired half-open among live half-open", {0, 0, 0, 0, 0}, 3, 3},
	};
	const uint32_t now = 50000;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		for (int made = CONN_HALF_OPEN; made <= CONN_DATAGRAM; made++) {
			struct conn_table t = table_of(5);
			bool took;

			for (int k = 0; k < CONN_WAYS; k++) {
				uint32_t seen = rows[i].expired == k ? now - 40000 : now;

				assert_true(insert(&t, flow((uint32_t)k), 1, rows[i].there[k], seen));
			}
			took = insert(&t, flow(9), 2, (enum conn_state)made, now);
			check_row(rows[i].what, took == (rows[i].expected >= 0) && known(&t, flow(9), now) == took);
			for (int k = 0; k < CONN_WAYS; k++)
				check_row(rows[i].what, known(&t, flow((uint32_t)k), now) ==
								(k != rows[i].expected && k != rows[i].expired));
			check_row(rows[i].what, t.counters.refused == !took);
			check_row(rows[i].what, t.counters.evicted == (took && rows[i].expired < 0));
			check_row(rows[i].what, t.counters.live == CONN_WAYS && t.backend_live[2] == took);
			drop(&t);
		}
}

static void an_empty_way_is_taken_before_a_half_open_one(void **state)
{
	struct conn_table t = table_of(5);

	(void)state;
	for (uint32_t i = 0; i < CONN_WAYS; i++)
		assert_true(insert(&t, flow(i), 1, CONN_HALF_OPEN, 0));
	assert_int_equal(t.counters.evicted, 0);
	for (uint32_t i = 0; i < CONN_WAYS; i++)
		assert_true(known(&t, flow(i), 0));
	drop(&t);
}

// A flood of first packets, whatever their flags, must not cost one established flow.
static void a_flood_does_not_touch_established_flows(void **state)
{
	enum { LIVE = 100, FLOOD = 1000000 };
	struct conn_table t = table_of(10000);
	uint64_t seed = 1, live[LIVE], made = 0;

	(void)state;
	for (uint32_t i = 0; i < LIVE; i++) {
		live[i] = next_random(&seed);
		assert_true(insert(&t, live[i], (uint16_t)(100 + i), CONN_ESTABLISHED, 0));
	}
	for (uint32_t i = 0; i < FLOOD; i++)
		made += insert(&t, next_random(&seed), 1, i % 2 ? CONN_HALF_OPEN : CONN_DATAGRAM, i / 100000);
	for (uint32_t i = 0; i < LIVE; i++) {
		struct conn_entry found;

		assert_true(conn_lookup(&t, live[i], 0, 10, &found) >= 0);
		assert_int_equal(found.backend, 100 + i);
	}
	assert_int_equal(t.counters.refused + made, FLOOD);
	assert_true(t.counters.refused > 0 && t.counters.live <= 10000);
	drop(&t);
}

static void an_entry_lives_through_the_second_of_its_timeout(void **state)
{
	static const uint32_t seconds[] = {1, 2, 10, 60, 3600, 86399, 86400};

	(void)state;
	for (size_t i = 0; i < COUNT(seconds); i++)
		for (int s = CONN_HALF_OPEN; s <= CONN_DATAGRAM; s++) {
			struct conn_timeouts timeouts = {{1, 1, 1, 1}};
			struct conn_table t;

			timeouts.seconds[s] = seconds[i];
			t = table_with(5, &timeouts);
			assert_true(insert(&t, flow(1), 1, (enum conn_state)s, 1000));
			assert_true(known(&t, flow(1), 1000 + seconds[i]));
			assert_false(known(&t, flow(1), 1001 + seconds[i]));
			assert_int_equal(conn_count_alive(&t, 1000 + seconds[i]), 1);
			assert_int_equal(conn_count_alive(&t, 1001 + seconds[i]), 0);
			drop(&t);
		}
}

static void every_packet_starts_the_timeout_again(void **state)
{
	struct conn_table t = table_of(5);

	(void)state;
	assert_true(insert(&t, flow(1), 1, CONN_DATAGRAM, 0));
	for (uint32_t now = 0; now < 100 * DATAGRAM_SECONDS; now += DATAGRAM_SECONDS)
		assert_int_equal(packet(&t, flow(1), 0, now), CONN_DATAGRAM);
	assert_false(known(&t, flow(1), 100 * DATAGRAM_SECONDS + 1));
	drop(&t);
}

static void a_syn_alone_goes_at_the_short_timer_and_a_used_flow_stays(void **state)
{
	struct conn_table t = table_of(10);

	(void)state;
	assert_true(insert(&t, flow(1), 1, CONN_HALF_OPEN, 0));
	assert_true(insert(&t, flow(2), 1, CONN_HALF_OPEN, 0));
	assert_int_equal(packet(&t, flow(2), TCP_ACK, 1), CONN_ESTABLISHED);
	assert_false(known(&t, flow(1), HALF_OPEN_SECONDS + 1));
	assert_true(known(&t, flow(2), 1 + ESTABLISHED_SECONDS));
	assert_int_equal(packet(&t, flow(2), TCP_FIN | TCP_ACK, 100), CONN_CLOSING);
	assert_true(known(&t, flow(2), 100 + CLOSING_SECONDS));
	assert_false(known(&t, flow(2), 101 + CLOSING_SECONDS));
	drop(&t);
}

static void the_clock_may_wrap(void **state)
{
	static const uint32_t starts[] = {WRAP - 1, WRAP - 5, 2U * WRAP - 3, 0xffffffffU};

	(void)state;
	for (size_t i = 0; i < COUNT(starts); i++) {
		struct conn_timeouts day = {{HALF_OPEN_SECONDS, 86400, CLOSING_SECONDS, DATAGRAM_SECONDS}};
		struct conn_table t = table_with(10, &day);
		uint32_t start = starts[i];

		assert_true(insert(&t, flow(1), 1, CONN_HALF_OPEN, start));
		assert_true(insert(&t, flow(2), 1, CONN_HALF_OPEN, start));
		assert_int_equal(packet(&t, flow(1), TCP_ACK, start), CONN_HALF_OPEN);
		assert_int_equal(packet(&t, flow(1), TCP_ACK, start + 7), CONN_ESTABLISHED);
		assert_true(known(&t, flow(2), start + HALF_OPEN_SECONDS));
		assert_false(known(&t, flow(2), start + HALF_OPEN_SECONDS + 1));
		conn_sweep(&t, t.bucket_count, start + HALF_OPEN_SECONDS + 1);
		assert_int_equal(t.counters.live, 1);
		assert_true(known(&t, flow(1), start + 7 + 86400));
		assert_false(known(&t, flow(1), start + 7 + 86401));
		drop(&t);
	}
}

// The one write of a packet is the stamp, once a tick: the rest goes through on memory that cannot be written.
static void a_packet_within_the_tick_writes_nothing(void **state)
{
	size_t bytes = conn_table_memory(5);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct conn_entry found;
	struct conn_table t;

	(void)state;
	assert_ptr_not_equal(memory, MAP_FAILED);
	conn_table_init(&t, memory, 5, &TIMEOUTS);
	assert_true(insert(&t, flow(1), 1, CONN_DATAGRAM, 5));
	assert_true(insert(&t, flow(2), 1, CONN_CLOSING, 5));
	assert_int_equal(mprotect(memory, bytes, PROT_READ), 0);
	packet(&t, flow(1), 0, 5);
	packet(&t, flow(2), TCP_ACK, 5);
	assert_false(known(&t, flow(3), 5));
	assert_int_equal(mprotect(memory, bytes, PROT_READ | PROT_WRITE), 0);
	packet(&t, flow(1), 0, 6);
	assert_true(conn_lookup(&t, flow(1), 0, 6, &found) >= 0);
	assert_int_equal(found.seen, 6);
	assert_int_equal(munmap(memory, bytes), 0);
}

static void the_sweep_goes_round_and_clears_only_what_expired(void **state)
{
	enum { ENTRIES = 500 };
	struct conn_table t = table_of(ENTRIES);
	uint64_t seed = 3, alive;

	(void)state;
	for (uint32_t i = 0; i < ENTRIES; i++)
		insert(&t, next_random(&seed), (uint16_t)(i % 7), i % 2 ? CONN_ESTABLISHED : CONN_DATAGRAM, i % 50);
	alive = conn_count_alive(&t, 85);
	assert_true(alive > 0 && alive < t.counters.live);
	for (uint32_t i = 0; i < t.bucket_count; i += 7)
		conn_sweep(&t, 7, 85);
	assert_int_equal(t.counters.live, alive);
	assert_int_equal(t.sweep_at, 5); // 15 x 7 buckets of 100
	conn_sweep(&t, 3 * t.bucket_count, 100000);
	assert_int_equal(t.counters.live, 0);
	assert_int_equal(t.sweep_at, 5);
	drop(&t);
}

static void flush_forgets_one_backend_or_all_whatever_the_state(void **state)
{
	struct conn_table t = table_of(8000);
	uint64_t hashes[400], seed = 4;

	(void)state;
	for (uint32_t i = 0; i < COUNT(hashes); i++) {
		hashes[i] = next_random(&seed);
		assert_true(insert(&t, hashes[i], (uint16_t)(i % 4), (enum conn_state)(i / 4 % 4), 0));
	}
	flush(&t, 2);
	for (uint32_t i = 0; i < COUNT(hashes); i++)
		assert_int_equal(known(&t, hashes[i], 0), i % 4 != 2);
	assert_int_equal(t.backend_live[2], 0);
	assert_int_equal(t.counters.live, 300);
	flush(&t, 65535);
	flush(&t, 2);
	assert_int_equal(t.counters.live, 300);
	flush(&t, CONN_ALL_BACKENDS);
	assert_int_equal(t.counters.live, 0);
	recount(&t);
	drop(&t);
}

static void above_three_quarters_a_vip_keeps_to_its_share(void **state)
{
	static const struct {
		const char *what;
		uint64_t live;
		uint32_t of_vip, vips;
		bool fair;
	} rows[] = { // of 1000 entries
		{"an empty table is for all", 0, 0, 10, true},
		{"exactly three quarters, all one vip's", 750, 750, 10, true},
		{"over, and it has more than its tenth", 751, 200, 10, false},
		{"over, and it has exactly its tenth", 751, 100, 10, true},
		{"over, and it has one more than its tenth", 751, 101, 10, false},
		{"over, and it has less than its tenth", 751, 99, 10, true},
		{"full, and it has nothing", 1000, 0, 10, true},
		{"the only vip may fill the table", 1000, 1000, 1, true},
		{"as many vips as there can be, it has one", 1000, 1, 16384, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct conn_table t = table_of(1000);

		t.counters.live = rows[i].live;
		t.vip_live[3] = rows[i].of_vip;
		check_row(rows[i].what, conn_fair(&t, 3, rows[i].vips) == rows[i].fair);
		drop(&t);
	}
}

static void a_table_has_room_for_what_was_asked_and_stays_in_its_memory(void **state)
{
	static const uint32_t sizes[] = {1, 4, 5, 6, 64, 1001};

	(void)state;
	for (size_t i = 0; i < COUNT(sizes); i++) {
		struct conn_table t = table_of(sizes[i]);
		uint64_t hash = (uint64_t)-1; // the last bucket
		struct conn_entry e = entry(65535, CONN_MAX_VIPS - 1, CONN_DATAGRAM), found;

		assert_true(t.bucket_count * CONN_WAYS >= sizes[i]);
		assert_true(conn_insert(&t, hash, &e, 0));
		assert_true(conn_lookup(&t, hash, CONN_MAX_VIPS - 1, 0, &found) >= 0);
		assert_true(insert(&t, 0, 0, CONN_DATAGRAM, 0)); // the first
		assert_int_equal(t.backend_live[65535], 1);
		assert_int_equal(t.vip_live[CONN_MAX_VIPS - 1], 1);
		drop(&t);
	}
}

// -- random operations against a plain model --------------------------------------------------------------------

enum { FLOWS = 1200, ENTRIES = 400, BACKENDS = 6, VIPS = 3, STEPS = 150000 };

struct model_flow {
	uint64_t hash;
	bool known;
	struct conn_entry entry;
};

static bool model_alive(const struct model_flow *f, uint32_t now)
{
	return f->known && now - f->entry.seen <= TIMEOUTS.seconds[f->entry.state];
}

// What the model says and what the table says about a flow must be the same.
static void compare(const struct conn_table *t, const struct model_flow *f, uint32_t now)
{
	struct conn_entry found;
	int way = conn_lookup(t, f->hash, f->entry.vip, now, &found);

	assert_int_equal(way >= 0, model_alive(f, now));
	if (way < 0)
		return;
	assert_int_equal(found.backend, f->entry.backend);
	assert_int_equal(found.generation, f->entry.generation);
	assert_int_equal(found.state, f->entry.state);
	assert_int_equal(found.seen, f->entry.seen);
}

// Every counter, from the buckets themselves; the word's layout is the header's.
static void recount(const struct conn_table *t)
{
	uint32_t vips[VIPS] = {0}, backends[BACKENDS] = {0}, live = 0;
	uint16_t *away = calloc(t->bucket_count, sizeof(*away));

	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int w = 0; w < CONN_WAYS; w++) {
			uint64_t word = t->buckets[i].entry[w];

			if (word == 0)
				continue;
			live++;
			if ((t->buckets[i].distance >> (3 * w) & 7) != 0) {
				uint32_t distance = t->buckets[i].distance >> (3 * w) & 7;

				away[(i + t->bucket_count - distance) % t->bucket_count]++;
			}
			vips[word >> 22 & 0x3fff]++;
			backends[word >> 48]++;
		}
	assert_int_equal(t->counters.live, live);
	for (uint32_t i = 0; i < t->bucket_count; i++)
		assert_int_equal(t->buckets[i].away, away[i]);
	free(away);
	for (int i = 0; i < VIPS; i++)
		assert_int_equal(t->vip_live[i], vips[i]);
	for (int i = 0; i < BACKENDS; i++)
		assert_int_equal(t->backend_live[i], backends[i]);
}

static void model_insert(struct conn_table *t, struct model_flow *flows, struct model_flow *f, uint64_t *seed,
			 uint32_t now)
{
	struct conn_counters before = t->counters;
	struct conn_entry e = {
		.backend = (uint16_t)random_below(seed, BACKENDS),
		.generation = (uint16_t)(1 + random_below(seed, CONN_MAX_GENERATION)),
		.vip = f->entry.vip,
		.state = (enum conn_state)random_below(seed, 4),
		.seen = now,
	};
	uint64_t evicted = 0;

	if (!conn_insert(t, f->hash, &e, now)) {
		assert_false(model_alive(f, now)); // a flow's own entry can always be rewritten
		assert_int_equal(t->counters.refused, before.refused + 1);
		return;
	}
	f->known = true;
	f->entry = e;
	for (uint32_t i = 0; i < FLOWS; i++) { // whose place was it?
		struct conn_entry found;

		if (!model_alive(&flows[i], now) ||
		    conn_lookup(t, flows[i].hash, flows[i].entry.vip, now, &found) >= 0)
			continue;
		assert_true(flows[i].entry.state == CONN_HALF_OPEN || flows[i].entry.state == CONN_CLOSING);
		flows[i].known = false;
		evicted++;
	}
	assert_int_equal(t->counters.evicted, before.evicted + evicted);
	assert_int_equal(t->counters.inserted, before.inserted + 1);
	assert_true(evicted <= 1);
}

static void model_packet(struct conn_table *t, struct model_flow *f, uint8_t flags, uint32_t now)
{
	struct conn_entry found;
	int way = conn_lookup(t, f->hash, f->entry.vip, now, &found);
	struct conn_entry *e = &f->entry;

	if (way < 0)
		return;
	conn_seen(t, f->hash, way, &found, flags, now);
	if (e->state != CONN_DATAGRAM && (flags & (TCP_FIN | TCP_RST)) != 0)
		e->state = CONN_CLOSING;
	else if (e->state == CONN_HALF_OPEN && (flags & TCP_SYN) == 0 && now > e->seen)
		e->state = CONN_ESTABLISHED;
	e->seen = now;
}

static void model_flush(struct conn_table *t, struct model_flow *flows, uint16_t backend)
{
	flush(t, backend);
	for (uint32_t i = 0; i < FLOWS; i++)
		if (flows[i].entry.backend == backend)
			flows[i].known = false;
}

static void random_operations_agree_with_a_plain_model(void **state)
{
	static const uint8_t flags[] = {0, TCP_SYN, TCP_ACK, TCP_ACK, TCP_ACK, TCP_FIN | TCP_ACK, TCP_RST};
	struct conn_table t = table_of(ENTRIES);
	struct model_flow *flows = calloc(FLOWS, sizeof(*flows));
	uint32_t now = 0;
	uint64_t seed = 5;

	(void)state;
	for (uint32_t i = 0; i < FLOWS; i++) {
		flows[i].hash = next_random(&seed);
		flows[i].entry.vip = (uint16_t)(i % VIPS);
	}
	for (uint32_t step = 0; step < STEPS; step++) {
		struct model_flow *f = &flows[random_below(&seed, FLOWS)];

		switch (random_below(&seed, 8)) {
		case 0:
		case 1:
			model_insert(&t, flows, f, &seed, now);
			break;
		case 2:
			conn_sweep(&t, random_below(&seed, 4), now);
			break;
		default:
			model_packet(&t, f, flags[random_below(&seed, COUNT(flags))], now);
		}
		compare(&t, f, now);
		if (random_below(&seed, 1000) == 0)
			now += random_below(&seed, 12);
		if (step % 5000 == 0)
			model_flush(&t, flows, (uint16_t)random_below(&seed, BACKENDS));
		if (step % 1000 == 0) {
			for (uint32_t i = 0; i < FLOWS; i++)
				compare(&t, &flows[i], now);
			recount(&t);
		}
	}
	assert_true(t.counters.evicted > 1000 && t.counters.refused > 1000); // the table was under pressure
	for (uint16_t i = 0; i < BACKENDS; i++)
		model_flush(&t, flows, i);
	recount(&t);
	assert_int_equal(t.counters.live, 0);
	free(flows);
	drop(&t);
}

// The table is to be twice the size of the live flows: then nobody may be turned away, nor take another's place.
static void half_a_table_of_flows_all_find_a_place(void **state)
{
	struct conn_table t = table_of(32768);
	uint64_t seed = 11, hashes[16384];

	(void)state;
	for (size_t i = 0; i < COUNT(hashes); i++) {
		hashes[i] = next_random(&seed);
		assert_true(insert(&t, hashes[i], 1, CONN_HALF_OPEN, 0));
	}
	for (size_t i = 0; i < COUNT(hashes); i++)
		assert_true(known(&t, hashes[i], 0));
	assert_int_equal(t.counters.live, COUNT(hashes));
	assert_int_equal(t.counters.evicted, 0);
	recount(&t);
	drop(&t);
}

// A flow's own bucket is full, so the next ones are taken, around the end of the table too; not more than the reach.
static void flows_of_a_full_bucket_stand_further_on(void **state)
{
	enum { BUCKETS = 100, MOST = CONN_WAYS * CONN_REACH };
	uint64_t last = 0xffffffff; // the low half that leads to the last bucket

	(void)state;
	for (int first = 0; first < 2; first++) {
		struct conn_table t = table_of(BUCKETS * CONN_WAYS);
		uint64_t low = first ? 0 : last;

		for (uint64_t i = 0; i < MOST; i++)
			assert_true(insert(&t, i << 32 | low, 1, CONN_ESTABLISHED, 0));
		assert_false(insert(&t, (uint64_t)MOST << 32 | low, 1, CONN_HALF_OPEN, 0));
		for (uint64_t i = 0; i < MOST; i++)
			assert_true(known(&t, i << 32 | low, 0));
		recount(&t);
		assert_int_equal(t.buckets[first ? 0 : BUCKETS - 1].away, MOST - CONN_WAYS);
		assert_true(insert(&t, 7ULL << 32 | low, 3, CONN_CLOSING, 0)); // rewritten where it stands
		assert_int_equal(t.counters.live, MOST);
		conn_sweep(&t, BUCKETS, 1000000);
		assert_int_equal(t.counters.live, 0);
		recount(&t);
		drop(&t);
	}
}

static void a_table_that_is_nearly_full_is_not_searched(void **state)
{
	struct conn_table t = table_of(500);
	uint64_t seed = 13;

	(void)state;
	while (t.counters.live * 8 < 500 * 7)
		insert(&t, next_random(&seed), 1, CONN_HALF_OPEN, 0);
	for (int i = 0; i < 10000; i++)
		insert(&t, next_random(&seed), 1, CONN_HALF_OPEN, 0);
	recount(&t);
	for (uint32_t i = 0; i < t.bucket_count; i++)
		assert_true(t.buckets[i].away <= CONN_WAYS * (CONN_REACH - 1));
	assert_true(t.counters.live <= 500);
	drop(&t);
}

// So that a flood's lookups end in one bucket again.
static void of_half_open_flows_the_one_away_from_home_gives_way_first(void **state)
{
	enum { BUCKETS = 2, ALL = BUCKETS * CONN_WAYS };
	struct conn_table t = table_of(ALL);
	uint64_t first = 0, second = 1ULL << 31, stranger = CONN_WAYS; // the flow of the first bucket that found it full

	(void)state;
	for (uint64_t i = 0; i <= stranger; i++)
		assert_true(insert(&t, i << 32 | first, 1, CONN_HALF_OPEN, 0));
	assert_int_equal(t.buckets[0].away, 1);
	for (uint64_t i = stranger + 1; i <= ALL; i++)
		assert_true(insert(&t, i << 32 | second, 1, CONN_HALF_OPEN, 0));
	for (uint64_t i = 0; i <= ALL; i++)
		assert_int_equal(known(&t, i << 32 | (i <= stranger ? first : second), 0), i != stranger);
	assert_int_equal(t.buckets[0].away, 0);
	assert_int_equal(t.counters.evicted, 1);
	recount(&t);
	drop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(simd_and_scalar_compare_alike),
		cmocka_unit_test(a_flow_is_found_with_all_that_was_said),
		cmocka_unit_test(an_unknown_flow_is_not_found),
		cmocka_unit_test(tag_zero_is_a_tag_like_any_other),
		cmocka_unit_test(the_vip_is_part_of_the_match),
		cmocka_unit_test(the_short_way_leads_to_the_same_entry),
		cmocka_unit_test(states_move_by_flags_and_ticks),
		cmocka_unit_test(only_a_bare_syn_on_a_closing_flow_starts_anew),
		cmocka_unit_test(a_new_flow_takes_the_place_of_its_closing_one),
		cmocka_unit_test(a_full_bucket_gives_up_expired_then_closing_then_half_open_and_nothing_else),
		cmocka_unit_test(an_empty_way_is_taken_before_a_half_open_one),
		cmocka_unit_test(a_flood_does_not_touch_established_flows),
		cmocka_unit_test(an_entry_lives_through_the_second_of_its_timeout),
		cmocka_unit_test(every_packet_starts_the_timeout_again),
		cmocka_unit_test(a_syn_alone_goes_at_the_short_timer_and_a_used_flow_stays),
		cmocka_unit_test(the_clock_may_wrap),
		cmocka_unit_test(a_packet_within_the_tick_writes_nothing),
		cmocka_unit_test(the_sweep_goes_round_and_clears_only_what_expired),
		cmocka_unit_test(flush_forgets_one_backend_or_all_whatever_the_state),
		cmocka_unit_test(above_three_quarters_a_vip_keeps_to_its_share),
		cmocka_unit_test(a_table_has_room_for_what_was_asked_and_stays_in_its_memory),
		cmocka_unit_test(half_a_table_of_flows_all_find_a_place),
		cmocka_unit_test(flows_of_a_full_bucket_stand_further_on),
		cmocka_unit_test(a_table_that_is_nearly_full_is_not_searched),
		cmocka_unit_test(of_half_open_flows_the_one_away_from_home_gives_way_first),
		cmocka_unit_test(random_operations_agree_with_a_plain_model),
	};

	return cmocka_run_group_tests_name("conn_table", tests, NULL, NULL);
}
