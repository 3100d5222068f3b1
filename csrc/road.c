#include "road.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#include "trace.h"

enum { SINGLE = RING_F_SP_ENQ | RING_F_SC_DEQ };

uint32_t road_need(const struct dataplane_config *config, const struct packet_pool *pool, struct port **ports,
		   uint16_t count)
{
	uint32_t stages = road_stages(config), workers = config->workers;
	uint32_t need = stages * 2 * BURST;

	// A lane has one burst in its hands, one in each port's ring, one on its way to each other lane.
	if (config->layout == LAYOUT_RSS)
		need = workers * (workers + count) * BURST;
	for (uint16_t i = 0; i < count; i++)
		need += ports[i]->held + ports[i]->transmit_descriptors;
	// The library lets a cache grow to one and a half times its size; the control thread has one too. A small pool
	// has none, but one that is as large as it needs to be may.
	if (pool->cache > 0 || need >= POOL_WITH_CACHE)
		need += (stages + 1) * (POOL_CACHE + POOL_CACHE / 2);
	return need;
}

// A ring's name is the whole process's: the pool's is in it, so that each pool has its own data plane, and only one.
static struct rte_ring *join(const struct dataplane *d, const char *name, uint32_t index, uint32_t size,
			     unsigned int flags)
{
	char full[RTE_RING_NAMESIZE];

	snprintf(full, sizeof(full), "%s_%u_%.13s", name, index, d->pool->mempool->name);
	return rte_ring_create(full, size, SOCKET_ID_ANY, flags);
}

static int create_worker(struct dataplane *d, uint32_t i)
{
	struct worker *w = &d->workers[i];
	const struct dataplane_config *c = &d->config;
	struct conn_timeouts timeouts;
	void *table;

	memcpy(timeouts.seconds, c->connection_seconds, sizeof(timeouts.seconds));
	if (c->tables == NULL)
		d->tables[i] = rte_zmalloc("connection table", conn_table_memory(c->connection_entries), 64);
	table = c->tables != NULL ? c->tables[i] : d->tables[i];
	if (table == NULL)
		return -ENOMEM;
	conn_table_init(&w->table, table, c->connection_entries, &timeouts);
	w->key = (struct hash_key){c->hash_key[0], c->hash_key[1]};
	w->state = &d->state;
	w->next_hops = d->next_hops;
	w->egress = d->egress;
	w->collector = d->collector;
	w->stats.trace = d->trace;
	w->pool = d->pool;
	w->path_mtus = d->path_mtus;
	w->fragment_id = w->ip_id = (uint16_t)i;
	for (w->ip_id_step = 1; w->ip_id_step < c->workers; w->ip_id_step *= 2)
		; // a power of two, so that the steps of different workers never meet when they come round
	worker_tick(w, 1);
	return 0;
}

static void create_chooser(struct dataplane *d, struct chooser *c, struct stage_stats *stats)
{
	c->spread = &d->spread;
	c->stats = stats;
	c->collector = d->collector;
	c->egress = d->egress;
	c->matcher.key = (struct hash_key){d->config.hash_key[0], d->config.hash_key[1]};
	choose_tick(c, 1);
}

// With transmit rings of `size` packets.
static int create_muxing(struct dataplane *d, struct muxing *x, struct port **ports, uint32_t size)
{
	int rc = 0;

	x->vips = calloc(CONN_MAX_VIPS, sizeof(*x->vips));
	x->backends = calloc(CONN_MAX_BACKENDS, sizeof(*x->backends));
	if (x->vips == NULL || x->backends == NULL)
		return -ENOMEM;
	x->collector = d->collector;
	x->stats.trace = d->trace;
	x->port_count = d->port_count;
	for (uint16_t i = 0; i < d->port_count && rc == 0; i++) {
		x->ports[i] = ports[i];
		rc = transmit_ring_create(&x->rings[i], size);
	}
	return rc;
}

// -- layout `software` ---------------------------------------------------------------------------------------------

static int join_worker(struct dataplane *d, uint32_t i)
{
	struct worker *w = &d->workers[i];

	w->in = join(d, "to_worker", i, d->config.ring_size, SINGLE);
	w->out = join(d, "to_muxing", i, d->config.ring_size, SINGLE);
	if (w->in == NULL || w->out == NULL)
		return -ENOMEM;
	d->steering.to_worker[i] = w->in;
	d->muxing.from[i] = w->out;
	d->steering.freeing[d->steering.freeing_count++] = &w->stats;
	return 0;
}

// What a kernel sends goes from steering to muxing at once.
static int join_kernel(struct dataplane *d, struct port **ports)
{
	uint16_t sides = 0;

	for (uint16_t i = 0; i < d->port_count; i++)
		sides += ports[i]->kind == PORT_KERNEL_SIDE;
	if (sides == 0)
		return 0;
	d->past = d->steering.to_muxing = join(d, "past", 0, d->config.ring_size, SINGLE);
	d->muxing.from[d->muxing.source_count++] = d->past;
	return d->past != NULL ? 0 : -ENOMEM;
}

static int create_stages(struct dataplane *d, struct port **ports, uint32_t spare)
{
	struct steering *s = &d->steering;
	int rc = create_muxing(d, &d->muxing, ports, d->config.ring_size);

	d->own = join(d, "own", 0, OWN_PACKETS, SINGLE);
	if (d->own == NULL)
		return -ENOMEM;
	create_chooser(d, &s->chooser, &s->stats);
	s->stats.trace = d->trace;
	s->own = d->own;
	s->collector = d->collector;
	s->state = &d->state;
	s->port_count = d->port_count;
	s->worker_count = d->muxing.source_count = (uint16_t)d->config.workers;
	for (uint16_t i = 0; i < d->port_count && rc == 0; i++) {
		s->ports[i] = ports[i];
		rc = receive_ring_create(&s->rings[i], d->config.ring_size);
	}
	for (uint32_t i = 0; i < d->config.workers && rc == 0; i++)
		rc = join_worker(d, i);
	if (rc == 0)
		rc = join_kernel(d, ports);
	s->freeing[s->freeing_count++] = &s->stats;
	s->freeing[s->freeing_count++] = &d->muxing.stats;
	// Two bursts per stage are on the road; what may wait in rings comes on top.
	s->capacity = spare + road_stages(&d->config) * 2 * BURST;
	choose_hold(&s->chooser, s->capacity / HELD_SHARE);
	return rc;
}

// -- layout `rss` --------------------------------------------------------------------------------------------------

// Receiving takes no credit: what waits for a port that takes nothing must leave the other ports' queues the packets that
// they need. So a transmit ring has as many slots as were asked for only while all of them, full, leave that. What waits
// elsewhere goes on by itself: between lanes at their next turn, fragments by the clock.
static uint32_t transmit_ring_size(const struct dataplane *d, uint32_t spare)
{
	uint32_t rings = d->config.workers * d->port_count, size = d->config.ring_size;
	uint32_t most = spare - spare / HELD_SHARE + rings * BURST;

	while (size > BURST && size > most / rings)
		size /= 2;
	return size;
}

static int join_lanes(struct dataplane *d)
{
	uint32_t workers = d->config.workers;

	for (uint32_t a = 0; a < workers; a++)
		for (uint32_t b = 0; b < workers; b++) {
			if (a == b)
				continue;
			d->lanes[a].to[b] = d->lanes[b].from[a] = join(d, "pair", a * workers + b, PAIR_RING, SINGLE);
			if (d->lanes[a].to[b] == NULL)
				return -ENOMEM;
		}
	return 0;
}

static int create_lane(struct dataplane *d, struct port **ports, uint32_t spare, uint16_t i)
{
	struct lane *l = &d->lanes[i];
	struct worker *w = &d->workers[i];
	int rc = create_muxing(d, &l->muxing, ports, transmit_ring_size(d, spare));

	l->worker = w;
	l->index = l->muxing.queue = i;
	l->count = (uint16_t)d->config.workers;
	l->numbered = &d->numbered;
	l->own = join(d, "own", i, OWN_PACKETS, SINGLE);
	w->muxing = &l->muxing;
	w->lane = l;
	create_chooser(d, &l->chooser, &w->stats);
	choose_hold(&l->chooser, spare / HELD_SHARE / d->config.workers);
	return l->own == NULL ? -ENOMEM : rc;
}

static int create_lanes(struct dataplane *d, struct port **ports, uint32_t spare)
{
	size_t size = d->config.workers * sizeof(*d->lanes);
	int rc = 0;

	d->spread.buckets = ports[0]->buckets;
	for (uint16_t i = 1; i < d->port_count; i++)
		if (ports[i]->kind != PORT_KERNEL_SIDE && ports[i]->buckets < d->spread.buckets)
			d->spread.buckets = ports[i]->buckets;
	d->lanes = aligned_alloc(64, size);
	if (d->lanes == NULL)
		return -ENOMEM;
	memset(d->lanes, 0, size);
	for (uint16_t i = 0; i < d->config.workers && rc == 0; i++)
		rc = create_lane(d, ports, spare, i);
	for (uint16_t i = 0; i < d->port_count && rc == 0; i++)
		rc = port_share_out(ports[i], (uint16_t)d->spread.buckets);
	return rc != 0 ? rc : join_lanes(d);
}

// -- both ----------------------------------------------------------------------------------------------------------

int road_create(struct dataplane *d, struct port **ports)
{
	uint32_t workers = d->config.workers, need = road_need(&d->config, d->pool, ports, d->port_count);
	uint32_t readers = road_by_rss(d) ? workers : workers + 1; // steering reads the state too
	int rc = 0;

	if (need > d->pool->size)
		return -ENOSPC;
	d->spread = (struct spread){.workers = workers, .seed = d->config.steering_seed};
	d->collector = join(d, "collector", 0, OWN_PACKETS, RING_F_SC_DEQ);
	d->next_hops = calloc(MAX_NEXT_HOPS, sizeof(*d->next_hops));
	d->path_mtus = calloc(CONN_MAX_BACKENDS, sizeof(*d->path_mtus));
	d->workers = rte_zmalloc("workers", workers * sizeof(*d->workers), 64);
	if (d->collector == NULL || d->next_hops == NULL || d->path_mtus == NULL || d->workers == NULL)
		return -ENOMEM;
	if (d->config.trace && (d->trace = trace_create(d->pool->size)) == NULL)
		return -rte_errno;
	for (uint32_t i = 0; i < workers && rc == 0; i++)
		rc = create_worker(d, i);
	if (rc == 0)
		rc = (road_by_rss(d) ? create_lanes : create_stages)(d, ports, d->pool->size - need);
	return rc != 0 ? rc : state_slot_create(&d->state, readers);
}

static void free_muxing(struct muxing *x)
{
	for (uint16_t i = 0; i < MAX_PORTS; i++)
		transmit_ring_free(&x->rings[i]);
	free(x->vips);
	free(x->backends);
}

static void free_lane(struct lane *l)
{
	choose_end(&l->chooser);
	free_muxing(&l->muxing);
	packet_ring_drain(l->own);
	for (uint16_t i = 0; i < l->count; i++)
		packet_ring_drain(l->to[i]);
}

void road_free(struct dataplane *d)
{
	choose_end(&d->steering.chooser);
	free_muxing(&d->muxing);
	for (uint16_t i = 0; i < MAX_PORTS; i++)
		receive_ring_free(&d->steering.rings[i]);
	for (uint32_t i = 0; d->lanes != NULL && i < d->config.workers; i++)
		free_lane(&d->lanes[i]);
	for (uint32_t i = 0; d->workers != NULL && i < d->config.workers; i++) {
		packet_ring_drain(d->workers[i].in);
		packet_ring_drain(d->workers[i].out);
		rte_free(d->tables[i]);
	}
	packet_ring_drain(d->past);
	packet_ring_drain(d->own);
	packet_ring_drain(d->collector);
	rte_ring_free(d->trace);
	state_slot_free(&d->state);
	free(d->lanes);
	rte_free(d->workers);
	free(d->next_hops);
	free(d->path_mtus);
}
