#include "stats.h"

static const char *const names[FATE_COUNT] = {
#define FATE_NAME(symbol, name, kind) [FATE_##symbol] = #name,
	FATES(FATE_NAME)
#undef FATE_NAME
};

static const enum fate_kind kinds[FATE_COUNT] = {
#define FATE_KIND(symbol, name, kind) [FATE_##symbol] = kind,
	FATES(FATE_KIND)
#undef FATE_KIND
};

const char *fate_name(enum fate fate)
{
	return names[fate];
}

enum fate_kind fate_kind(enum fate fate)
{
	return kinds[fate];
}

void packet_collect(struct rte_ring *collector, struct rte_mbuf *m, enum fate fate)
{
	packet_note(m)->fate = (uint8_t)fate;
	if (rte_ring_mp_enqueue(collector, m) != 0)
		rte_pktmbuf_free(m); // nobody collects
}

void packet_end(struct stage_stats *stats, struct rte_ring *collector, struct rte_mbuf *m, enum fate fate)
{
	count(&stats->released, 1);
	if (packet_note(m)->flags & PACKET_OWN) {
		packet_collect(collector, m, fate);
		return;
	}
	count(&stats->fates[fate], 1);
	rte_pktmbuf_free(m);
}
