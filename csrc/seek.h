// Slots for turns: each turn takes the first slot of its member's permutation that is still empty.
// [pure] What is taken does not depend on how it is sought: three ways are used, each where it is the quickest.

#ifndef MAGLEV_SEEK_H
#define MAGLEV_SEEK_H

#include <stdint.h>

#include "maglev.h"

// Give every one of `slots[size]`, all of them empty, to the member whose turn it is: turn t is order[t]'s.
// `group`: turns that are looked ahead for together, as many as there are members in a round. `size` is a prime, and
// the members' offsets and skips are in range. Returns 0 or -ENOMEM.
int seek_slots(const struct maglev_member *members, uint32_t count, uint32_t size, uint32_t group,
	       const uint16_t *order, uint16_t *slots);

#endif
