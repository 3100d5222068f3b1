#include "harness.h"

#include "place.h"

enum { MOST = 60, KEYS = 20000 };

// -- references: the same by other means, and one key after another, so that what the compiler made of the blocks and
// vectors of place.c, whichever this CPU takes, is compared with plain code

// Natural logarithm of 0 < x < 1, bit by bit: each squaring of 1 <= m < 2 tells the next binary digit of its log2.
static long double plain_log(long double x)
{
	long double digit = 0.5L, log2 = 0;

	for (; x < 1; x *= 2)
		log2 -= 1;
	for (int i = 0; i < 62; i++, digit /= 2) {
		x *= x;
		if (x >= 2) {
			x /= 2;
			log2 += digit;
		}
	}
	return log2 * 0.693147180559945309417232121458L;
}

// The finalizer of MurmurHash3 as its author wrote it, step by step, around the two words of seed.
static uint32_t plain_score(uint32_t key, const uint32_t seed[2])
{
	uint32_t h = key;

	h ^= seed[0];
	h *= 2654435761u;
	h ^= h >> 16;
	h ^= seed[1];
	h *= 2246822507u;
	h ^= h >> 13;
	h *= 3266489909u;
	h ^= h >> 16;
	return h;
}

static long double plain_worth(uint32_t key, const struct place_member *m)
{
	return plain_log((plain_score(key, m->seed) + 0.5L) / 4294967296.0L) / m->weight;
}

static uint32_t plain_rendezvous(uint32_t key, const struct place_member *members, uint32_t n)
{
	long double best = plain_worth(key, members);
	uint32_t chosen = 0;

	for (uint32_t m = 1; m < n; m++) {
		long double it = plain_worth(key, &members[m]);

		if (it > best) {
			best = it;
			chosen = m;
		}
	}
	return chosen;
}

// -- what the tests are made of

static uint32_t keys[KEYS], positions[KEYS], others[KEYS];

static void random_keys(uint64_t *seed, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		keys[i] = (uint32_t)next_random(seed);
}

static void random_members(uint64_t *seed, struct place_member *members, uint32_t n, uint32_t most)
{
	for (uint32_t m = 0; m < n; m++) {
		members[m].seed[0] = (uint32_t)next_random(seed);
		members[m].seed[1] = (uint32_t)next_random(seed);
		members[m].weight = 1 + random_below(seed, most);
	}
}

// `slack` is how far from the truth a logarithm may be: scores closer than that may come out either way, as long as it
// is the same one everywhere.
static void assert_as_plain(uint32_t count, const struct place_member *members, uint32_t n, long double slack)
{
	place_rendezvous(keys, count, members, n, positions);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t found = positions[i], expected = plain_rendezvous(keys[i], members, n);
		long double off = plain_worth(keys[i], &members[expected]) - plain_worth(keys[i], &members[found]);

		if (found != expected && off > slack / members[found].weight + slack / members[expected].weight)
			fail_msg("key %#x of %u, %u members: %u, not %u", keys[i], count, n, found, expected);
	}
}

// -- rendezvous

static const uint32_t COUNTS[] = {1, 2, 15, 16, 17, 1023, 1024, 1025, 2048, 2100};

static void equal_weights_go_to_the_highest_score(void **state)
{
	struct place_member members[MOST];
	uint64_t seed = 1;

	(void)state;
	for (size_t c = 0; c < COUNT(COUNTS); c++)
		for (uint32_t n = 1; n <= 9; n += 4) {
			random_keys(&seed, COUNTS[c]);
			random_members(&seed, members, n, 1);
			assert_as_plain(COUNTS[c], members, n, 0);
		}
}

static void unequal_weights_go_to_the_highest_logarithm_by_weight(void **state)
{
	static const uint32_t most[] = {2, 10, 1000, 1000000, 0xffffffff};
	struct place_member members[MOST];
	uint64_t seed = 2;

	(void)state;
	for (size_t c = 0; c < COUNT(COUNTS); c++) {
		uint32_t n = 2 + random_below(&seed, 8);

		random_keys(&seed, COUNTS[c]);
		random_members(&seed, members, n, most[c % COUNT(most)]);
		assert_as_plain(COUNTS[c], members, n, 1e-13L);
	}
}

// A weight that makes two scores as good as equal, and a little to either side of it.
static void scores_are_told_apart_to_twelve_places(void **state)
{
	struct place_member members[2];
	uint64_t seed = 11;

	(void)state;
	random_members(&seed, members, 2, 1);
	random_keys(&seed, 5000);
	for (int i = 0; i < 5000; i++) {
		long double first, second, weight, little;

		members[1].weight = 1;
		first = plain_worth(keys[i], &members[0]);
		second = plain_worth(keys[i], &members[1]);
		weight = second / first;
		little = 2e-13L * (1 + 1 / weight) / -first;
		for (int heavier = 0; heavier < 2; heavier++) {
			members[1].weight = (double)(weight * (heavier ? 1 + little : 1 - little));
			place_rendezvous(&keys[i], 1, members, 2, positions);
			assert_int_equal(positions[0], heavier);
		}
	}
}

static void scores_at_both_ends_are_placed_too(void **state)
{
	// With these seeds a key of 0 scores 0, the least there is; the other member's is higher.
	static const struct place_member members[] = {{{0, 0}, 1}, {{1, 2}, 1000}}, last[] = {{{0, 0}, 1}, {{0, 0}, 3}};

	(void)state;
	keys[0] = 0;
	place_rendezvous(keys, 1, members, 2, positions);
	assert_int_equal(positions[0], 1);
	place_rendezvous(keys, 1, members, 1, positions);
	assert_int_equal(positions[0], 0);
	place_rendezvous(keys, 1, last, 2, positions); // log(2^-33) by a third is the higher one
	assert_int_equal(positions[0], 1);
}

static void what_weights_there_are_does_not_matter_when_they_are_equal(void **state)
{
	static const double weights[] = {2, 100, 12345, 1000000, 4294967295.0};
	struct place_member members[MOST];
	uint64_t seed = 3;

	(void)state;
	random_keys(&seed, 5000);
	random_members(&seed, members, 30, 1);
	place_rendezvous(keys, 5000, members, 30, positions);
	for (size_t w = 0; w < COUNT(weights); w++) {
		for (uint32_t m = 0; m < 30; m++)
			members[m].weight = weights[w];
		place_rendezvous(keys, 5000, members, 30, others);
		assert_memory_equal(positions, others, 5000 * sizeof(*positions));
	}
}

static void of_members_alike_the_first_has_it(void **state)
{
	struct place_member members[4];
	uint64_t seed = 4;

	(void)state;
	random_keys(&seed, 2000);
	random_members(&seed, members, 4, 1);
	members[3] = members[1];
	for (int unequal = 0; unequal < 2; unequal++) {
		place_rendezvous(keys, 2000, members, 4, positions);
		for (int i = 0; i < 2000; i++)
			assert_int_not_equal(positions[i], 3);
		members[0].weight = 7;
	}
}

static void nobody_places_a_key_without_members(void **state)
{
	static const struct place_member unread = {{1, 2}, 3};
	uint64_t seed = 5;

	(void)state;
	random_keys(&seed, 1500);
	memset(positions, 0, sizeof(positions));
	place_rendezvous(keys, 1500, NULL, 0, positions);
	for (int i = 0; i < 1500; i++)
		assert_int_equal(positions[i], PLACE_NOBODY);
	assert_int_equal(positions[1500], 0);
	place_rendezvous(keys, 0, &unread, 1, positions); // no keys: nothing is written
	assert_int_equal(positions[0], PLACE_NOBODY);
}

static void keys_and_positions_are_touched_to_their_count_only(void **state)
{
	struct place_member members[3];
	uint64_t seed = 6;

	(void)state;
	random_keys(&seed, 2100);
	random_members(&seed, members, 3, 1);
	for (int unequal = 0; unequal < 2; unequal++) {
		for (size_t c = 0; c < COUNT(COUNTS); c++) {
			size_t bytes = COUNTS[c] * sizeof(*keys);
			uint32_t *few = (uint32_t *)at_end_of_block(keys, bytes), *out = malloc(bytes);

			assert_non_null(out);
			place_rendezvous(few, COUNTS[c], members, 3, out);
			place_rendezvous(keys, 2100, members, 3, positions);
			assert_memory_equal(out, positions, bytes); // and a key's place is its own, whoever is beside it
			free(few);
			free(out);
		}
		members[1].weight = 2;
	}
}

static void shares_are_near_the_weights(void **state)
{
	struct place_member members[10];
	uint64_t seed = 7;

	(void)state;
	for (int equal = 0; equal < 2; equal++) {
		uint32_t owned[10] = {0};

		random_keys(&seed, KEYS);
		random_members(&seed, members, 10, 1);
		for (uint32_t m = 0; m < 10; m++)
			members[m].weight = equal ? 5 : m + 1;
		place_rendezvous(keys, KEYS, members, 10, positions);
		for (int i = 0; i < KEYS; i++)
			owned[positions[i]]++;
		for (uint32_t m = 0; m < 10; m++) { // five standard deviations of chance
			double expected = equal ? KEYS / 10.0 : KEYS * (m + 1) / 55.0, off = owned[m] - expected;

			assert_true(off * off < 25 * expected);
		}
	}
}

static void a_member_that_leaves_moves_its_own_keys_only(void **state)
{
	struct place_member members[MOST], left[MOST];
	uint64_t seed = 8;

	(void)state;
	for (int round = 0; round < 12; round++) {
		uint32_t n = 2 + random_below(&seed, MOST - 2), gone = random_below(&seed, n), moved = 0;

		random_keys(&seed, KEYS);
		random_members(&seed, members, n, round % 3 ? 1 : 20);
		if (round % 3 == 1)
			members[gone].weight = 9; // those that stay are equal, and are scored without logarithms
		memcpy(left, members, gone * sizeof(*left));
		memcpy(left + gone, members + gone + 1, (n - gone - 1) * sizeof(*left));
		place_rendezvous(keys, KEYS, members, n, positions);
		place_rendezvous(keys, KEYS, left, n - 1, others);
		for (int i = 0; i < KEYS; i++) {
			moved += positions[i] == gone;
			if (positions[i] != gone)
				assert_int_equal(others[i] + (others[i] >= gone), positions[i]);
		}
		assert_true(moved > 0);
	}
}

// -- jump

// The authors' listing, run by an interpreter of another language, on keys times 0x9e3779b97f4a7c15, xor key << 32.
static void jumps_are_those_of_the_paper(void **state)
{
	static const uint32_t buckets[] = {1, 2, 10, 100, 1000, 65536, 0xffffffff};
	static const struct {
		uint32_t key, expected[COUNT(buckets)];
	} rows[] = {
		{0x00000000, {0, 0, 0, 0, 0, 0, 2147483648}},
		{0x00000001, {0, 0, 0, 47, 711, 13712, 2139035144}},
		{0x00000002, {0, 0, 7, 53, 408, 28387, 2555913878}},
		{0x0000002a, {0, 1, 2, 34, 732, 65209, 2556014239}},
		{0x7fffffff, {0, 0, 4, 25, 25, 16034, 2315127615}},
		{0x80000000, {0, 1, 2, 44, 44, 33957, 525305467}},
		{0xdeadbeef, {0, 1, 9, 92, 485, 3537, 3011510103}},
		{0xffffffff, {0, 0, 0, 50, 980, 44988, 2266759145}},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		for (size_t b = 0; b < COUNT(buckets); b++) {
			place_jump(&rows[i].key, 1, buckets[b], positions);
			assert_int_equal(positions[0], rows[i].expected[b]);
		}
}

static void a_bucket_more_takes_its_share_and_nothing_else_moves(void **state)
{
	uint64_t seed = 9;

	(void)state;
	random_keys(&seed, KEYS);
	place_jump(keys, KEYS, 1, positions);
	for (uint32_t buckets = 2; buckets <= 100; buckets++) {
		double expected = (double)KEYS / buckets, moved = 0;

		place_jump(keys, KEYS, buckets, others);
		for (int i = 0; i < KEYS; i++) {
			if (others[i] != positions[i]) {
				assert_int_equal(others[i], buckets - 1);
				moved++;
			}
		}
		assert_true((moved - expected) * (moved - expected) < 25 * expected);
		memcpy(positions, others, sizeof(positions));
	}
}

static void neighbours_among_keys_are_spread_as_others_are(void **state)
{
	uint32_t owned[10] = {0};

	(void)state;
	for (uint32_t i = 0; i < KEYS; i++)
		keys[i] = i;
	place_jump(keys, KEYS, 10, positions);
	for (int i = 0; i < KEYS; i++)
		owned[positions[i]]++;
	for (int b = 0; b < 10; b++)
		assert_true(owned[b] > KEYS / 10 * 0.88 && owned[b] < KEYS / 10 * 1.12);
}

// -- bounded loads

static void keys_are_placed_in_order_and_go_on_from_who_is_full(void **state)
{
	static const uint32_t owners[] = {0, 1, 0, 2, 2, 1};
	static const struct {
		const char *what;
		uint64_t caps[3], loads[3];
		uint32_t starts[6], count, expected[6];
		size_t deflected;
	} rows[] = {
		{"nobody is full", {9, 9, 9}, {0}, {0, 1, 2, 3, 4, 5}, 6, {0, 1, 0, 2, 2, 1}, 0},
		{"the second of the first one goes on", {1, 9, 9}, {0}, {0, 0, 2}, 3, {0, 1, 2}, 2},
		{"who comes first has the place", {1, 9, 9}, {0}, {2, 0}, 2, {0, 1}, 1},
		{"behind the end comes the beginning", {9, 1, 9}, {0}, {5, 5, 4}, 3, {1, 0, 2}, 1},
		{"past a whole run of one that is full", {9, 9, 1}, {0}, {3, 3}, 2, {2, 1}, 1},
		{"loads from before count", {5, 5, 5}, {5, 4, 0}, {0, 0, 0}, 3, {1, 2, 2}, 3},
		{"a load above its cap is full too", {5, 5, 5}, {7, 0, 0}, {0}, 1, {1}, 1},
		{"a cap of 0 takes nobody", {0, 0, 9}, {0}, {0, 1, 2, 5}, 4, {2, 2, 2, 2}, 4},
		{"then all are full", {1, 1, 0}, {0}, {0, 0, 0, 3}, 4, {0, 1, PLACE_NOBODY, PLACE_NOBODY}, 1},
		{"large numbers", {1ull << 40, 1ull << 40, 9}, {1ull << 40, 0, 0}, {0}, 1, {1}, 1},
		{"no key", {1, 1, 1}, {0}, {0}, 0, {0}, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t loads[3];
		size_t deflected;

		memcpy(loads, rows[i].loads, sizeof(loads));
		deflected = place_bounded(rows[i].starts, rows[i].count, owners, COUNT(owners), rows[i].caps, loads,
					  positions);
		check_row(rows[i].what, deflected == rows[i].deflected);
		for (uint32_t k = 0; k < rows[i].count; k++) {
			check_row(rows[i].what, positions[k] == rows[i].expected[k]);
			if (positions[k] != PLACE_NOBODY)
				loads[positions[k]]--;
		}
		check_row(rows[i].what, memcmp(loads, rows[i].loads, sizeof(loads)) == 0);
	}
}

static void one_place_is_all_there_is(void **state)
{
	static const uint32_t owner = 0, starts[] = {0, 0, 0};
	static const uint64_t cap = 2;
	uint64_t load = 0;

	(void)state;
	assert_int_equal(place_bounded(starts, 3, &owner, 1, &cap, &load, positions), 0);
	assert_int_equal(load, 2);
	assert_int_equal(positions[1], 0);
	assert_int_equal(positions[2], PLACE_NOBODY);
}

static void caps_that_suffice_are_never_exceeded_and_place_every_key(void **state)
{
	static uint32_t owners[997], starts[KEYS];
	uint64_t seed = 10, caps[7], loads[7] = {0};
	size_t deflected, away = 0;

	(void)state;
	for (size_t i = 0; i < COUNT(owners); i++)
		owners[i] = i < 7 ? (uint32_t)i : random_below(&seed, 7) % (1 + random_below(&seed, 7));
	for (int i = 0; i < KEYS; i++)
		starts[i] = random_below(&seed, COUNT(owners));
	for (int m = 0; m < 7; m++)
		caps[m] = KEYS / 7 + 1;
	deflected = place_bounded(starts, KEYS, owners, COUNT(owners), caps, loads, positions);
	for (int i = 0; i < KEYS; i++) {
		assert_true(positions[i] < 7);
		away += positions[i] != owners[starts[i]];
		caps[positions[i]]--; // wraps where one had too many
	}
	assert_int_equal(deflected, away);
	for (int m = 0; m < 7; m++)
		assert_int_equal(caps[m] + loads[m], KEYS / 7 + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_weights_go_to_the_highest_score),
		cmocka_unit_test(unequal_weights_go_to_the_highest_logarithm_by_weight),
		cmocka_unit_test(scores_are_told_apart_to_twelve_places),
		cmocka_unit_test(scores_at_both_ends_are_placed_too),
		cmocka_unit_test(what_weights_there_are_does_not_matter_when_they_are_equal),
		cmocka_unit_test(of_members_alike_the_first_has_it),
		cmocka_unit_test(nobody_places_a_key_without_members),
		cmocka_unit_test(keys_and_positions_are_touched_to_their_count_only),
		cmocka_unit_test(shares_are_near_the_weights),
		cmocka_unit_test(a_member_that_leaves_moves_its_own_keys_only),
		cmocka_unit_test(jumps_are_those_of_the_paper),
		cmocka_unit_test(a_bucket_more_takes_its_share_and_nothing_else_moves),
		cmocka_unit_test(neighbours_among_keys_are_spread_as_others_are),
		cmocka_unit_test(keys_are_placed_in_order_and_go_on_from_who_is_full),
		cmocka_unit_test(one_place_is_all_there_is),
		cmocka_unit_test(caps_that_suffice_are_never_exceeded_and_place_every_key),
	};

	return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
