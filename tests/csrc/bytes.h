// Bytes for tests: memory that ends where its bytes end, numbers as packets have them, and plain checksums that share
// nothing with those under test.

#ifndef MAGLEV_TEST_BYTES_H
#define MAGLEV_TEST_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A copy of `length` bytes that ends where its memory ends: ASan's red zone begins right behind. Freed by the caller.
static inline uint8_t *at_end_of_block(const void *bytes, size_t length)
{
	uint8_t *copy = malloc(length);

	if (copy == NULL && length > 0)
		abort();
	if (length > 0)
		memcpy(copy, bytes, length);
	return copy;
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

// RFC 1071, word by word with the carry added at once; an odd last byte is the first of a word.
static inline uint32_t ones_sum(uint32_t sum, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i += 2) {
		sum += bytes[i] * 256u + (i + 1 < length ? bytes[i + 1] : 0);
		while (sum > 0xffff)
			sum -= 0xffff;
	}
	return sum;
}

// Over a header with a right checksum it gives 0.
static inline uint16_t internet_checksum(const uint8_t *bytes, size_t length)
{
	return (uint16_t)(0xffff - ones_sum(0, bytes, length));
}

// Of an ICMP message as its receiver makes it: 0 when it is right. The pseudo header of IPv6 is in it.
static inline uint16_t icmp_checksum(const uint8_t *ip, const uint8_t *icmp, uint32_t length)
{
	uint32_t pseudo = ip[0] >> 4 == 6 ? ones_sum(length + 58, ip + 8, 32) : 0;

	return (uint16_t)(0xffff - ones_sum(pseudo, icmp, length));
}

#endif
