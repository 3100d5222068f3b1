#include "harness.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn_table.h"
#include "parse.h"

enum { HALF_OPEN_SECONDS = 10, ESTABLISHED_SECONDS = 7200, CLOSING_SECONDS = 5, DATAGRAM_SECONDS = 60 };
enum { BACKENDS = 8, VIPS = 3, WRAP = 1 << CONN_CLOCK_BITS };

static const struct conn_timeouts TIMEOUTS = {
	{HALF_OPEN_SECONDS, ESTABLISHED_SECONDS, CLOSING_SECONDS, DATAGRAM_SECONDS}};

static uint16_t generations[CONN_MAX_BACKENDS];
static uint8_t vips[CONN_MAX_VIPS];
static const struct conn_known KNOWN = {generations, vips};

// Backends 0 .. 7 in generations 1 .. 8, vips 0 .. 2.
static int known_numbers(void **state)
{
	(void)state;
	memset(generations, 0, sizeof(generations));
	memset(vips, 0, sizeof(vips));
	for (uint16_t b = 0; b < BACKENDS; b++)
		generations[b] = b + 1;
	memset(vips, 1, VIPS);
	return 0;
}

// Memory that a child shares, as processes share a file.
static void *shared_memory(uint32_t entries)
{
	size_t bytes = conn_table_memory(entries);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

// A table as a process begins it: on memory of zeros, or on what another one left.
static struct conn_table begin(void *memory, uint32_t entries, const struct conn_known *known, uint32_t now)
{
	struct conn_table t;

	conn_table_init(&t, memory, entries, &TIMEOUTS);
	conn_table_take_over(&t, known, now);
	return t;
}

static struct conn_table begin_new(uint32_t entries, uint32_t now)
{
	return begin(shared_memory(entries), entries, NULL, now);
}

static struct conn_table next_owner(const struct conn_table *t, uint32_t entries, uint32_t now)
{
	return begin(t->buckets, entries, &KNOWN, now);
}

static void drop(struct conn_table *t)
{
	size_t bytes = (size_t)((char *)(t->tail + 1) - (char *)t->buckets);

	assert_int_equal(munmap(t->buckets, bytes), 0);
}

// Flow number `i` of one bucket: in a table of one bucket every lower half leads there.
static uint64_t flow(uint32_t i)
{
	return (uint64_t)(0x1000 + i) << 32 | i;
}

static bool insert(struct conn_table *t, uint64_t hash, uint16_t backend, enum conn_state state, uint32_t now)
{
	struct conn_entry e = {.backend = backend, .generation = backend + 1, .vip = backend % VIPS, .state = state};

	return conn_insert(t, hash, &e, now);
}

static int way_of(const struct conn_table *t, uint64_t hash, uint16_t vip, uint32_t now)
{
	struct conn_entry found;

	return conn_lookup(t, hash, vip, now, &found);
}

// All counts are those of the entries that are there.
static void recount(const struct conn_table *t)
{
	uint32_t by_vip[VIPS] = {0}, by_backend[BACKENDS] = {0}, live = 0;
	uint16_t *away = calloc(t->bucket_count, sizeof(*away));

	for (uint32_t i = 0; i < t->bucket_count; i++)
		for (int w = 0; w < CONN_WAYS; w++) {
			uint64_t word = t->buckets[i].entry[w];

			if (word == 0)
				continue;
			live++;
			by_vip[word >> 22 & (CONN_MAX_VIPS - 1)]++;
			by_backend[word >> 48]++;
			if ((t->buckets[i].distance >> (3 * w) & 7) != 0) {
				uint32_t distance = t->buckets[i].distance >> (3 * w) & 7;

				away[(i + t->bucket_count - distance) % t->bucket_count]++;
			}
		}
	for (uint32_t i = 0; i < t->bucket_count; i++)
		assert_int_equal(t->buckets[i].away, away[i]);
	free(away);
	assert_int_equal(t->counters.live, live);
	for (int v = 0; v < VIPS; v++)
		assert_int_equal(t->vip_live[v], by_vip[v]);
	for (int b = 0; b < BACKENDS; b++)
		assert_int_equal(t->backend_live[b], by_backend[b]);
}

static void flows_are_there_as_they_were(void **state)
{
	enum { FLOWS = 3000, ENTRIES = 100000 };
	struct conn_table old = begin_new(ENTRIES, 1000), t;
	uint64_t seed = 1, hashes[FLOWS];

	(void)state;
	for (uint32_t i = 0; i < FLOWS; i++) {
		hashes[i] = next_random(&seed);
		assert_true(insert(&old, hashes[i], i % BACKENDS, (enum conn_state)(i % 4), 1000));
	}
	t = next_owner(&old, ENTRIES, 1003);
	assert_true(conn_table_whole(&t));
	assert_int_equal(t.counters.live, FLOWS);
	recount(&t);
	for (uint32_t i = 0; i < FLOWS; i++) {
		struct conn_entry found;

		assert_true(conn_lookup(&t, hashes[i], i % BACKENDS % VIPS, 1003, &found) >= 0);
		assert_int_equal(found.backend, i % BACKENDS);
		assert_int_equal(found.state, i % 4);
		assert_int_equal(found.seen, 1000);
	}
	drop(&t);
}

// How many of a bucket's flows stand further on is counted anew: a killed owner may have left any number.
static void flows_that_stand_further_on_are_found(void **state)
{
	enum { FLOWS = 3 * CONN_WAYS, ENTRIES = 100 };
	struct conn_table t = begin_new(ENTRIES, 100), next;

	(void)state;
	for (uint32_t i = 0; i < FLOWS; i++)
		assert_true(insert(&t, (uint64_t)(i + 1) << 32, (uint16_t)(i % BACKENDS), CONN_ESTABLISHED, 100));
	assert_int_equal(t.buckets[0].away, FLOWS - CONN_WAYS);
	for (uint32_t i = 0; i < t.bucket_count; i++)
		t.buckets[i].away = (uint16_t)(7 * i);
	next = next_owner(&t, ENTRIES, 101);
	for (uint32_t i = 0; i < FLOWS; i++)
		assert_true(way_of(&next, (uint64_t)(i + 1) << 32, i % BACKENDS % VIPS, 101) >= 0);
	assert_int_equal(next.counters.live, FLOWS);
	recount(&next);
	drop(&next);
}

static void an_entry_of_unknown_numbers_is_forgotten(void **state)
{
	static const struct {
		const char *name;
		struct conn_entry entry;
		bool stays;
	} rows[] = {
		{"known", {.backend = 4, .generation = 5, .vip = 1}, true},
		{"unknown backend", {.backend = BACKENDS, .generation = 9, .vip = 1}, false},
		{"unknown backend of the highest number", {.backend = 65535, .generation = 1, .vip = 1}, false},
		{"generation before", {.backend = 4, .generation = 4, .vip = 1}, false},
		{"generation after", {.backend = 4, .generation = 6, .vip = 1}, false},
		{"no generation", {.backend = BACKENDS, .generation = 0, .vip = 1}, false},
		{"unknown vip", {.backend = 4, .generation = 5, .vip = VIPS}, false},
		{"unknown vip, the highest", {.backend = 4, .generation = 5, .vip = CONN_MAX_VIPS - 1}, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct conn_table old = begin_new(5, 100), t;
		struct conn_entry e = rows[i].entry;

		e.state = CONN_DATAGRAM;
		check_row(rows[i].name, conn_insert(&old, flow(1), &e, 100));
		t = next_owner(&old, 5, 100);
		check_row(rows[i].name, t.counters.live == rows[i].stays);
		check_row(rows[i].name, (way_of(&t, flow(1), e.vip, 100) >= 0) == rows[i].stays);
		check_row(rows[i].name, t.vip_live[e.vip] == rows[i].stays);
		check_row(rows[i].name, t.backend_live[e.backend] == rows[i].stays);
		drop(&t);
	}
}

static void what_expired_while_nobody_was_there_is_forgotten(void **state)
{
	struct conn_table old = begin_new(5, 100), t;

	(void)state;
	insert(&old, flow(0), 0, CONN_HALF_OPEN, 100);
	insert(&old, flow(1), 1, CONN_ESTABLISHED, 100);
	insert(&old, flow(2), 2, CONN_DATAGRAM, 100);
	t = next_owner(&old, 5, 100 + HALF_OPEN_SECONDS);
	assert_int_equal(t.counters.live, 3);
	t = next_owner(&t, 5, 100 + HALF_OPEN_SECONDS + 1);
	assert_int_equal(t.counters.live, 2);
	t = next_owner(&t, 5, 100 + ESTABLISHED_SECONDS);
	assert_int_equal(t.counters.live, 1);
	recount(&t);
	assert_true(way_of(&t, flow(1), 1, 100 + ESTABLISHED_SECONDS) >= 0);
	drop(&t);
}

// The clock in an entry comes round after twelve days; the one of the last tick does not.
static void a_table_that_nobody_had_for_long_is_empty(void **state)
{
	static const struct {
		const char *name;
		uint32_t later;
		uint32_t stay;
	} rows[] = {
		{"at once", 0, 1},
		{"as long as the longest timeout", CONN_LONGEST, 1},
		{"a second longer", CONN_LONGEST + 1, 0},
		{"once round", WRAP, 0},
		{"once round and a little", WRAP + 5, 0},
		{"the clock went back", UINT32_MAX, 0},
	};
	static const struct conn_timeouts long_ones = {{CONN_LONGEST, CONN_LONGEST, CONN_LONGEST, CONN_LONGEST}};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct conn_table old = begin_new(5, 100), t;

		insert(&old, flow(1), 1, CONN_ESTABLISHED, 5000);
		conn_tick(&old, 5000);
		conn_table_init(&t, old.buckets, 5, &long_ones);
		conn_table_take_over(&t, &KNOWN, 5000 + rows[i].later);
		check_row(rows[i].name, conn_table_whole(&t));
		check_row(rows[i].name, t.counters.live == rows[i].stay);
		check_row(rows[i].name, t.tail->clock == 5000 + rows[i].later);
		drop(&t);
	}
}

static void memory_that_is_no_table_is_told_and_begun_anew(void **state)
{
	enum { ENTRIES = 50 };
	size_t bytes = conn_table_memory(ENTRIES);
	uint8_t *memory = shared_memory(ENTRIES);
	struct conn_table t;
	uint64_t seed = 2;

	(void)state;
	conn_table_init(&t, memory, ENTRIES, &TIMEOUTS);
	assert_false(conn_table_whole(&t)); // zeros
	t = begin(memory, ENTRIES, NULL, 7);
	assert_true(conn_table_whole(&t));
	t.tail->layout++;
	assert_false(conn_table_whole(&t));
	t.tail->layout--;
	conn_table_init(&t, memory, ENTRIES - CONN_WAYS, &TIMEOUTS); // its tail is elsewhere
	assert_false(conn_table_whole(&t));
	for (size_t i = 0; i < bytes; i++)
		memory[i] = (uint8_t)next_random(&seed);
	conn_table_init(&t, memory, ENTRIES, &TIMEOUTS);
	assert_false(conn_table_whole(&t));
	conn_table_take_over(&t, NULL, 9);
	assert_true(conn_table_whole(&t));
	assert_int_equal(t.counters.live, 0);
	recount(&t);
	munmap(memory, bytes);
}

// Whatever stands in the buckets, what stays is known and alive, and is counted. The noise: a clock of 13 bits, any
// state, vips 0 .. 3, generations 0 .. 7, backends 0 .. 15.
static void a_scan_of_noise_leaves_nothing_wrong(void **state)
{
	enum { ENTRIES = 5000, FIRST = 8192 };
	struct conn_table t = begin_new(ENTRIES, 100);
	uint64_t seed = 3;

	(void)state;
	for (uint32_t now = FIRST; now < FIRST + 20; now++) {
		for (uint32_t i = 0; i < t.bucket_count; i++)
			for (int w = 0; w < CONN_WAYS; w++)
				t.buckets[i].entry[w] = next_random(&seed) & 0x000f007000f01fffULL;
		t = next_owner(&t, ENTRIES, now);
		assert_true(t.counters.live > 0 && t.counters.live < ENTRIES / 10);
		recount(&t);
		assert_int_equal(conn_count_alive(&t, now), t.counters.live);
	}
	drop(&t);
}

// -- an owner that is killed, at any instruction

// What is done to the one bucket of a table at clock 200, by an owner that may not finish it.
struct deed {
	const char *name;
	void (*prepare)(struct conn_table *t);
	void (*act)(struct conn_table *t);
	int stores; // at least so many different contents are seen, the first one included
};

static void nobody(struct conn_table *t)
{
	insert(t, flow(1), 1, CONN_ESTABLISHED, 199);
}

static void full_of(struct conn_table *t, enum conn_state last, uint32_t seen)
{
	for (uint32_t i = 0; i < CONN_WAYS; i++)
		insert(t, flow(i), (uint16_t)i, i < 4 ? CONN_ESTABLISHED : last, i < 4 ? 199 : seen);
}

static void full_with_half_open(struct conn_table *t)
{
	full_of(t, CONN_HALF_OPEN, 199);
}

static void full_with_closing(struct conn_table *t)
{
	full_of(t, CONN_CLOSING, 199);
}

static void full_with_expired(struct conn_table *t)
{
	full_of(t, CONN_DATAGRAM, 200 - DATAGRAM_SECONDS - 1);
}

static void insert_another(struct conn_table *t)
{
	insert(t, flow(7), 7, CONN_HALF_OPEN, 200);
}

static void rewrite(struct conn_table *t)
{
	insert(t, flow(4), 7, CONN_HALF_OPEN, 200); // vip 1 as backend 4 has it
}

static void one_more_packet(struct conn_table *t)
{
	struct conn_entry found;
	int way = conn_lookup(t, flow(4), 4 % VIPS, 200, &found);

	conn_seen(t, flow(4), way, &found, TCP_ACK, 200);
}

static void sweep(struct conn_table *t)
{
	conn_sweep(t, 1, 200);
}

static void flush(struct conn_table *t)
{
	uint32_t at = 0;

	conn_flush(t, 4, &at, 1);
}

static void take_over(struct conn_table *t)
{
	conn_table_take_over(t, &KNOWN, 200);
}

static const struct deed DEEDS[] = {
	{"insert where there is room", nobody, insert_another, 2},
	{"insert over a half-open flow", full_with_half_open, insert_another, 3},
	{"insert over a closing flow", full_with_closing, insert_another, 3},
	{"insert over an expired flow", full_with_expired, insert_another, 3},
	{"rewrite", full_with_half_open, rewrite, 2},
	{"one more packet", full_with_half_open, one_more_packet, 2},
	{"sweep", full_with_expired, sweep, 2},
	{"flush", full_with_half_open, flush, 2},
	{"take over", full_with_expired, take_over, 2},
};

// Way by way: an entry with its tag that is in the bucket.
static bool has(const struct conn_bucket *b, uint32_t tag, uint64_t entry)
{
	for (int w = 0; w < CONN_WAYS; w++)
		if (b->entry[w] == entry && b->tag[w] == tag)
			return true;
	return false;
}

// No entry that was not there before or is afterwards; none gone that is in both.
static void check_moment(const char *name, const struct conn_bucket *now, const struct conn_bucket *before,
			 const struct conn_bucket *after)
{
	for (int w = 0; w < CONN_WAYS; w++) {
		uint32_t tag = now->tag[w];
		uint64_t entry = now->entry[w];

		check_row(name, entry == 0 || has(before, tag, entry) || has(after, tag, entry));
		if (before->entry[w] != 0 && has(after, before->tag[w], before->entry[w]))
			check_row(name, has(now, before->tag[w], before->entry[w]));
	}
}

static void child_does(const struct deed *deed, struct conn_table *t)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(77);
	raise(SIGSTOP);
	deed->act(t);
	raise(SIGSTOP);
	_exit(0);
}

// What of a table's memory matters to its next owner: the rest is counted anew.
struct moment {
	struct conn_bucket bucket;
	struct conn_tail tail;
};

static struct moment moment_of(const struct conn_table *t)
{
	return (struct moment){.bucket = t->buckets[0], .tail = *t->tail};
}

// The table at every moment at which a kill would find it different: one copy after the other in `moments`.
// Returns how many; 0 when this machine lets nobody trace.
static size_t moments_of(const struct deed *deed, struct conn_table *t, struct moment *moments, size_t room)
{
	size_t count = 0;
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0)
		child_does(deed, t);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status))
		return 0;
	moments[count++] = moment_of(t);
	do {
		struct moment now = moment_of(t);

		if (memcmp(&moments[count - 1], &now, sizeof(now)) != 0) {
			assert_true(count < room);
			moments[count++] = now;
		}
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
	} while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP); // the deed is done
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return count;
}

static struct conn_table next_owner_after(struct conn_table *t, const struct moment *moment, uint32_t now)
{
	t->buckets[0] = moment->bucket;
	*t->tail = moment->tail;
	return next_owner(t, 5, now);
}

static void killed_at_any_instruction_a_table_is_whole(void **state)
{
	struct moment moments[32];

	(void)state;
	for (size_t i = 0; i < COUNT(DEEDS); i++) {
		const struct deed *deed = &DEEDS[i];
		struct conn_table t = begin_new(5, 199);
		size_t count;

		deed->prepare(&t);
		count = moments_of(deed, &t, moments, COUNT(moments));
		if (count == 0) {
			drop(&t);
			skip();
		}
		check_row(deed->name, count >= (size_t)deed->stores);
		for (size_t m = 0; m < count; m++) {
			check_moment(deed->name, &moments[m].bucket, &moments[0].bucket, &moments[count - 1].bucket);
			t = next_owner_after(&t, &moments[m], 200);
			check_row(deed->name, conn_table_whole(&t));
			recount(&t);
		}
		drop(&t);
	}
}

static void take_over_much_later(struct conn_table *t)
{
	conn_table_take_over(t, &KNOWN, WRAP + 200);
}

// The clock says how old the entries are until the last of them is gone.
static void killed_while_old_entries_are_cleared_they_do_not_come_back(void **state)
{
	static const struct deed deed = {"take over much later", full_with_half_open, take_over_much_later, 3};
	struct moment moments[32];
	struct conn_table t = begin_new(5, 199);
	size_t count;

	(void)state;
	deed.prepare(&t);
	count = moments_of(&deed, &t, moments, COUNT(moments));
	for (size_t m = 0; m < count; m++) {
		t = next_owner_after(&t, &moments[m], WRAP + 201);
		assert_int_equal(t.counters.live, 0);
	}
	drop(&t);
	if (count == 0)
		skip();
	assert_true(count >= (size_t)deed.stores);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flows_are_there_as_they_were),
		cmocka_unit_test(flows_that_stand_further_on_are_found),
		cmocka_unit_test(an_entry_of_unknown_numbers_is_forgotten),
		cmocka_unit_test(what_expired_while_nobody_was_there_is_forgotten),
		cmocka_unit_test(a_table_that_nobody_had_for_long_is_empty),
		cmocka_unit_test(memory_that_is_no_table_is_told_and_begun_anew),
		cmocka_unit_test(a_scan_of_noise_leaves_nothing_wrong),
		cmocka_unit_test(killed_at_any_instruction_a_table_is_whole),
		cmocka_unit_test(killed_while_old_entries_are_cleared_they_do_not_come_back),
	};

	return cmocka_run_group_tests_name("take_over", tests, known_numbers, NULL);
}
