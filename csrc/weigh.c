#include "weigh.h"

#include "dataplane.h"

// Table by table, in their order in memory: 65535 backends on 32 workers are 8 MB.
static void count_live(const struct dataplane *d, struct state *s)
{
	memset(s->live, 0, s->backend_count * sizeof(*s->live));
	for (uint32_t w = 0; w < d->config.workers; w++) {
		const uint32_t *live = d->workers[w].table.backend_live;

		for (uint32_t i = 0; i < s->backend_count; i++)
			s->live[i] += __atomic_load_n(&live[i], __ATOMIC_RELAXED);
	}
}

void weigh(const struct dataplane *d, struct state *s)
{
	if (s->bounded_count == 0)
		return;
	count_live(d, s);
	for (uint32_t i = 0; i < s->bounded_count; i++)
		load_bound_mark(&s->bounded[i].bound, s->live);
}

void dataplane_weigh(struct dataplane *d)
{
	if (d->state.current != NULL) // control threads are the only writers
		weigh(d, d->state.current);
}

uint32_t dataplane_over(const struct dataplane *d, uint16_t vip, uint16_t *backends, uint32_t room)
{
	const struct state *s = d->state.current;
	uint32_t count = 0;

	for (uint32_t i = 0; s != NULL && i < s->bounded_count; i++) {
		const struct load_bound *bound = &s->bounded[i].bound;

		for (uint32_t k = 0; s->bounded[i].vip == vip && k < bound->count && count < room; k++)
			if (load_is_over(bound->over, bound->backends[k]))
				backends[count++] = bound->backends[k];
	}
	return count;
}
