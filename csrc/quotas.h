// How many slots of a Maglev table each member owns: its exact share by weight, rounded by largest remainder.
// [pure]

#ifndef MAGLEV_QUOTAS_H
#define MAGLEV_QUOTAS_H

#include <stdint.h>

#include "maglev.h"

// Fill `quotas[count]`; their sum is `size`. Equal remainders are rounded up in order of name, which is that of the
// members. Some member has a positive weight. Returns 0 or -ENOMEM.
int quotas_deal(const struct maglev_member *members, uint32_t count, uint32_t size, uint32_t *quotas);

#endif
