#include "vip_table.h"

#include <errno.h>
#include <stdlib.h>

int vip_table_create(struct vip_table *t, uint32_t vips)
{
	uint32_t count = 4;

	while (count < 4 * vips) // each vip may add two entries
		count *= 2;
	t->mask = count - 1;
	t->buckets = aligned_alloc(sizeof(*t->buckets), count * sizeof(*t->buckets));
	if (t->buckets == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		for (int way = 0; way < VIP_WAYS; way++)
			t->buckets[i].entries[way] = (struct vip_entry){.position = VIP_NONE};
	return 0;
}

void vip_table_free(struct vip_table *t)
{
	free(t->buckets);
	t->buckets = NULL;
}

int vip_table_add(struct vip_table *t, const uint8_t *address, uint8_t address_length, uint8_t protocol,
		  uint16_t port, int32_t position)
{
	struct vip_entry vip = vip_table_key(address, address_length, protocol, port);
	struct vip_entry owner = vip_table_key(address, address_length, 0, 0);
	struct vip_entry *at = vip_table_probe(t, &vip, address_length);

	if (at->key != 0)
		return -EEXIST;
	vip.position = position;
	*at = vip;
	at = vip_table_probe(t, &owner, address_length);
	if (at->key == 0)
		*at = owner;
	return 0;
}

bool vip_table_owns(const struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = vip_table_key(address, address_length, 0, 0);

	return vip_table_probe(t, &wanted, address_length)->key != 0;
}

void vip_table_mark_served(struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = vip_table_key(address, address_length, 0, 0);

	vip_table_probe(t, &wanted, address_length)->served = true;
}

bool vip_table_served(const struct vip_table *t, const uint8_t *address, uint8_t address_length)
{
	struct vip_entry wanted = vip_table_key(address, address_length, 0, 0);

	return vip_table_probe(t, &wanted, address_length)->served;
}
