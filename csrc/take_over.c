// Going on with the connection tables of a forwarder that ended, part of dataplane.h.

#include "dataplane.h"
#include "road.h"

size_t dataplane_table_bytes(uint32_t entries)
{
	return conn_table_memory(entries);
}

uint32_t dataplane_table_layout(void)
{
	return CONN_LAYOUT;
}

bool dataplane_take_over(struct dataplane *d, const uint16_t *generations, const uint8_t *vips, uint32_t now)
{
	const struct conn_known known = {.generation = generations, .vip = vips};
	bool whole = true;

	for (uint32_t i = 0; i < d->config.workers; i++)
		whole = whole && conn_table_whole(&d->workers[i].table);
	for (uint32_t i = 0; i < d->config.workers; i++) {
		conn_table_take_over(&d->workers[i].table, whole ? &known : NULL, now);
		if (road_by_rss(d))
			d->lanes[i].chooser.matcher.now = now;
		d->workers[i].now = now; // not by a tick: the time in which nobody ran is no pause of this worker
	}
	return whole;
}
