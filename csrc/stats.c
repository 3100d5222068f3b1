#include "stats.h"

#include "trace.h"

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

static const struct {
	const char *name;
	const char *text;
	enum fate fate;
} reasons[REASON_COUNT] = {
#define REASON_ROW(name, fate, text) [REASON_##name] = {#name, text, FATE_##fate},
	REASONS(REASON_ROW)
#undef REASON_ROW
};

const char *fate_name(enum fate fate)
{
	return names[fate];
}

enum fate_kind fate_kind(enum fate fate)
{
	return kinds[fate];
}

const char *reason_name(enum reason reason)
{
	return reasons[reason].name;
}

const char *reason_text(enum reason reason)
{
	return reasons[reason].text;
}

enum fate reason_fate(enum reason reason)
{
	return reasons[reason].fate;
}

void packet_collect(struct rte_ring *collector, struct rte_mbuf *m, enum reason reason)
{
	packet_note(m)->reason = (uint8_t)reason;
	if (rte_ring_mp_enqueue(collector, m) != 0)
		packet_free(m); // nobody collects
}

void packet_end(struct stage_stats *stats, struct rte_ring *collector, struct rte_mbuf *m, enum reason reason)
{
	count_released(stats, 1);
	if (packet_note(m)->flags & PACKET_OWN) {
		packet_collect(collector, m, reason);
		return;
	}
	if ((packet_note(m)->flags & PACKET_PIECE) == 0) {
		count(&stats->reasons[reason], 1);
		if (stats->trace != NULL)
			trace_end(stats->trace, trace_number(m), packet_note(m), reason);
	}
	packet_free(m);
}
