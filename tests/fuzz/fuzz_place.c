// Keys, members, buckets and caps of any kind: placed as a plain model places them, one key after another, whatever
// the compiler has made of blocks of keys.

#include "fuzz.h"

#include "place.h"

enum { MAX_KEYS = 1200, MAX_MEMBERS = 9, MAX_OWNERS = 40 };

// A few keys, repeated with changes until there are `count`: enough to fill a block and a piece of another.
static uint32_t *take_keys(struct input *in, size_t count)
{
	uint32_t some[4], *keys = malloc(count * sizeof(*keys));

	for (size_t i = 0; i < COUNT(some); i++)
		some[i] = (uint32_t)take(in, 4);
	for (size_t i = 0; i < count; i++)
		keys[i] = some[i % COUNT(some)] + (uint32_t)(i / COUNT(some)) * 0x01000193;
	return keys;
}

// Who has a key must have it against each of the others alone, where weights that are equal are placed by other code.
static void check_rendezvous(struct input *in)
{
	static const size_t COUNTS[] = {1, 3, 16, 1023, 1024, 1025, MAX_KEYS, 0};
	size_t count = COUNTS[take(in, 1) % COUNT(COUNTS)];
	uint32_t n = (uint32_t)take(in, 1) % (MAX_MEMBERS + 1), *keys = take_keys(in, count);
	uint32_t *positions = malloc(count * sizeof(*positions)), alone;
	struct place_member members[MAX_MEMBERS];
	uint8_t shift = (uint8_t)take(in, 1) & 31;

	for (uint32_t m = 0; m < n; m++) {
		members[m].seed[0] = (uint32_t)take(in, 1) << 24 | (uint32_t)take(in, 1);
		members[m].seed[1] = (uint32_t)take(in, 2);
		members[m].weight = (double)((uint32_t)take(in, 4) >> shift) + 1;
	}
	place_rendezvous(keys, count, members, n, positions);
	for (size_t i = 0; i < count; i++) {
		if (n == 0) {
			must(positions[i] == PLACE_NOBODY);
			continue;
		}
		must(positions[i] < n);
		for (uint32_t m = 0; m < n; m++) {
			bool before = m < positions[i];
			struct place_member pair[] = {members[before ? m : positions[i]],
						      members[before ? positions[i] : m]};

			if (m == positions[i])
				continue;
			place_rendezvous(&keys[i], 1, pair, 2, &alone);
			must(alone == before);
		}
	}
	free(keys);
	free(positions);
}

// As one bucket after the other comes, a key moves to the new one or stays.
static void check_jump(struct input *in)
{
	uint32_t buckets = (uint32_t)take(in, 4) >> (take(in, 1) & 31), count = 64, *keys;
	uint32_t fewer[64], positions[64], more[64];

	buckets += buckets == 0;
	keys = take_keys(in, count);
	place_jump(keys, count, buckets, positions);
	for (uint32_t i = 0; i < count; i++)
		must(positions[i] < buckets);
	if (buckets > 1) {
		place_jump(keys, count, buckets - 1, fewer);
		for (uint32_t i = 0; i < count; i++)
			must(positions[i] == buckets - 1 || positions[i] == fewer[i]);
	}
	if (buckets < 0xffffffff) {
		place_jump(keys, count, buckets + 1, more);
		for (uint32_t i = 0; i < count; i++)
			must(more[i] == buckets || more[i] == positions[i]);
	}
	free(keys);
}

static void check_bounded(struct input *in)
{
	uint32_t length = 1 + (uint32_t)take(in, 1) % MAX_OWNERS, n = 1 + (uint32_t)take(in, 1) % MAX_MEMBERS;
	uint32_t owners[MAX_OWNERS], *starts;
	uint64_t caps[MAX_MEMBERS], loads[MAX_MEMBERS], model[MAX_MEMBERS];
	size_t count, deflected, expected = 0;
	uint32_t *positions;

	for (uint32_t m = 0; m < n; m++) {
		caps[m] = take(in, 1);
		model[m] = loads[m] = take(in, 1) & 15;
	}
	for (uint32_t i = 0; i < length; i++)
		owners[i] = (uint32_t)take(in, 1) % n;
	count = in->left < MAX_KEYS ? in->left : MAX_KEYS;
	starts = calloc(count + 1, sizeof(*starts));
	positions = malloc(count * sizeof(*positions));
	for (size_t i = 0; i < count; i++)
		starts[i] = (uint32_t)take(in, 1) % length;
	deflected = place_bounded(starts, count, owners, length, caps, loads, positions);
	for (size_t i = 0; i < count; i++) {
		uint32_t owner = PLACE_NOBODY;

		for (uint32_t step = 0; step < length && owner == PLACE_NOBODY; step++) {
			uint32_t it = owners[(starts[i] + step) % length];

			owner = model[it] < caps[it] ? it : PLACE_NOBODY;
		}
		must(positions[i] == owner);
		if (owner != PLACE_NOBODY) {
			model[owner]++;
			expected += owner != owners[starts[i]];
		}
	}
	must(deflected == expected);
	must(memcmp(loads, model, n * sizeof(*loads)) == 0);
	free(starts);
	free(positions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const checks[])(struct input *) = {check_rendezvous, check_jump, check_bounded};
	struct input in = {data, size};

	checks[take(&in, 1) % COUNT(checks)](&in);
	return 0;
}
