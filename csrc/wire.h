// Numbers as they stand in packets, and the sum behind Internet checksums (RFC 1071).
// [pure]

#ifndef MAGLEV_WIRE_H
#define MAGLEV_WIRE_H

#include <assert.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "flow keys and headers are read and written in words");

static inline uint16_t read16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t read32(const uint8_t *p)
{
	return (uint32_t)read16(p) << 16 | read16(p + 2);
}

// The lower 16 bits of `value`.
static inline void write16(uint8_t *p, uint32_t value)
{
	p[0] = (uint8_t)(value >> 8);
	p[1] = (uint8_t)value;
}

// `sum` and the words of up to 64 KB; of an odd number of bytes the last one is the upper half of a word.
static inline uint32_t sum_words(const uint8_t *p, uint32_t length, uint32_t sum)
{
	for (; length > 1; p += 2, length -= 2)
		sum += read16(p);
	return length > 0 ? sum + (uint32_t)(p[0] << 8) : sum;
}

// The one's complement sum in 16 bits: 0xffff over what carries its right checksum; a checksum is its complement.
static inline uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)(sum + (sum >> 16));
}

#endif
