// Which vip a packet is for: (address, protocol, port) -> position of the vip in its forwarding state.
// [pure] Built by the control thread, read-only afterwards; open addressing in buckets, at a load of at most a quarter.

#ifndef MAGLEV_VIP_TABLE_H
#define MAGLEV_VIP_TABLE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { VIP_NONE = -1, VIP_WAYS = 2 };

struct vip_entry {
	uint64_t key;     // selector in the upper half, the address's first four bytes in the lower; 0 = a free entry
	uint64_t rest[2]; // of an IPv6 address the last eight, and the four before them; as they stand in a packet
	int32_t position; // VIP_NONE: no vip, this says only whose address it is; or a free entry
	bool served;      // in the entry that says only whose address it is: a vip of it takes new flows
};

// One cache line. Both entries are compared without a branch between them: which of them it is nobody could foretell.
struct vip_bucket {
	struct vip_entry entries[VIP_WAYS];
} __attribute__((aligned(64)));
static_assert(sizeof(struct vip_bucket) == 64, "a bucket is one cache line");

struct vip_table {
	struct vip_bucket *buckets; // filled from the front; one that is full goes on in the next
	uint32_t mask;
};

// Room for `vips` vips. Returns 0 or -ENOMEM.
int vip_table_create(struct vip_table *t, uint32_t vips);
void vip_table_free(struct vip_table *t);

// Add one vip (port 0 = any). Returns 0, or -EEXIST when the same triple is there.
int vip_table_add(struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		  uint16_t port, int32_t position);

// What an IPv4 destination is found by; the first word of what an IPv6 one is. Port 0 stands for any; protocol 0 for the
// entry that says only whose address this is.
static inline uint64_t vip_key(uint32_t address, uint8_t address_length, uint64_t protocol, uint64_t port)
{
	return address | (port << 16 | protocol << 8 | address_length) << 32;
}

static inline struct vip_entry vip_table_key(const uint8_t *address, uint8_t address_length, uint8_t protocol,
					     uint16_t port)
{
	struct vip_entry e = {.position = VIP_NONE};
	uint32_t four;

	memcpy(&four, address, 4);
	e.key = vip_key(four, address_length, protocol, port);
	if (address_length == 4)
		return e;
	memcpy(&e.rest[0], address + 8, 8);
	memcpy(&four, address + 4, 4);
	e.rest[1] = four;
	return e;
}

// 0 when they are equal. The key alone tells an IPv4 address from all others.
static inline uint64_t vip_table_differ(const struct vip_entry *a, const struct vip_entry *b, uint8_t address_length)
{
	if (address_length == 4)
		return a->key ^ b->key;
	return (a->key ^ b->key) | (a->rest[0] ^ b->rest[0]) | (a->rest[1] ^ b->rest[1]);
}

// The entry that equals `wanted`, or the free one where it would stand.
static inline struct vip_entry *vip_table_probe(const struct vip_table *t, const struct vip_entry *wanted,
						uint8_t address_length)
{
	uint64_t word = wanted->key ^ wanted->rest[0] ^ wanted->rest[1] << 32;
	uint32_t i = (uint32_t)((word ^ word >> 32) * 0x9e3779b97f4a7c15ULL >> 40) & t->mask; // of all bits

	for (;; i = (i + 1) & t->mask) {
		struct vip_entry *e = t->buckets[i].entries;
		uint64_t first = vip_table_differ(&e[0], wanted, address_length);
		uint64_t second = vip_table_differ(&e[1], wanted, address_length);
		uint64_t lesser = first < second ? first : second; // makes one branch of two

		if (lesser == 0)
			return &e[second == 0];
		if (e[0].key == 0)
			return &e[0];
		if (e[1].key == 0)
			return &e[1];
	}
}

// The vip of exactly this port, else the one of any port, else VIP_NONE. Done for every packet, so in a header: where
// the length of the address is a constant few instructions are left of it.
static inline int32_t vip_table_find_key(const struct vip_table *t, struct vip_entry *wanted, uint8_t address_length)
{
	const struct vip_entry *at = vip_table_probe(t, wanted, address_length);

	if (at->key == 0) {
		wanted->key &= 0x0000ffffffffffff;
		at = vip_table_probe(t, wanted, address_length);
	}
	return at->position;
}

static inline int32_t vip_table_find(const struct vip_table *t, const uint8_t *address, uint8_t address_length,
				     uint8_t protocol, uint16_t port)
{
	struct vip_entry wanted = vip_table_key(address, address_length, protocol, port);

	return vip_table_find_key(t, &wanted, address_length);
}

// Note that a vip of this address takes new flows. The address must have been added.
void vip_table_mark_served(struct vip_table *t, const uint8_t *address, uint8_t address_length);

// Whether a vip of this address takes new flows.
bool vip_table_served(const struct vip_table *t, const uint8_t *address, uint8_t address_length);

// Whether any vip has this address.
bool vip_table_owns(const struct vip_table *t, const uint8_t *address, uint8_t address_length);

#endif
