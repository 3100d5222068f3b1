// RSS as we set it up in NICs, computed once more: which queue, and so which worker, a flow comes by in layout `rss`.
//
// Our key is one pattern of 16 bits over and over. So both directions of a flow have one hash, and that of the addresses
// alone is the hash with ports of zero.

#ifndef MAGLEV_RSS_H
#define MAGLEV_RSS_H

#include <stdint.h>

#include <rte_thash.h>

#include "flow.h"
#include "wire.h"

enum { RSS_KEY_BYTES = 40, RSS_KEY_MOST = 64 /* some NICs want more than the hash of IPv6 needs */ };

// RSS_KEY_MOST bytes of it.
extern const uint8_t rss_key[RSS_KEY_MOST];

// The Toeplitz hash over addresses and ports, as they stand in the key.
static inline uint32_t rss_hash(const struct flow_key *flow)
{
	uint32_t words[FLOW_KEY_MAX / 4], count = (flow->length - 1u) / 4;

	for (uint32_t i = 0; i < count; i++)
		words[i] = read32(flow->bytes + 4 * i);
	return rte_softrss(words, count, rss_key);
}

// The queue of the packets whose hash picks `bucket`, in a table that is to act as one of `buckets`.
static inline uint16_t rss_bucket_queue(uint32_t bucket, uint32_t buckets, uint32_t queues)
{
	return (uint16_t)(bucket % buckets % queues);
}

#endif
