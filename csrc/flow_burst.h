// The flow hashes of a burst: SipHash-1-3 of several keys side by side where the CPU can, equal bit for bit to
// flow_hash() of each.
// [pure]

#ifndef MAGLEV_FLOW_BURST_H
#define MAGLEV_FLOW_BURST_H

#include <stdbool.h>

#include "flow.h"

enum { FLOW_BURST = 32 }; // keys at once, at most

// keys[i] is read, hashes[i] is written. The way is chosen at the first call, by what the CPU has.
void flow_hash_burst(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n, uint64_t *hashes);

// The ways by themselves, for their tests; `avx2` only where flow_hash_has_avx2().
void flow_hash_burst_scalar(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n,
			    uint64_t *hashes);
void flow_hash_burst_avx2(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n,
			  uint64_t *hashes);
bool flow_hash_has_avx2(void);

#endif
