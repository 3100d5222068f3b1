// What the C tests share: cmocka, tables of rows, random numbers that never change.

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

#include "bytes.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// One row of a table failed: say which.
#define check_row(name, condition)                                                                                     \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			fail_msg("%s: not true: %s", name, #condition);                                                \
	} while (0)

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

#endif
