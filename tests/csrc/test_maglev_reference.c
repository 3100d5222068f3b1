// Tables of random members, weights and sizes: slot for slot those of the straightforward loop.

#include "harness.h"

#include "../../perf/csrc/reference_maglev.h"

enum { LARGEST = 65537, MOST = 3000 };

static const uint32_t SIZES[] = {2, 3, 5, 7, 61, 67, 251, 257, 1009, 5003, 16381, LARGEST};

enum kind { EQUAL, SOME_ZERO, UP_TO_HUNDRED, FEW_KINDS, FAR_APART, ONE_HEAVY, ANY, KINDS };

static uint32_t weight_of(enum kind kind, uint32_t i, uint64_t *seed)
{
	switch (kind) {
	case EQUAL:
		return 7;
	case SOME_ZERO:
		return random_below(seed, 3) == 0 ? 0 : 100;
	case UP_TO_HUNDRED:
		return 1 + random_below(seed, 100);
	case FEW_KINDS:
		return 10 * random_below(seed, 4);
	case FAR_APART:
		return 1u << random_below(seed, 12);
	case ONE_HEAVY:
		return i == 3 ? 5000 : 1 + random_below(seed, 2);
	default: // up to the largest there is, but not so far apart that playing every round takes minutes
		return 0xffffffff - random_below(seed, 0xfff00000);
	}
}

static void compare(uint32_t count, uint32_t size, enum kind kind, uint64_t *seed)
{
	static struct maglev_member members[MOST];
	static uint16_t slots[LARGEST], expected[LARGEST];

	for (uint32_t i = 0; i < count; i++) {
		members[i].offset = random_below(seed, size);
		members[i].skip = 1 + random_below(seed, size - 1);
		members[i].weight = weight_of(kind, i, seed);
	}
	assert_int_equal(maglev_populate(members, count, size, slots), 0);
	assert_true(reference_populate(members, count, size, expected));
	if (memcmp(slots, expected, size * sizeof(*slots)) != 0)
		fail_msg("%u members, %u slots, weights of kind %d: the tables differ", count, size, kind);
}

static void small_tables_are_those_of_the_reference(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 4000; round++)
		compare(1 + random_below(&seed, 40), SIZES[random_below(&seed, 8)], round % KINDS, &seed);
}

static void large_tables_are_those_of_the_reference(void **state)
{
	uint64_t seed = 2;

	(void)state;
	for (int round = 0; round < 6 * KINDS; round++) {
		uint32_t most = round < 3 * KINDS ? 100 : MOST;

		compare(1 + random_below(&seed, most), SIZES[8 + random_below(&seed, 4)], round % KINDS, &seed);
	}
}

static void every_number_of_members_in_a_group_is_right(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (uint32_t count = 1; count <= 1100; count += count < 20 ? 1 : 97)
		compare(count, 5003, EQUAL, &seed);
	for (uint32_t count = 510; count <= 514; count++)
		compare(count, 5003, UP_TO_HUNDRED, &seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_tables_are_those_of_the_reference),
		cmocka_unit_test(large_tables_are_those_of_the_reference),
		cmocka_unit_test(every_number_of_members_in_a_group_is_right),
	};

	return cmocka_run_group_tests_name("maglev against the reference", tests, NULL, NULL);
}
