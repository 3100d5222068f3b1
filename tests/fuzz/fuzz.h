// What the fuzz targets share: the input as a sequence of numbers and frames, and what must hold.
//
// A target is one function of the input: libFuzzer calls it (make fuzz), or replay.c with the corpus (make test).

#ifndef MAGLEV_FUZZ_H
#define MAGLEV_FUZZ_H

#include <stdbool.h>
#include <stdio.h>

#include "bytes.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define must(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #condition);                     \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
};

// The next `bytes` bytes as a big-endian number; behind the end of the input there are zeros.
static inline uint64_t take(struct input *in, int bytes)
{
	uint64_t value = 0;

	for (; bytes > 0; bytes--) {
		value = value << 8 | (in->left > 0 ? *in->at : 0);
		in->at += in->left > 0;
		in->left -= in->left > 0;
	}
	return value;
}

static inline void take_bytes(struct input *in, uint8_t *bytes, int n)
{
	for (int i = 0; i < n; i++)
		bytes[i] = (uint8_t)take(in, 1);
}

// A frame as a NIC gives it: the first `available` of `length` bytes are in the first buffer, which ends with them.
struct frame {
	uint8_t *bytes; // freed by the caller
	uint32_t available;
	uint32_t length;
};

static inline uint16_t ethertype(const struct frame *f, uint32_t behind)
{
	return be16(f->bytes + behind - 2);
}

// Make the checksum of an IPv4 header right, which no random change would do.
static inline void mend_ipv4(const struct frame *f)
{
	uint32_t at = 14, header;

	while (at < 22 && f->available >= at && (ethertype(f, at) == 0x8100 || ethertype(f, at) == 0x88a8))
		at += 4;
	if (f->available < at + 20 || ethertype(f, at) != 0x0800)
		return;
	header = (f->bytes[at] & 15u) * 4;
	if (header < 20 || f->available < at + header)
		return;
	put_be16(f->bytes + at + 10, 0);
	put_be16(f->bytes + at + 10, internet_checksum(f->bytes + at, header));
}

// The rest of the input: whether to mend the IPv4 header, how many bytes are in other buffers (2), the first buffer.
static inline struct frame take_frame(struct input *in)
{
	bool mend = take(in, 1) & 1;
	uint32_t elsewhere = (uint32_t)take(in, 2);
	struct frame f = {at_end_of_block(in->at, in->left), (uint32_t)in->left, (uint32_t)in->left + elsewhere};

	if (mend)
		mend_ipv4(&f);
	return f;
}

#endif
