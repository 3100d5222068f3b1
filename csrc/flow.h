// Flow key and flow hash: what identifies a connection, and the keyed number that stands for it.
// [pure] See DESIGN 5: SipHash-1-3 over addresses, ports and protocol in network order.

#ifndef MAGLEV_FLOW_H
#define MAGLEV_FLOW_H

#include <assert.h>

#include "siphash.h"

enum { FLOW_KEY_MAX = 37, FLOW_KEY_ROOM = 40 /* may be read in words */, FLOW_KEY_IPV4 = 13, FLOW_KEY_IPV6 = 37 };

// The secret that every node of a cluster shares: 16 bytes read as two little-endian words.
struct hash_key {
	uint64_t k0;
	uint64_t k1;
};

// The bytes that are hashed, in this order: source, destination, source port, destination port, protocol.
struct flow_key {
	uint8_t bytes[FLOW_KEY_ROOM];
	uint8_t length; // FLOW_KEY_IPV4 or FLOW_KEY_IPV6
};

// `address_length` is 4 or 16; ports are in network order, as they stand in the packet.
static inline void flow_key_fill(struct flow_key *key, const void *source, const void *destination,
				 uint8_t address_length, uint16_t source_port, uint16_t destination_port,
				 uint8_t protocol)
{
	uint8_t *p = key->bytes;

	memcpy(p, source, address_length);
	memcpy(p + address_length, destination, address_length);
	p += 2 * address_length;
	memcpy(p, &source_port, 2);
	memcpy(p + 2, &destination_port, 2);
	p[4] = protocol;
	key->length = (uint8_t)(2 * address_length + 5);
}

// 64 bits per flow: the upper half picks the slot, connection tables use both (conn_table.h).
static inline uint64_t flow_hash(const struct hash_key *key, const struct flow_key *flow)
{
	if (flow->length == FLOW_KEY_IPV4)
		return siphash(1, 3, key->k0, key->k1, flow->bytes, FLOW_KEY_IPV4);
	return siphash(1, 3, key->k0, key->k1, flow->bytes, FLOW_KEY_IPV6);
}

// The hash that picks the slot with `affinity: client`: addresses and protocol only.
static inline uint64_t flow_client_hash(const struct hash_key *key, const struct flow_key *flow)
{
	uint8_t bytes[FLOW_KEY_MAX];
	size_t addresses = flow->length - 5u;

	memcpy(bytes, flow->bytes, addresses);
	bytes[addresses] = flow->bytes[flow->length - 1];
	return siphash(1, 3, key->k0, key->k1, bytes, addresses + 1);
}

// Which worker gets a flow: deliberately unrelated to the flow hash, so that each worker sees all slots and buckets.
// Cheap, as it is computed for every packet on one core.
static inline uint64_t flow_steering_hash(uint64_t seed, const struct flow_key *flow)
{
	uint64_t hash = seed, word;
	uint8_t at = 0;

	for (; at + 8 <= flow->length; at += 8) {
		memcpy(&word, flow->bytes + at, 8);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	word = 0;
	memcpy(&word, flow->bytes + at, flow->length - at);
	hash = (hash ^ word) * 0xc2b2ae3d27d4eb4fULL;
	return hash ^ hash >> 29;
}

static inline uint32_t flow_slot(uint64_t hash, uint32_t table_size)
{
	return (uint32_t)((hash >> 32) % table_size);
}

#endif
