// Whose turn it is to take a slot of a Maglev table: quotas by weight, and the order of all turns (DESIGN 5).
// [pure] No slot is looked at here: the order follows from the weights alone.

#ifndef MAGLEV_TURNS_H
#define MAGLEV_TURNS_H

#include <stdint.h>

#include "maglev.h"

// Fill `order[size]` with positions into `members[count]`, one for each turn, the first turn first. Some member has a
// positive weight. Returns 0 or -ENOMEM.
int turns_order(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *order);

#endif
