// Where keys go by hashing schemes that need no table of their own: what `forwarder/hashing` calls for many keys at once.
// [pure] Keys are 32-bit hashes, positions those of members in order of name. Called from the control thread and from
// the hashing laboratory; a caller in Python releases the GIL first.

#ifndef MAGLEV_PLACE_H
#define MAGLEV_PLACE_H

#include <stddef.h>
#include <stdint.h>

enum { PLACE_NOBODY = 0xffffffff };

// What rendezvous knows of a member: words of a hash of its name, and its weight, which is positive.
struct place_member {
	uint32_t seed[2];
	double weight;
};

// Rendezvous (Thaler and Ravishankar 1998): each key goes to the member that scores highest for it; of equal ones to the
// first. With unequal weights scores are log(u) / weight (Schindelhauer and Schomaker 2005), from +, * and / alone and
// without fused operations, so that every CPU finds the same. No members: PLACE_NOBODY.
void place_rendezvous(const uint32_t *keys, size_t count, const struct place_member *members, uint32_t n,
		      uint32_t *positions);

// Jump (Lamping and Veach 2014): 0 .. buckets - 1; a bucket more takes its share evenly from all before it.
// `buckets` is positive.
void place_jump(const uint32_t *keys, size_t count, uint32_t buckets, uint32_t *positions);

// Bounded loads (Mirrokni, Thorup and Zadimoghaddam 2016): key after key goes to the owner at its start, or to the next
// one in `owners[length]`, going round, whose load is below its cap. Loads are raised by what is placed. Once all owners
// are at their caps: PLACE_NOBODY. Returns how many keys went to another than their first owner.
size_t place_bounded(const uint32_t *starts, size_t count, const uint32_t *owners, uint32_t length,
		     const uint64_t *caps, uint64_t *loads, uint32_t *positions);

#endif
