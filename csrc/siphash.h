// SipHash-c-d of Aumasson and Bernstein (2012), 64-bit output, rounds fixed at compile time by the caller.
// [pure] Inputs here are short (names, flow keys), so everything is inlined.

#ifndef MAGLEV_SIPHASH_H
#define MAGLEV_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t siphash_rotl(uint64_t x, int bits)
{
	return (x << bits) | (x >> (64 - bits));
}

static inline __attribute__((always_inline)) void siphash_rounds(uint64_t v[4], int rounds)
{
	for (int i = 0; i < rounds; i++) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = siphash_rotl(v[1], 13) ^ v[0];
		v[3] = siphash_rotl(v[3], 16) ^ v[2];
		v[0] = siphash_rotl(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = siphash_rotl(v[1], 17) ^ v[2];
		v[3] = siphash_rotl(v[3], 21) ^ v[0];
		v[2] = siphash_rotl(v[2], 32);
	}
}

// Hash `len` bytes at `data` (any alignment) with key (k0, k1). `c` and `d` must be constants.
static inline __attribute__((always_inline)) uint64_t siphash(int c, int d, uint64_t k0, uint64_t k1,
							       const void *data, size_t len)
{
	uint64_t v[4] = {
		k0 ^ 0x736f6d6570736575ULL,
		k1 ^ 0x646f72616e646f6dULL,
		k0 ^ 0x6c7967656e657261ULL,
		k1 ^ 0x7465646279746573ULL,
	};
	const uint8_t *p = data;
	uint64_t last = (uint64_t)len << 56;
	uint64_t word;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&word, p, 8);
		v[3] ^= word;
		siphash_rounds(v, c);
		v[0] ^= word;
	}
	for (size_t i = 0; i < len; i++)
		last |= (uint64_t)p[i] << (8 * i);
	v[3] ^= last;
	siphash_rounds(v, c);
	v[0] ^= last;
	v[2] ^= 0xff;
	siphash_rounds(v, d);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
