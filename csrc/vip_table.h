// Which vip a packet is for: (address, protocol, port) -> position of the vip in its forwarding state.
// [pure] Built by the control thread, read-only afterwards; open addressing at a load of at most a half.

#ifndef MAGLEV_VIP_TABLE_H
#define MAGLEV_VIP_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum { VIP_NONE = -1 };

struct vip_entry {
	uint64_t address[2]; // in network order as it stands in a packet; of IPv4 the first four bytes, zeros behind
	uint32_t selector;   // port, protocol, length of the address; 0 = a free entry
	int32_t position;
	bool served; // in the entry that says only whose address it is: a vip of it takes new flows
};

struct vip_table {
	struct vip_entry *entries;
	uint32_t mask;
};

// Room for `vips` vips. Returns 0 or -ENOMEM.
int vip_table_create(struct vip_table *t, uint32_t vips);
void vip_table_free(struct vip_table *t);

// Add one vip (port 0 = any). Returns 0, or -EEXIST when the same triple is there.
int vip_table_add(struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		  uint16_t port, int32_t position);

// The vip of exactly this port, else the one of any port, else VIP_NONE.
int32_t vip_table_find(const struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		       uint16_t port);

// Note that a vip of this address takes new flows. The address must have been added.
void vip_table_mark_served(struct vip_table *t, const uint8_t *address, uint8_t address_length);

// Whether a vip of this address takes new flows.
bool vip_table_served(const struct vip_table *t, const uint8_t *address, uint8_t address_length);

// Whether any vip has this address.
bool vip_table_owns(const struct vip_table *t, const uint8_t *address, uint8_t address_length);

#endif
