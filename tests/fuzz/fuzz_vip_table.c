// Any sequence of vips, of few addresses and ports, so that they meet: the table says what a list of them would say.

#include "fuzz.h"

#include "vip_table.h"

enum { MAX_VIPS = 64, ADDRESSES = 6 };

static const uint8_t FAMILY[ADDRESSES] = {4, 4, 4, 16, 16, 16};
static const uint8_t ADDRESS[ADDRESSES][16] = {
	{192, 0, 2, 1}, {192, 0, 2, 2}, {0}, {0x20, 0x01, 0x0d, 0xb8, [15] = 1}, {192, 0, 2, 1}, {0}};
static const uint16_t PORT[] = {0, 80, 443, 65535};
static const uint8_t PROTOCOL[] = {6, 17};

struct vip {
	uint8_t address; // number in ADDRESS
	uint8_t protocol;
	uint16_t port;
	bool served;
};

struct list {
	struct vip vips[MAX_VIPS];
	int count;
};

static int position(const struct list *l, const struct vip *v, uint16_t port)
{
	for (int i = 0; i < l->count; i++)
		if (l->vips[i].address == v->address && l->vips[i].protocol == v->protocol && l->vips[i].port == port)
			return i;
	return VIP_NONE;
}

static void check_address(const struct vip_table *t, const struct list *l, uint8_t address)
{
	const uint8_t *bytes = ADDRESS[address];
	bool owned = false, served = false;

	for (int i = 0; i < l->count; i++) {
		owned = owned || l->vips[i].address == address;
		served = served || (l->vips[i].address == address && l->vips[i].served);
	}
	must(vip_table_owns(t, bytes, FAMILY[address]) == owned);
	must(vip_table_served(t, bytes, FAMILY[address]) == served);
	for (size_t p = 0; p < COUNT(PROTOCOL); p++)
		for (size_t k = 0; k < COUNT(PORT); k++) {
			struct vip v = {.address = address, .protocol = PROTOCOL[p], .port = PORT[k]};
			int exact = position(l, &v, v.port), any = position(l, &v, 0);

			must(vip_table_find(t, bytes, FAMILY[address], v.protocol, v.port) ==
			     (exact != VIP_NONE ? exact : any));
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct list l = {.count = 0};
	struct vip_table t;

	must(vip_table_create(&t, MAX_VIPS) == 0);
	while (in.left > 0 && l.count < MAX_VIPS) {
		struct vip v = {.address = (uint8_t)(take(&in, 1) % ADDRESSES)};
		uint8_t choice = (uint8_t)take(&in, 1);
		bool known;
		int rc;

		v.protocol = PROTOCOL[choice & 1];
		v.port = PORT[choice >> 1 & 3];
		v.served = choice >> 3 & 1;
		known = position(&l, &v, v.port) != VIP_NONE;
		rc = vip_table_add(&t, ADDRESS[v.address], FAMILY[v.address], v.protocol, v.port, l.count);
		must((rc == 0) == !known);
		if (rc != 0)
			continue;
		l.vips[l.count++] = v;
		if (v.served)
			vip_table_mark_served(&t, ADDRESS[v.address], FAMILY[v.address]);
	}
	for (uint8_t a = 0; a < ADDRESSES; a++)
		check_address(&t, &l, a);
	vip_table_free(&t);
	return 0;
}
