#include "vip_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Port 0 stands for any; protocol 0 for the entry that says only whose address this is.
static uint32_t selector(uint8_t address_length, uint8_t protocol, uint16_t port)
{
	return (uint32_t)port << 16 | (uint32_t)protocol << 8 | address_length;
}

static struct vip_entry key_of(const uint8_t *address, uint8_t address_length, uint8_t protocol, uint16_t port)
{
	struct vip_entry e = {.selector = selector(address_length, protocol, port), .position = VIP_NONE};

	if (address_length == 4)
		memcpy(e.address, address, 4);
	else
		memcpy(e.address, address, 16);
	return e;
}

static uint32_t home(const struct vip_table *t, const struct vip_entry *wanted)
{
	uint64_t word = wanted->address[0] ^ (uint64_t)wanted->selector << 32;

	word ^= wanted->address[1];
	word = (word ^ word >> 32) * 0x9e3779b97f4a7c15ULL; // the upper bits depend on all of them
	return (uint32_t)(word >> 40) & t->mask;
}

static bool same(const struct vip_entry *a, const struct vip_entry *b)
{
	return a->selector == b->selector && a->address[0] == b->address[0] && a->address[1] == b->address[1];
}

// The entry that equals `wanted`, or the free one where it would stand.
static struct vip_entry *probe(const struct vip_table *t, const struct vip_entry *wanted)
{
	uint32_t i = home(t, wanted);

	while (t->entries[i].selector != 0 && !same(&t->entries[i], wanted))
		i = (i + 1) & t->mask;
	return &t->entries[i];
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

	if (at->selector != 0)
		return -EEXIST;
	vip.position = position;
	*at = vip;
	at = probe(t, &owner);
	if (at->selector == 0)
		*at = owner;
	return 0;
}

int32_t vip_table_find(const struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		       uint16_t port)
{
	struct vip_entry wanted = key_of(address, address_length, protocol, port);
	const struct vip_entry *at = probe(t, &wanted);

	if (at->selector == 0) {
		wanted.selector = selector(address_length, protocol, 0);
		at = probe(t, &wanted);
	}
	return at->selector != 0 ? at->position : VIP_NONE;
}

bool vip_table_owns(const struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = key_of(address, address_length, 0, 0);

	return probe(t, &wanted)->selector != 0;
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
