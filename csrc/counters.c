// The counters and questions of dataplane.h: reads of what the stages write, from control threads.

#include "dataplane.h"
#include "road.h"

uint32_t dataplane_fate_count(void)
{
	return FATE_COUNT;
}

const char *dataplane_fate_name(uint32_t fate)
{
	return fate_name((enum fate)fate);
}

int dataplane_fate_kind(uint32_t fate)
{
	return (int)fate_kind((enum fate)fate);
}

bool dataplane_reason(uint32_t reason, struct reason_facts *facts)
{
	if (reason == GO_ON || reason >= REASON_COUNT)
		return false;
	facts->name = reason_name((enum reason)reason);
	facts->text = reason_text((enum reason)reason);
	facts->fate = reason_fate((enum reason)reason);
	return true;
}

uint64_t dataplane_reason_count(const struct dataplane *d, uint32_t reason)
{
	uint64_t packets = peek(&d->steering.stats.reasons[reason]);

	for (uint32_t i = 0; i < road_muxings(d); i++)
		packets += peek(&road_muxing(d, i)->stats.reasons[reason]);
	for (uint32_t w = 0; w < d->config.workers; w++)
		packets += peek(&d->workers[w].stats.reasons[reason]);
	return packets;
}

uint64_t dataplane_own(const struct dataplane *d)
{
	uint64_t own = 0;

	for (uint32_t i = 0; road_by_rss(d) && i < d->config.workers; i++)
		own += peek(&d->lanes[i].own_received);
	return own + peek(&d->steering.own_received);
}

uint32_t dataplane_held(const struct dataplane *d)
{
	uint32_t held = 0;

	for (uint32_t i = 0; i < road_muxings(d); i++)
		held += __atomic_load_n(&road_chooser(d, i)->matcher.table.held, __ATOMIC_RELAXED);
	return held;
}

uint64_t dataplane_pieces(const struct dataplane *d)
{
	uint64_t pieces = 0;

	for (uint32_t i = 0; i < road_muxings(d); i++)
		pieces += peek(&road_muxing(d, i)->pieces);
	return pieces;
}

uint64_t dataplane_received(const struct dataplane *d)
{
	uint64_t received = 0, own = dataplane_own(d); // first: read late it could be higher than what is in `received`

	for (uint16_t p = 0; p < d->port_count; p++) {
		received += peek(&d->steering.rings[p].received);
		for (uint32_t i = 0; road_by_rss(d) && i < d->config.workers; i++)
			received += peek(&d->lanes[i].arrivals[p].received);
	}
	return received - own;
}

// In place of a ring a lane has room for the burst in its hands: it may take one more, and what it took is processed
// when it takes the next.
static void lane_indices(const struct lane *l, uint16_t port, struct ring_indices *indices)
{
	const struct arrivals *a = &l->arrivals[port];

	do { // as receive_ring_indices()
		indices->processed = __atomic_load_n(&a->processed, __ATOMIC_ACQUIRE);
		indices->received = __atomic_load_n(&a->received, __ATOMIC_ACQUIRE);
	} while (indices->processed != __atomic_load_n(&a->processed, __ATOMIC_RELAXED));
	indices->reserved = indices->processed + BURST;
	transmit_ring_indices(&l->muxing.rings[port], indices);
}

void dataplane_rings(const struct dataplane *d, uint16_t port, struct ring_indices *indices)
{
	struct ring_indices one;

	*indices = (struct ring_indices){0};
	if (!road_by_rss(d)) {
		receive_ring_indices(&d->steering.rings[port], indices);
		transmit_ring_indices(&d->muxing.rings[port], indices);
		return;
	}
	for (uint32_t i = 0; i < d->config.workers; i++) {
		lane_indices(&d->lanes[i], port, &one);
		indices->received += one.received;
		indices->processed += one.processed;
		indices->reserved += one.reserved;
		indices->ready += one.ready;
		indices->sent += one.sent;
		indices->recycled += one.recycled;
	}
}

static void add_traffic(const struct traffic *t, uint64_t *packets, uint64_t *bytes)
{
	*packets += peek(&t->packets);
	*bytes += peek(&t->bytes);
}

void dataplane_vip_traffic(const struct dataplane *d, uint16_t vip, uint64_t *packets, uint64_t *bytes)
{
	*packets = *bytes = 0;
	for (uint32_t i = 0; i < road_muxings(d); i++)
		add_traffic(&road_muxing(d, i)->vips[vip], packets, bytes);
}

void dataplane_backend_traffic(const struct dataplane *d, uint16_t backend, uint64_t *packets, uint64_t *bytes)
{
	*packets = *bytes = 0;
	for (uint32_t i = 0; i < road_muxings(d); i++)
		add_traffic(&road_muxing(d, i)->backends[backend], packets, bytes);
}

uint64_t dataplane_backend_flows(const struct dataplane *d, uint16_t backend)
{
	uint64_t flows = 0;

	for (uint32_t i = 0; i < d->config.workers; i++)
		flows += __atomic_load_n(&d->workers[i].table.backend_live[backend], __ATOMIC_RELAXED);
	return flows;
}

uint64_t dataplane_vip_flows(const struct dataplane *d, uint16_t vip)
{
	uint64_t flows = 0;

	for (uint32_t i = 0; i < d->config.workers; i++)
		flows += __atomic_load_n(&d->workers[i].table.vip_live[vip], __ATOMIC_RELAXED);
	return flows;
}

bool dataplane_path_mtu(const struct dataplane *d, uint16_t backend, uint16_t *mtu, uint32_t *seconds)
{
	const struct state *s = d->state.current; // control threads are the only writers
	uint64_t word = __atomic_load_n(&d->path_mtus[backend], __ATOMIC_RELAXED);
	uint32_t now = d->workers[0].now;

	if (s == NULL || backend >= s->backend_count)
		return false;
	*mtu = path_mtu_of(word, s->backends[backend].generation, now);
	*seconds = (uint32_t)word - now;
	return *mtu != 0;
}

uint64_t dataplane_turns(const struct dataplane *d, enum stage_kind stage, uint32_t worker)
{
	switch (stage) {
	case STAGE_STEERING:
		return peek(&d->steering.stats.turns);
	case STAGE_MUXING:
		return peek(&d->muxing.stats.turns);
	default:
		return peek(&d->workers[worker].stats.turns);
	}
}

void dataplane_worker(const struct dataplane *d, uint32_t worker, struct worker_counters *counters)
{
	const struct conn_table *t = &d->workers[worker].table;

	*counters = (struct worker_counters){
		.entries = (uint64_t)t->bucket_count * CONN_WAYS,
		.live = peek(&t->counters.live),
		.inserted = peek(&t->counters.inserted),
		.evicted = peek(&t->counters.evicted),
		.refused = peek(&t->counters.refused),
	};
}

uint64_t dataplane_connections(const struct dataplane *d, uint32_t now)
{
	uint64_t alive = 0;

	for (uint32_t i = 0; i < d->config.workers; i++)
		alive += conn_count_alive(&d->workers[i].table, now);
	return alive;
}

void dataplane_churn(const struct dataplane *d, struct churn *c)
{
	for (uint32_t i = 0; i < d->config.workers; i++)
		churn_count(c, &d->workers[i].table, __atomic_load_n(&d->workers[i].now, __ATOMIC_RELAXED));
}

void dataplane_lookup(const struct dataplane *d, const struct flow_question *q, struct flow_answer *a)
{
	const struct state *s = d->state.current; // control threads are the only writers
	struct flow_key key;
	struct conn_entry found;
	const struct worker *w;
	const struct vip *vip;
	uint64_t slot_hash;
	int32_t position;

	flow_key_fill(&key, q->source, q->destination, q->address_length, __builtin_bswap16(q->source_port),
		      __builtin_bswap16(q->destination_port), q->protocol);
	*a = (struct flow_answer){.backend = NO_BACKEND, .worker = spread_worker(&d->spread, &key)};
	w = &d->workers[a->worker];
	a->hash = slot_hash = flow_hash(&w->key, &key);
	position = s == NULL ? VIP_NONE
			     : vip_table_find(&s->vip_table, q->destination, q->address_length, q->protocol,
					      q->destination_port);
	if (position == VIP_NONE)
		return;
	vip = &s->vips[position];
	a->vip_found = true;
	a->vip = vip->id;
	if (vip->client_affinity)
		slot_hash = flow_client_hash(&w->key, &key);
	if (vip->table_size > 0) {
		a->slot = flow_slot(slot_hash, vip->table_size);
		a->backend = vip->bounded ? load_bound_choose(vip->slots, vip->table_size, a->slot, vip_over(vip, s))
					  : vip->slots[a->slot];
	}
	if (conn_lookup(&w->table, a->hash, vip->id, w->now, &found) >= 0 &&
	    vip_may_use(vip, s, found.backend, found.generation)) {
		a->tracked = true;
		a->backend = found.backend;
	}
}
