#include "vip_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t home(const struct vip_table *t, const struct vip_entry *wanted)
{
	uint64_t low, high;

	memcpy(&low, wanted->address, 8);
	memcpy(&high, wanted->address + 8, 8);
	low ^= (uint64_t)wanted->port << 40 | (uint64_t)wanted->protocol << 56;
	low = (low ^ low >> 32) * 0x9e3779b97f4a7c15ULL;
	high = (high ^ high >> 29) * 0xc2b2ae3d27d4eb4fULL;
	return (uint32_t)((low ^ high) >> 32) & t->mask;
}

static bool same(const struct vip_entry *a, const struct vip_entry *b)
{
	return a->port == b->port && a->protocol == b->protocol && a->address_length == b->address_length &&
	       memcmp(a->address, b->address, sizeof(a->address)) == 0;
}

// The entry that equals `wanted`, or the free one where it would stand.
static struct vip_entry *probe(const struct vip_table *t, const struct vip_entry *wanted)
{
	uint32_t i = home(t, wanted);

	while (t->entries[i].address_length != 0 && !same(&t->entries[i], wanted))
		i = (i + 1) & t->mask;
	return &t->entries[i];
}

static struct vip_entry key_of(const uint8_t *address, uint8_t address_length, uint8_t protocol, uint16_t port)
{
	struct vip_entry e = {
		.port = port, .protocol = protocol, .address_length = address_length, .position = VIP_NONE};

	memcpy(e.address, address, address_length);
	return e;
}

int vip_table_create(struct vip_table *t, uint32_t vips)
{
	uint32_t size = 8;

	while (size < 4 * vips) // each vip may add two entries
		size *= 2;
	t->mask = size - 1;
	t->entries = calloc(size, sizeof(*t->entries));
	return t->entries != NULL ? 0 : -ENOMEM;
}

void vip_table_free(struct vip_table *t)
{
	free(t->entries);
	t->entries = NULL;
}

int vip_table_add(struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		  uint16_t port, int32_t position)
{
	struct vip_entry vip = key_of(address, address_length, protocol, port);
	struct vip_entry owner = key_of(address, address_length, 0, 0);
	struct vip_entry *at = probe(t, &vip);

	if (at->address_length != 0)
		return -EEXIST;
	vip.position = position;
	*at = vip;
	at = probe(t, &owner);
	if (at->address_length == 0)
		*at = owner;
	return 0;
}

int32_t vip_table_find(const struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		       uint16_t port)
{
	struct vip_entry wanted = key_of(address, address_length, protocol, port);
	const struct vip_entry *at = probe(t, &wanted);

	if (at->address_length == 0) {
		wanted.port = 0;
		at = probe(t, &wanted);
	}
	return at->address_length != 0 ? at->position : VIP_NONE;
}

bool vip_table_owns(const struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = key_of(address, address_length, 0, 0);

	return probe(t, &wanted)->address_length != 0;
}

void vip_table_mark_served(struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = key_of(address, address_length, 0, 0);

	probe(t, &wanted)->served = true;
}

bool vip_table_served(const struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = key_of(address, address_length, 0, 0);

	return probe(t, &wanted)->served;
}
