#include "harness.h"

#include <errno.h>
#include <stdio.h>

#include "maglev.h"

enum { SIZE = 65537, MOST = 300 };

static void count_slots(const uint16_t *slots, uint32_t size, uint32_t *owned, uint32_t members)
{
	memset(owned, 0, members * sizeof(*owned));
	for (uint32_t i = 0; i < size; i++) {
		assert_true(slots[i] < members);
		owned[slots[i]]++;
	}
}

static void name_member(struct maglev_member *m, uint32_t number, uint32_t size, uint32_t weight)
{
	char name[16];
	int length = snprintf(name, sizeof(name), "backend%05u", number);

	maglev_permutation(name, (size_t)length, size, m);
	m->weight = weight;
}

// Eisenbud et al., NSDI 2016, table 1.
static void the_example_of_the_paper(void **state)
{
	static const struct maglev_member all[] = {{3, 4, 1}, {0, 2, 1}, {3, 1, 1}};
	static const struct maglev_member without[] = {{3, 4, 1}, {3, 1, 1}};
	static const struct maglev_member idle[] = {{3, 4, 1}, {0, 2, 0}, {3, 1, 1}};
	static const uint16_t of_all[] = {1, 0, 1, 0, 2, 2, 0}, of_without[] = {0, 0, 0, 0, 1, 1, 1};
	static const uint16_t of_idle[] = {0, 0, 0, 0, 2, 2, 2};
	uint16_t slots[7];

	(void)state;
	assert_int_equal(maglev_populate(all, 3, 7, slots), 0);
	assert_memory_equal(slots, of_all, sizeof(slots));
	assert_int_equal(maglev_populate(without, 2, 7, slots), 0);
	assert_memory_equal(slots, of_without, sizeof(slots));
	assert_int_equal(maglev_populate(idle, 3, 7, slots), 0); // weight 0 is as good as absent
	assert_memory_equal(slots, of_idle, sizeof(slots));
}

static void permutations_of_known_names(void **state)
{
	static const struct {
		const char *name;
		uint32_t size, offset, skip;
	} rows[] = {
		{"web1", 65537, 6233, 64733},
		{"web2", 65537, 57073, 32125},
		{"backend-0", 65537, 22278, 13800},
		{"b", 7, 3, 2},
		{"", 251, 141, 129},
		{"a name of more than sixteen bytes", 65521, 29040, 44406},
		{"größe", 655373, 650642, 224342},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct maglev_member m = {.weight = 5};

		maglev_permutation(rows[i].name, strlen(rows[i].name), rows[i].size, &m);
		check_row(rows[i].name, m.offset == rows[i].offset && m.skip == rows[i].skip && m.weight == 5);
	}
}

static void a_name_is_read_to_its_length_only(void **state)
{
	uint8_t *name = at_end_of_block("web1", 4);
	struct maglev_member once, again;

	(void)state;
	maglev_permutation(name, 4, SIZE, &once);
	maglev_permutation("web12", 4, SIZE, &again);
	assert_int_equal(once.offset, again.offset);
	assert_int_equal(once.skip, again.skip);
	free(name);
}

static void a_skip_is_never_zero_nor_the_size(void **state)
{
	static const uint32_t sizes[] = {2, 3, 7, 251, SIZE};

	(void)state;
	for (size_t i = 0; i < COUNT(sizes); i++)
		for (uint32_t k = 0; k < 2000; k++) {
			struct maglev_member m;

			name_member(&m, k, sizes[i], 1);
			assert_true(m.offset < sizes[i] && m.skip >= 1 && m.skip < sizes[i]);
		}
}

static void slots_equal_the_shares_by_weight(void **state)
{
	static const struct {
		const char *what;
		uint32_t size, count;
		uint32_t weights[8], slots[8];
	} rows[] = {
		{"1:2", SIZE, 2, {1, 2}, {21846, 43691}},
		{"100:200 is 1:2", SIZE, 2, {100, 200}, {21846, 43691}},
		{"one alone", SIZE, 1, {7}, {SIZE}},
		{"equal, ties to the smaller name", SIZE, 3, {1, 1, 1}, {21846, 21846, 21845}},
		{"weight 0 owns nothing", SIZE, 3, {1, 0, 1}, {32769, 0, 32768}},
		{"1:1000000", SIZE, 2, {1, 1000000}, {0, SIZE}},
		{"largest weights there are", 7, 3, {0xffffffff, 0xffffffff, 0xffffffff}, {3, 2, 2}},
		{"more members than slots", 3, 5, {1, 1, 1, 1, 1}, {1, 1, 1, 0, 0}},
		{"more members than slots, by weight", 3, 5, {1, 1, 2, 3, 2}, {0, 0, 1, 1, 1}},
		{"the smallest table", 2, 2, {1, 1}, {1, 1}},
		{"the paper's size", 65521, 4, {1, 2, 3, 4}, {6552, 13104, 19656, 26209}},
	};
	static uint16_t slots[SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct maglev_member members[8];
		uint32_t owned[8];

		for (uint32_t k = 0; k < rows[i].count; k++)
			name_member(&members[k], k, rows[i].size, rows[i].weights[k]);
		check_row(rows[i].what, maglev_populate(members, rows[i].count, rows[i].size, slots) == 0);
		count_slots(slots, rows[i].size, owned, rows[i].count);
		for (uint32_t k = 0; k < rows[i].count; k++)
			check_row(rows[i].what, owned[k] == rows[i].slots[k]);
	}
}

static void random_weights_get_their_share_within_one_slot(void **state)
{
	static uint16_t slots[SIZE];
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 40; round++) {
		uint32_t count = 1 + random_below(&seed, MOST), owned[MOST], size = round % 2 ? SIZE : 1009;
		uint64_t total = 0;
		struct maglev_member members[MOST];

		for (uint32_t i = 0; i < count; i++) {
			name_member(&members[i], i, size, 1 + random_below(&seed, 1000));
			total += members[i].weight;
		}
		assert_int_equal(maglev_populate(members, count, size, slots), 0);
		count_slots(slots, size, owned, count);
		for (uint32_t i = 0; i < count; i++) {
			uint64_t floor = (uint64_t)size * members[i].weight / total;

			assert_true(owned[i] == floor || owned[i] == floor + 1);
		}
	}
}

// The pure-Python twin, which plays every round, gave these. Once the large one is done most rounds are idle, and a
// round too few or too many of them lets another member be first at a slot.
static void small_weights_beside_a_large_one_wait_for_their_turns(void **state)
{
	static const struct maglev_member members[] = {
		{4, 10, 38}, {8, 5, 11}, {0, 6, 33}, {9, 11, 120}, {12, 7, 12}, {3, 7, 10}};
	static const uint16_t expected[13] = {2, 3, 1, 3, 0, 3, 2, 3, 4, 3, 3, 0, 3};
	uint16_t slots[13];

	(void)state;
	assert_int_equal(maglev_populate(members, COUNT(members), 13, slots), 0);
	assert_memory_equal(slots, expected, sizeof(slots));
}

static void one_of_a_hundred_removed_moves_at_most_two_percent(void **state)
{
	static uint16_t before[SIZE], after[SIZE];
	struct maglev_member members[100], left[99];
	uint32_t moved = 0;

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		name_member(&members[i], i, SIZE, 100);
	memcpy(left, members, 42 * sizeof(*left));
	memcpy(left + 42, members + 43, 57 * sizeof(*left));
	assert_int_equal(maglev_populate(members, 100, SIZE, before), 0);
	assert_int_equal(maglev_populate(left, 99, SIZE, after), 0);
	for (uint32_t i = 0; i < SIZE; i++)
		moved += before[i] != after[i] + (after[i] >= 42);
	assert_true(moved >= 655 && moved * 1000 <= SIZE * 18);
}

static void nobody_owns_an_empty_table(void **state)
{
	static const struct maglev_member idle[] = {{3, 4, 0}, {0, 2, 0}};
	uint16_t slots[7];

	(void)state;
	for (uint32_t count = 0; count <= 2; count++) {
		memset(slots, 0, sizeof(slots));
		assert_int_equal(maglev_populate(idle, count, 7, slots), 0);
		for (int i = 0; i < 7; i++)
			assert_int_equal(slots[i], MAGLEV_EMPTY);
	}
	assert_int_equal(maglev_populate(NULL, 0, 7, slots), 0);
}

static void arguments_out_of_range_are_refused(void **state)
{
	static const struct {
		const char *what;
		struct maglev_member member;
		uint32_t count, size;
	} rows[] = {
		{"size 0", {0, 1, 1}, 1, 0},
		{"size 1", {0, 1, 1}, 1, 1},
		{"size beyond the largest", {0, 1, 1}, 1, MAGLEV_MAX_SIZE + 1},
		{"a size that was negative", {0, 1, 1}, 1, (uint32_t)-7},
		{"a size that is even", {0, 1, 1}, 1, 4},
		{"a size that is a square", {0, 1, 1}, 1, 251 * 251},
		{"no prime, and nobody in it", {0, 1, 0}, 1, 6},
		{"more members than positions", {0, 1, 1}, MAGLEV_MAX_MEMBERS + 1, 7},
		{"offset at the size", {7, 1, 1}, 1, 7},
		{"skip 0", {0, 0, 1}, 1, 7},
		{"skip at the size", {0, 7, 1}, 1, 7},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint16_t slots[7];

		check_row(rows[i].what, maglev_populate(&rows[i].member, rows[i].count, rows[i].size, slots) == -EINVAL);
	}
}

static void as_many_members_as_there_are_positions(void **state)
{
	static struct maglev_member members[MAGLEV_MAX_MEMBERS + 1];
	static uint32_t owned[MAGLEV_MAX_MEMBERS];
	static uint16_t slots[SIZE];

	(void)state;
	for (uint32_t i = 0; i <= MAGLEV_MAX_MEMBERS; i++)
		name_member(&members[i], i, SIZE, 1);
	assert_int_equal(maglev_populate(members, MAGLEV_MAX_MEMBERS + 1, SIZE, slots), -EINVAL);
	assert_int_equal(maglev_populate(members, MAGLEV_MAX_MEMBERS, SIZE, slots), 0);
	count_slots(slots, SIZE, owned, MAGLEV_MAX_MEMBERS);
	for (uint32_t i = 0; i < MAGLEV_MAX_MEMBERS; i++)
		assert_int_equal(owned[i], 1 + (i < SIZE - MAGLEV_MAX_MEMBERS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_example_of_the_paper),
		cmocka_unit_test(permutations_of_known_names),
		cmocka_unit_test(a_name_is_read_to_its_length_only),
		cmocka_unit_test(a_skip_is_never_zero_nor_the_size),
		cmocka_unit_test(slots_equal_the_shares_by_weight),
		cmocka_unit_test(random_weights_get_their_share_within_one_slot),
		cmocka_unit_test(small_weights_beside_a_large_one_wait_for_their_turns),
		cmocka_unit_test(one_of_a_hundred_removed_moves_at_most_two_percent),
		cmocka_unit_test(nobody_owns_an_empty_table),
		cmocka_unit_test(arguments_out_of_range_are_refused),
		cmocka_unit_test(as_many_members_as_there_are_positions),
	};

	return cmocka_run_group_tests_name("maglev", tests, NULL, NULL);
}
