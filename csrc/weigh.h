// Weigh: how many live flows backends have, against the load bounds of vips. For the control thread.

#ifndef MAGLEV_WEIGH_H
#define MAGLEV_WEIGH_H

#include "road.h"

// Mark in `s` which backends are over, by what all connection tables hold now. Also before workers see the state, so
// that a new one does not begin with nobody over.
void weigh(const struct dataplane *d, struct state *s);

#endif
