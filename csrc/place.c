#include "place.h"

#include <string.h>

enum { BLOCK = 1024 }; // keys whose best scores stay in the first-level cache while all members are tried

// Without optimization there are no vectors to choose from, and coverage would count each clone that this CPU leaves.
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDE
#endif

// The finalizer of MurmurHash3 (public domain), with the name's second word in between.
static inline uint32_t score(uint32_t key, const uint32_t *seed)
{
	uint32_t x = (key ^ seed[0]) * 0x9e3779b1;

	x = (x ^ x >> 16 ^ seed[1]) * 0x85ebca6b;
	x = (x ^ x >> 13) * 0xc2b2ae35;
	return x ^ x >> 16;
}

// Natural logarithm of a positive number, to some 1e-13: x = 2^e m, and log m by the series of artanh.
static inline double logarithm(double x)
{
	uint64_t bits, one = 0x3ff0000000000000;
	double m, z, zz, sum;
	int32_t e;

	memcpy(&bits, &x, 8);
	e = (int32_t)(bits >> 52) - 1023;
	bits = (bits & 0x000fffffffffffff) | one;
	memcpy(&m, &bits, 8);
	z = (m - 1) / (m + 1); // 0 .. 1/3
	zz = z * z;
	sum = 1.0 / 25;
	for (int odd = 23; odd >= 1; odd -= 2)
		sum = sum * zz + 1.0 / odd;
	return (double)e * 0.6931471805599453 + 2 * z * sum;
}

WIDE static void alike(const uint32_t *keys, uint32_t count, const struct place_member *members, uint32_t n,
		       uint32_t *positions)
{
	uint32_t best[BLOCK];

	for (uint32_t i = 0; i < count; i++) {
		best[i] = score(keys[i], members[0].seed);
		positions[i] = 0;
	}
	for (uint32_t m = 1; m < n; m++) {
		const uint32_t seed[2] = {members[m].seed[0], members[m].seed[1]};

		for (uint32_t i = 0; i < count; i++) {
			uint32_t it = score(keys[i], seed);

			positions[i] = it > best[i] ? m : positions[i];
			best[i] = it > best[i] ? it : best[i];
		}
	}
}

WIDE static void weighted(const uint32_t *keys, uint32_t count, const struct place_member *members, uint32_t n,
			  uint32_t *positions)
{
	double best[BLOCK];

	for (uint32_t i = 0; i < count; i++)
		best[i] = -1e300; // below any score
	for (uint32_t m = 0; m < n; m++) {
		const uint32_t seed[2] = {members[m].seed[0], members[m].seed[1]};
		const double weight = members[m].weight;

		for (uint32_t i = 0; i < count; i++) {
			// The middle of the score's own 2^-32 of 0 .. 1: never 0.
			double u = ((double)score(keys[i], seed) + 0.5) * 0x1p-32;
			double it = logarithm(u) / weight;

			positions[i] = it > best[i] ? m : positions[i];
			best[i] = it > best[i] ? it : best[i];
		}
	}
}

void place_rendezvous(const uint32_t *keys, size_t count, const struct place_member *members, uint32_t n,
		      uint32_t *positions)
{
	int equal = 1;

	if (n == 0) {
		memset(positions, 0xff, count * sizeof(*positions));
		return;
	}
	for (uint32_t m = 1; m < n; m++)
		equal &= members[m].weight == members[0].weight;
	for (size_t at = 0; at < count; at += BLOCK) {
		uint32_t some = count - at < BLOCK ? (uint32_t)(count - at) : BLOCK;

		if (equal)
			alike(keys + at, some, members, n, positions + at);
		else
			weighted(keys + at, some, members, n, positions + at);
	}
}

void place_jump(const uint32_t *keys, size_t count, uint32_t buckets, uint32_t *positions)
{
	for (size_t i = 0; i < count; i++) {
		// The paper's generator wants 64 bits: neighbours among keys must not begin alike.
		uint64_t random = keys[i] * 0x9e3779b97f4a7c15 ^ (uint64_t)keys[i] << 32;
		int64_t bucket = -1, next = 0;

		while (next < buckets) {
			bucket = next;
			random = random * 2862933555777941757 + 1;
			next = (int64_t)((double)(bucket + 1) * (0x1p31 / (double)((random >> 33) + 1)));
		}
		positions[i] = (uint32_t)bucket;
	}
}

size_t place_bounded(const uint32_t *starts, size_t count, const uint32_t *owners, uint32_t length,
		     const uint64_t *caps, uint64_t *loads, uint32_t *positions)
{
	size_t deflected = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t at = starts[i], steps = 0;

		while (steps < length && loads[owners[at]] >= caps[owners[at]]) {
			at = at + 1 < length ? at + 1 : 0;
			steps++;
		}
		positions[i] = PLACE_NOBODY;
		if (steps == length)
			continue;
		positions[i] = owners[at];
		loads[owners[at]]++;
		deflected += owners[at] != owners[starts[i]];
	}
	return deflected;
}
