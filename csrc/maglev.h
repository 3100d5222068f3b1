// The Maglev table: slot -> position of a backend, filled by turns (Eisenbud et al., NSDI 2016, section 3.4).
// [pure] Called from the control thread only; a caller in Python releases the GIL first. turns.h says whose turn it is,
// seek.h which slot the turn takes. Memory while it is built: 2 1/8 bytes per slot and some 100 per member.
// Weights follow DESIGN 5: quotas by largest remainder, turns by credit, so slots equal quotas exactly.

#ifndef MAGLEV_MAGLEV_H
#define MAGLEV_MAGLEV_H

#include <stddef.h>
#include <stdint.h>

enum {
	MAGLEV_EMPTY = 0xffff,       // a slot that nobody owns: only in the table of an empty set
	MAGLEV_MAX_MEMBERS = 0xfffe, // positions fit 16 bits beside MAGLEV_EMPTY
	MAGLEV_MAX_SIZE = 1 << 24,
};

// A member's own order of preference over the slots: offset, offset + skip, offset + 2 skip, ... mod size.
struct maglev_member {
	uint32_t offset; // below the table's size
	uint32_t skip;   // 1 .. size - 1
	uint32_t weight; // 0 owns nothing
};

// The permutation of a name, by SipHash-2-4 with the keys of the well-known Go implementation.
void maglev_permutation(const void *name, size_t length, uint32_t size, struct maglev_member *member);

// Fill `slots[size]` with positions into `members[count]`, which must stand in order of name (bytes).
// Returns 0, or a negative errno: -EINVAL for a size that is no prime or arguments out of range, -ENOMEM.
// With no member of positive weight every slot is MAGLEV_EMPTY.
int maglev_populate(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *slots);

#endif
