// Most packets are plain: no tag, no option or extension header, no fragment, TCP or UDP, TTL not 0, all as it should be.
// Those of a burst and of one address family stand here side by side, a lane each, and are read, checked and hashed by
// loops that the compiler makes vectors of; what they say of a packet is what parse_ip() and parse_transport() would.
// [pure]

#ifndef MAGLEV_PLAIN_H
#define MAGLEV_PLAIN_H

#include <stddef.h>

#include "encap.h"
#include "parse.h"
#include "vip_table.h"

enum {
	PLAIN_LANES = 64,
	PLAIN_L3 = 14,               // the Ethernet header
	PLAIN_LEAST4 = 14 + 20 + 20, // bytes of the frame that are read
	PLAIN_LEAST6 = 14 + 40 + 20,
};

// What is read of the packets, in words as they stand there, and what is made of it.
struct plain {
	uint32_t count;
	uint8_t version;
	uint8_t position[PLAIN_LANES]; // of the packet in its burst
	const uint8_t *ip[PLAIN_LANES];
	uint64_t room[PLAIN_LANES];      // bytes from `ip` on that may be read, and above them, those of the frame
	uint64_t first[PLAIN_LANES];     // the IP header's first 8 bytes
	uint64_t second[PLAIN_LANES];    // of IPv4: the next 8
	uint64_t key[5][PLAIN_LANES];    // the flow key in words: two of IPv4, five of IPv6
	uint64_t transport[PLAIN_LANES]; // ports, then two bytes each at 12 (TCP: offset, flags) and at 4 (UDP: length)
	uint64_t good[PLAIN_LANES];      // 1: plain
	uint64_t lengths[PLAIN_LANES];   // these are words of the view
	uint64_t offsets[PLAIN_LANES];
	uint64_t summary[PLAIN_LANES];
	uint64_t vip_key[PLAIN_LANES];   // vip_table.h
	uint64_t outer_word[PLAIN_LANES]; // encap.h
	uint64_t outer_sum[PLAIN_LANES];
	uint64_t hash[PLAIN_LANES];      // flow hash
};

// No packets of this version, 4 or 6, yet.
static inline void plain_begin(struct plain *p, uint8_t version)
{
	p->count = 0;
	p->version = version;
}

static inline uint64_t plain_read(const uint8_t *bytes, uint32_t count)
{
	uint64_t word = 0;

	memcpy(&word, bytes, count);
	return word;
}

static inline uint32_t plain_add(struct plain *p, const uint8_t *ip, uint64_t room, uint8_t position)
{
	uint32_t lane = p->count++;

	p->position[lane] = position;
	p->ip[lane] = ip;
	p->room[lane] = room;
	p->first[lane] = plain_read(ip, 8);
	return lane;
}

static inline uint64_t plain_transport(const uint8_t *l4)
{
	return plain_read(l4, 4) | plain_read(l4 + 12, 2) << 32 | plain_read(l4 + 4, 2) << 48;
}

static inline void plain_add4(struct plain *p, const uint8_t *ip, uint64_t room, uint8_t position)
{
	uint32_t lane = plain_add(p, ip, room, position);

	p->second[lane] = plain_read(ip + 8, 8);
	p->key[0][lane] = plain_read(ip + 12, 8);
	p->transport[lane] = plain_transport(ip + 20);
}

static inline void plain_add6(struct plain *p, const uint8_t *ip, uint64_t room, uint8_t position)
{
	uint32_t lane = plain_add(p, ip, room, position);

	for (int word = 0; word < 4; word++)
		p->key[word][lane] = plain_read(ip + 8 + 8 * word, 8);
	p->transport[lane] = plain_transport(ip + 40);
}

// One more, when it may be plain; `available` of the `length` bytes of the frame are contiguous at `frame`. False: it has
// no lane.
static inline bool plain_take(struct plain *four, struct plain *six, const uint8_t *frame, uint32_t available,
			      uint32_t length, uint8_t position)
{
	uint64_t room = (available - PLAIN_L3) | (uint64_t)(length - PLAIN_L3) << 32;
	uint64_t ethertype;

	if (available < PLAIN_LEAST4)
		return false;
	ethertype = plain_read(frame + PLAIN_L3 - 2, 2);
	if (ethertype == htons(0x0800))
		plain_add4(four, frame + PLAIN_L3, room, position);
	else if (ethertype == htons(0x86dd) && available >= PLAIN_LEAST6)
		plain_add6(six, frame + PLAIN_L3, room, position);
	else
		return false;
	return true;
}

// Check and hash all that were taken. The way is chosen at the first call, by what the CPU has.
void plain_finish(struct plain *p, const struct hash_key *key);

// The view of a packet that is good; `version` is that of the lanes.
static inline void plain_view(const struct plain *p, uint32_t lane, uint8_t version, struct packet_view *v)
{
	v->ip = p->ip[lane];
	memcpy(&v->ip_length, &p->lengths[lane], 8);
	memcpy(&v->l3, &p->offsets[lane], 8);
	memcpy(&v->version, &p->summary[lane], 8);
	v->fragment = false;
	for (int word = 0; word < (version == 4 ? 2 : 5); word++)
		memcpy(v->key.bytes + 8 * word, &p->key[word][lane], 8);
	v->key.length = version == 4 ? FLOW_KEY_IPV4 : FLOW_KEY_IPV6;
}

// The ways by themselves, for their tests: equal bit for bit. NULL where the CPU has not what it takes.
typedef void plain_way(struct plain *p, const struct hash_key *key);
plain_way *plain_scalar(void);
plain_way *plain_avx2(void);
plain_way *plain_avx512(void);

#endif
