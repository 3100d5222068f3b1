#include "harness.h"

#include "load_bound.h"

enum { MEMBERS = 130, WORDS = MEMBERS / 64 + 1 };

struct group {
	uint16_t backends[MEMBERS];
	uint32_t weights[MEMBERS];
	uint64_t live[MEMBERS], over[WORDS];
	struct load_bound bound;
};

static void gather(struct group *g, double factor, uint32_t count)
{
	memset(g, 0, sizeof(*g));
	g->bound = (struct load_bound){factor, g->backends, g->weights, count, g->over};
	for (uint32_t i = 0; i < count; i++) {
		g->backends[i] = (uint16_t)i;
		g->weights[i] = 100;
	}
}

static uint32_t count_over(const struct group *g)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < g->bound.count; i++)
		count += load_is_over(g->over, g->backends[i]);
	return count;
}

static void the_first_of_two_is_over_from_a_whole_flow_above_its_share_on(void **state)
{
	static const struct {
		const char *what;
		double factor;
		uint64_t live[2];
		uint32_t weights[2];
		bool over;
	} rows[] = {
		{"nobody has flows", 1.25, {0, 0}, {1, 1}, false},
		{"equal loads", 1.01, {100, 100}, {1, 1}, false},
		{"exactly the bound", 1.25, {125, 75}, {1, 1}, false},
		{"one above it", 1.25, {126, 74}, {1, 1}, true},
		{"the bound is 12.5: 13 flows are allowed", 1.25, {13, 7}, {1, 1}, false},
		{"the bound is 12.5: 14 flows are over", 1.25, {14, 6}, {1, 1}, true},
		{"all flows, but few", 1.01, {LOAD_FEW, 0}, {1, 1}, false},
		{"all flows, and more than few", 1.01, {LOAD_FEW + 1, 0}, {1, 1}, true},
		{"twice the share is not more than twice", 2, {1000, 0}, {1, 1}, false},
		{"half of the flows for a tenth of the weight", 1.25, {50, 50}, {1, 9}, true},
		{"half of the flows for nine tenths of the weight", 1.25, {50, 50}, {9, 1}, false},
		{"the largest weights", 1.25, {126, 74}, {UINT32_MAX, UINT32_MAX}, true},
		{"as many flows as there can be", 1.25, {1ULL << 32, 1ULL << 32}, {3, 1}, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct group g;

		gather(&g, rows[i].factor, 2);
		memcpy(g.live, rows[i].live, sizeof(rows[i].live));
		memcpy(g.weights, rows[i].weights, sizeof(rows[i].weights));
		load_bound_mark(&g.bound, g.live);
		check_row(rows[i].what, load_is_over(g.over, 0) == rows[i].over);
	}
}

static void never_are_all_over(void **state)
{
	uint64_t random = 1;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint32_t count = 1 + random_below(&random, MEMBERS);
		struct group g;

		gather(&g, 1.01, count);
		for (uint32_t i = 0; i < count; i++) {
			g.live[i] = next_random(&random) >> (31 + random_below(&random, 32));
			g.weights[i] = 1 + (uint32_t)(next_random(&random) >> (32 + random_below(&random, 31))) / 2;
		}
		load_bound_mark(&g.bound, g.live);
		assert_true(count_over(&g) < count);
	}
}

static void marks_follow_the_loads_and_touch_no_others(void **state)
{
	struct group g;

	(void)state;
	gather(&g, 1.25, 3);
	g.backends[0] = 63;
	g.backends[1] = 64;
	g.backends[2] = 128;
	g.over[0] = 1;
	g.live[0] = 1000; // of a backend that is not in it
	g.live[64] = 100;
	load_bound_mark(&g.bound, g.live);
	assert_true(g.over[0] == 1 && g.over[1] == 1 && g.over[2] == 0);
	g.live[64] = 0;
	g.live[63] = g.live[128] = 100;
	load_bound_mark(&g.bound, g.live);
	assert_true(g.over[0] == (1 | 1ULL << 63) && g.over[1] == 0 && g.over[2] == 1);
	g.live[64] = 100;
	load_bound_mark(&g.bound, g.live);
	assert_true(g.over[0] == 1 && g.over[1] == 0 && g.over[2] == 0);
}

static void a_flow_goes_to_the_first_slot_whose_backend_is_not_over(void **state)
{
	static const uint16_t slots[] = {2, 0, 0, 1, 0, 1, 2}; // from each slot the next one looked at is 4 further on
	static const struct {
		const char *what;
		uint64_t over;
		uint32_t slot;
		uint16_t backend;
	} rows[] = {
		{"nobody is over", 0, 1, 0},
		{"its own is not over", 1 << 1, 1, 0},
		{"the next one, round the end", 1 << 1, 3, 2},
		{"the next one", 1 << 0, 1, 1},
		{"past two that are over", 1 << 0 | 1 << 1, 1, 2},
		{"round the end from a later slot", 1 << 1, 5, 0},
		{"past the next one", 1 << 1 | 1 << 2, 3, 0},
		{"all are over: the table's choice", 7, 3, 1},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		check_row(rows[i].what,
			  load_bound_choose(slots, COUNT(slots), rows[i].slot, &rows[i].over) == rows[i].backend);
}

static void the_search_ends_after_so_many_slots(void **state)
{
	uint16_t slots[LOAD_STEPS + 3] = {0}; // 67, a prime
	uint32_t stride = load_bound_stride(COUNT(slots));
	uint64_t over = 1;

	(void)state;
	slots[LOAD_STEPS * stride % COUNT(slots)] = 1;
	assert_int_equal(load_bound_choose(slots, COUNT(slots), 0, &over), 0);
	assert_int_equal(load_bound_choose(slots, COUNT(slots), stride, &over), 1);
}

static void a_long_run_of_one_backend_is_left_at_once(void **state)
{
	static uint16_t slots[65537];
	uint64_t over = 1;

	(void)state;
	for (size_t i = COUNT(slots) / 2; i < COUNT(slots); i++)
		slots[i] = 1;
	for (uint32_t slot = 0; slot < COUNT(slots) / 2; slot++)
		assert_int_equal(load_bound_choose(slots, COUNT(slots), slot, &over), 1);
}

static void the_walk_comes_to_every_slot(void **state)
{
	static const uint32_t sizes[] = {2, 3, 5, 7, 251, 65537};

	(void)state;
	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint32_t stride = load_bound_stride(sizes[i]), at = stride, steps = 1;

		for (; at != 0; steps++)
			at = (at + stride) % sizes[i];
		assert_int_equal(steps, sizes[i]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_of_two_is_over_from_a_whole_flow_above_its_share_on),
		cmocka_unit_test(never_are_all_over),
		cmocka_unit_test(marks_follow_the_loads_and_touch_no_others),
		cmocka_unit_test(a_flow_goes_to_the_first_slot_whose_backend_is_not_over),
		cmocka_unit_test(the_search_ends_after_so_many_slots),
		cmocka_unit_test(a_long_run_of_one_backend_is_left_at_once),
		cmocka_unit_test(the_walk_comes_to_every_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
