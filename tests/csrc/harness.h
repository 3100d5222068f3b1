// What the C tests share: cmocka, memory that ends where its bytes end, numbers that never change, a plain checksum.

#ifndef MAGLEV_TEST_HARNESS_H
#define MAGLEV_TEST_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// One row of a table failed: say which.
#define check_row(name, condition)                                                                                     \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			fail_msg("%s: not true: %s", name, #condition);                                                \
	} while (0)

// A copy of `length` bytes of which nothing more may be read: ASan's red zone begins right behind. Freed by the caller.
static inline uint8_t *at_end_of_block(const void *bytes, size_t length)
{
	uint8_t *copy = malloc(length);

	assert_true(copy != NULL || length == 0);
	if (length > 0)
		memcpy(copy, bytes, length);
	return copy;
}

// SplitMix64: the same sequence for the same start on every machine.
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
	return (uint32_t)(next_random(state) % limit);
}

// RFC 1071, word by word with the carry added at once; over a header with a right checksum it gives 0.
static inline uint16_t internet_checksum(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < length; i += 2) {
		sum += (uint32_t)(bytes[i] * 256 + bytes[i + 1]);
		if (sum > 0xffff)
			sum -= 0xffff;
	}
	return (uint16_t)(0xffff - sum);
}

static inline uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] * 256 + p[1]);
}

static inline void put_be16(uint8_t *p, uint32_t value)
{
	p[0] = (uint8_t)(value / 256);
	p[1] = (uint8_t)value;
}

#endif
