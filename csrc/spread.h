// Spread: which worker has a flow. By a hash of ours in layout `software`, by what the NICs compute in layout `rss`.

#ifndef MAGLEV_SPREAD_H
#define MAGLEV_SPREAD_H

#include "rss.h"

// Written before the stages start.
struct spread {
	uint32_t workers;
	uint32_t buckets; // that the RSS tables of all ports act as; 0: layout `software`
	uint64_t seed;    // of the steering hash
};

static inline uint32_t spread_worker(const struct spread *s, const struct flow_key *key)
{
	if (s->buckets == 0)
		return (uint32_t)((flow_steering_hash(s->seed, key) >> 32) % s->workers);
	return rss_bucket_queue(rss_hash(key), s->buckets, s->workers);
}

#endif
