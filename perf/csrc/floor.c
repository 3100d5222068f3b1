#include "floor.h"

#include <errno.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_prefetch.h>

#include "packet_pool.h"

enum { PREPENDED = 38 }; // Ethernet and outer IPv4 with GRE, or what stands for them here

int floor_open(struct floor *f, uint32_t buckets, uint8_t version)
{
	uint32_t lines = 1;

	while (lines < buckets)
		lines *= 2;
	*f = (struct floor){.mask = lines - 1, .address = version == 4 ? 26 : 34, .ports = version == 4 ? 34 : 54};
	f->lines = rte_zmalloc("floor", (size_t)lines * 64, 64);
	return f->lines != NULL ? 0 : -ENOMEM;
}

void floor_close(struct floor *f)
{
	rte_free(f->lines);
	*f = (struct floor){0};
}

void floor_burst(struct floor *f, struct rte_mbuf **burst)
{
	static const uint8_t headers[PREPENDED] = {1};
	uint64_t *lines[BURST];

	for (int i = 0; i < BURST; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (int i = 0; i < BURST; i++) {
		const uint8_t *frame = rte_pktmbuf_mtod(burst[i], const uint8_t *);
		uint32_t address, ports;
		uint64_t word;

		memcpy(&address, frame + f->address, sizeof(address)); // the last four bytes of the source's
		memcpy(&ports, frame + f->ports, sizeof(ports));
		word = ((uint64_t)address << 32 | ports) * 0x9e3779b97f4a7c15ULL;
		lines[i] = f->lines + 8 * (size_t)((word >> 32) & f->mask);
		rte_prefetch0(lines[i]);
	}
	for (int i = 0; i < BURST; i++) {
		*lines[i] = *lines[i] + 1;
		memcpy(rte_pktmbuf_mtod(burst[i], uint8_t *) - (PREPENDED - 14), headers, PREPENDED);
	}
}
