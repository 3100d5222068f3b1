#include "dataplane.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_malloc.h>

#include "loop.h"
#include "road.h"
#include "trace.h"

int dataplane_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

void dataplane_cleanup(void)
{
	rte_eal_cleanup();
}

uint32_t dataplane_pool_need(const struct dataplane_config *config, const struct packet_pool *pool, struct port **ports,
			     uint16_t count)
{
	uint32_t stages = config->workers + 2;
	uint32_t need = stages * 2 * BURST;

	for (uint16_t i = 0; i < count; i++)
		need += ports[i]->receive_descriptors + ports[i]->transmit_descriptors;
	// The library lets a cache grow to one and a half times its size; the control thread has one too. A small pool
	// has none, but one that is as large as it needs to be may.
	if (pool->cache > 0 || need >= POOL_WITH_CACHE)
		need += (stages + 1) * (POOL_CACHE + POOL_CACHE / 2);
	return need;
}

// A ring's name is the whole process's: the pool's is in it, so that each pool has its own data plane, and only one.
static struct rte_ring *join(const struct dataplane *d, const char *name, uint8_t index, uint32_t size,
			     unsigned int flags)
{
	char full[RTE_RING_NAMESIZE];

	snprintf(full, sizeof(full), "%s_%u_%.14s", name, index, d->pool->mempool->name);
	return rte_ring_create(full, size, SOCKET_ID_ANY, flags);
}

static int create_worker(struct dataplane *d, uint32_t i)
{
	struct worker *w = &d->workers[i];
	const struct dataplane_config *c = &d->config;
	struct conn_timeouts timeouts;
	unsigned int single = RING_F_SP_ENQ | RING_F_SC_DEQ;
	void *table;

	memcpy(timeouts.seconds, c->connection_seconds, sizeof(timeouts.seconds));
	if (c->tables == NULL)
		d->tables[i] = rte_zmalloc("connection table", conn_table_memory(c->connection_entries), 64);
	table = c->tables != NULL ? c->tables[i] : d->tables[i];
	w->in = join(d, "to_worker", (uint8_t)i, c->ring_size, single);
	w->out = join(d, "to_muxing", (uint8_t)i, c->ring_size, single);
	if (table == NULL || w->in == NULL || w->out == NULL)
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
	d->steering.to_worker[i] = w->in;
	d->muxing.from_worker[i] = w->out;
	return 0;
}

static int create_port(struct dataplane *d, struct port *port, uint16_t i)
{
	int rc = receive_ring_create(&d->steering.rings[i], d->config.ring_size);

	if (rc == 0)
		rc = transmit_ring_create(&d->muxing.rings[i], d->config.ring_size);
	d->steering.ports[i] = port;
	d->muxing.ports[i] = port;
	memcpy(d->egress[i].mac, port->mac, sizeof(port->mac));
	return rc;
}

static int create_stages(struct dataplane *d, struct port **ports, uint16_t count)
{
	struct steering *s = &d->steering;
	struct muxing *m = &d->muxing;
	uint32_t workers = d->config.workers;
	int rc = 0;

	d->own = join(d, "own", 0, OWN_PACKETS, RING_F_SP_ENQ | RING_F_SC_DEQ);
	d->collector = join(d, "collector", 0, OWN_PACKETS, RING_F_SC_DEQ);
	d->next_hops = calloc(MAX_NEXT_HOPS, sizeof(*d->next_hops));
	d->path_mtus = calloc(CONN_MAX_BACKENDS, sizeof(*d->path_mtus));
	d->workers = rte_zmalloc("workers", workers * sizeof(*d->workers), 64);
	m->vips = calloc(CONN_MAX_VIPS, sizeof(*m->vips));
	m->backends = calloc(CONN_MAX_BACKENDS, sizeof(*m->backends));
	if (d->own == NULL || d->collector == NULL || d->next_hops == NULL || d->path_mtus == NULL ||
	    d->workers == NULL || m->vips == NULL || m->backends == NULL)
		return -ENOMEM;
	if (d->config.trace && (d->trace = trace_create(d->pool->size)) == NULL)
		return -rte_errno;
	s->stats.trace = m->stats.trace = d->trace;
	s->own = d->own;
	s->seed = d->config.steering_seed;
	s->collector = m->collector = d->collector;
	s->state = &d->state;
	s->matcher.key = (struct hash_key){d->config.hash_key[0], d->config.hash_key[1]};
	steering_tick(s, 1);
	s->port_count = m->port_count = count;
	s->worker_count = m->worker_count = (uint16_t)workers;
	for (uint16_t i = 0; i < count && rc == 0; i++)
		rc = create_port(d, ports[i], i);
	for (uint32_t i = 0; i < workers && rc == 0; i++) {
		rc = create_worker(d, i);
		s->freeing[s->freeing_count++] = &d->workers[i].stats;
	}
	s->freeing[s->freeing_count++] = &s->stats;
	s->freeing[s->freeing_count++] = &m->stats;
	return rc != 0 ? rc : state_slot_create(&d->state, workers + 1); // steering reads it too
}

struct dataplane *dataplane_new(const struct dataplane_config *config, struct packet_pool *pool, struct port **ports,
				uint16_t count, int *error)
{
	struct dataplane *d;
	uint32_t need;

	*error = -EINVAL;
	if (count == 0 || count > MAX_PORTS || config->workers == 0 || config->workers > MAX_WORKERS ||
	    config->connection_entries == 0 || config->connection_entries > MAX_CONNECTIONS)
		return NULL;
	for (uint16_t i = 0; i < count; i++)
		if (ports[i]->index != i)
			return NULL; // packets carry the index of their port
	*error = -ENOMEM;
	d = aligned_alloc(64, (sizeof(*d) + 63) & ~(size_t)63);
	if (d == NULL)
		return NULL;
	memset(d, 0, sizeof(*d));
	d->config = *config;
	d->pool = pool;
	need = dataplane_pool_need(config, pool, ports, count);
	*error = need <= pool->size ? create_stages(d, ports, count) : -ENOSPC;
	d->config.tables = NULL; // the caller's list, not ours to keep
	if (*error != 0) {
		dataplane_delete(d);
		return NULL;
	}
	// Two bursts per stage are on the road; what may wait in rings comes on top.
	d->steering.capacity = pool->size - need + (config->workers + 2) * 2 * BURST;
	steering_hold(&d->steering, d->steering.capacity / HELD_SHARE);
	return d;
}

void dataplane_delete(struct dataplane *d)
{
	if (d == NULL)
		return;
	dataplane_stop(d);
	steering_end(&d->steering);
	for (uint16_t i = 0; i < MAX_PORTS; i++) {
		receive_ring_free(&d->steering.rings[i]);
		transmit_ring_free(&d->muxing.rings[i]);
	}
	for (uint32_t i = 0; d->workers != NULL && i < d->config.workers; i++) {
		packet_ring_drain(d->workers[i].in);
		packet_ring_drain(d->workers[i].out);
		rte_free(d->tables[i]);
	}
	packet_ring_drain(d->own);
	packet_ring_drain(d->collector);
	rte_ring_free(d->trace);
	state_slot_free(&d->state);
	rte_free(d->workers);
	free(d->next_hops);
	free(d->path_mtus);
	free(d->muxing.vips);
	free(d->muxing.backends);
	free(d);
}

void dataplane_set_port(struct dataplane *d, uint16_t port, uint16_t mtu, bool punts, bool unfinished)
{
	d->egress[port].mtu = mtu;
	d->egress[port].punts = punts;
	d->egress[port].unfinished = unfinished;
	for (uint32_t i = 0; i < d->config.workers; i++)
		d->workers[i].unfinished |= unfinished;
}

void dataplane_set_next_hop(struct dataplane *d, uint16_t index, uint16_t port, const uint8_t *mac)
{
	uint64_t word = 0;

	if (mac != NULL) {
		memcpy(&word, mac, 6);
		word |= (uint64_t)port << 48 | 1ULL << 63;
	}
	__atomic_store_n(&d->next_hops[index].word, word, __ATOMIC_RELAXED); // complete in itself
}

void dataplane_publish(struct dataplane *d, struct state *s)
{
	state_publish(&d->state, s);
}

int dataplane_start(struct dataplane *d, const unsigned int *lcores)
{
	uint32_t stages = d->config.workers + 2;
	int rc = 0;

	if (d->running)
		return -EALREADY;
	for (uint32_t i = 0; i < stages; i++) // the library would write into a pipe that is not there
		if (!rte_lcore_is_enabled(lcores[i]) || lcores[i] == rte_get_main_lcore())
			return -EINVAL;
	memcpy(d->lcores, lcores, stages * sizeof(*lcores));
	d->stop = false;
	d->running = true;
	for (uint32_t i = 0; i < stages && rc == 0; i++) {
		lcore_function_t *loop = i == 0 ? loop_steering : i + 1 == stages ? loop_muxing : loop_worker;

		rc = rte_eal_remote_launch(loop, d, lcores[i]);
	}
	if (rc != 0)
		dataplane_stop(d);
	return rc;
}

void dataplane_stop(struct dataplane *d)
{
	if (!d->running)
		return;
	__atomic_store_n(&d->stop, true, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < d->config.workers + 2; i++)
		rte_eal_wait_lcore(d->lcores[i]);
	d->running = false;
}

uint32_t dataplane_step(struct dataplane *d, uint32_t now)
{
	uint32_t moved;

	if (d->steering.matcher.now != now)
		steering_tick(&d->steering, now);
	moved = steering_turn(&d->steering);
	for (uint32_t i = 0; i < d->config.workers; i++) {
		if (d->workers[i].now != now)
			worker_tick(&d->workers[i], now);
		conn_tick(&d->workers[i].table, now);
		moved += worker_turn(&d->workers[i]);
	}
	return moved + muxing_turn(&d->muxing);
}

void dataplane_flush(struct dataplane *d, uint16_t backend)
{
	for (uint32_t i = 0; i < d->config.workers; i++) {
		struct worker *w = &d->workers[i];

		if (!d->running) {
			conn_flush(&w->table, backend, &w->flush_at, w->table.bucket_count);
			continue;
		}
		__atomic_store_n(&w->flush, backend + 1u, __ATOMIC_RELEASE);
		while (__atomic_load_n(&w->flush, __ATOMIC_ACQUIRE) != 0)
			rte_delay_us_sleep(50);
	}
}

int dataplane_inject(struct dataplane *d, const void *frame, uint32_t length, uint8_t worker)
{
	struct rte_mbuf *m;
	void *data;

	if (length > UINT16_MAX)
		return -EMSGSIZE;
	m = rte_pktmbuf_alloc(d->pool->mempool);
	data = m != NULL ? rte_pktmbuf_append(m, (uint16_t)length) : NULL;
	if (data == NULL) {
		packet_free(m);
		return -ENOBUFS;
	}
	memcpy(data, frame, length);
	packet_poison(m);
	m->port = 0;
	*packet_note(m) = (struct packet_note){.flags = PACKET_OWN, .worker = worker};
	if (rte_ring_sp_enqueue(d->own, m) == 0)
		return 0;
	packet_free(m);
	return -ENOBUFS;
}

int dataplane_collect(struct dataplane *d, struct collected *what, void *frame, uint32_t room)
{
	struct rte_mbuf *m;
	int length;

	if (rte_ring_sc_dequeue(d->collector, (void **)&m) != 0)
		return 0;
	*what = (struct collected){
		.reason = packet_note(m)->reason,
		.worker = packet_note(m)->worker,
		.port = m->port,
		.vip = packet_note(m)->vip,
		.backend = packet_note(m)->backend,
	};
	length = (int)(m->data_len < room ? m->data_len : room);
	memcpy(frame, rte_pktmbuf_mtod(m, void *), (size_t)length);
	packet_free(m);
	return length;
}
