#include "dataplane.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_launch.h>

#include "loop.h"
#include "road.h"
#include "weigh.h"

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
	return road_need(config, pool, ports, count);
}

// A kernel's side stands behind the NIC that it is beside.
static bool is_beside_a_nic(struct port **ports, const struct port *side)
{
	return side->nic < side->index && ports[side->nic]->kind != PORT_KERNEL_SIDE;
}

static bool acceptable(const struct dataplane_config *c, struct port **ports, uint16_t count)
{
	if (count == 0 || count > MAX_PORTS || c->workers == 0 || c->workers > MAX_WORKERS ||
	    c->connection_entries == 0 || c->connection_entries > MAX_CONNECTIONS)
		return false;
	for (uint16_t i = 0; i < count; i++)
		if (ports[i]->index != i || // packets carry the index of their port
		    ports[i]->queues != (c->layout == LAYOUT_RSS ? c->workers : 1) ||
		    (ports[i]->kind == PORT_KERNEL_SIDE && !is_beside_a_nic(ports, ports[i])))
			return false;
	return true;
}

struct dataplane *dataplane_new(const struct dataplane_config *config, struct packet_pool *pool, struct port **ports,
				uint16_t count, int *error)
{
	struct dataplane *d;

	*error = -EINVAL;
	if (!acceptable(config, ports, count))
		return NULL;
	*error = -ENOMEM;
	d = aligned_alloc(64, (sizeof(*d) + 63) & ~(size_t)63);
	if (d == NULL)
		return NULL;
	memset(d, 0, sizeof(*d));
	d->config = *config;
	d->pool = pool;
	d->port_count = count;
	for (uint16_t i = 0; i < count; i++) {
		memcpy(d->egress[i].mac, ports[i]->mac, sizeof(d->egress[i].mac));
		if (ports[i]->kind == PORT_KERNEL_SIDE)
			d->egress[ports[i]->nic].kernel_side = i;
	}
	*error = road_create(d, ports);
	d->config.tables = NULL; // the caller's list, not ours to keep
	if (*error == 0)
		return d;
	dataplane_delete(d);
	return NULL;
}

void dataplane_delete(struct dataplane *d)
{
	if (d == NULL)
		return;
	dataplane_stop(d);
	road_free(d);
	free(d);
}

void dataplane_set_port(struct dataplane *d, uint16_t port, uint16_t mtu, bool punts, bool unfinished, bool only_own)
{
	d->egress[port].mtu = mtu;
	d->egress[port].punts = punts;
	d->egress[port].unfinished = unfinished;
	d->egress[port].only_own = only_own;
	for (uint32_t i = 0; i < d->config.workers; i++) {
		d->workers[i].unfinished |= unfinished;
		d->workers[i].only_own |= only_own;
	}
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
	if (s != NULL)
		weigh(d, s);
	state_publish(&d->state, s);
}

int dataplane_start(struct dataplane *d, const unsigned int *lcores)
{
	uint32_t stages = road_stages(&d->config);
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

		rc = rte_eal_remote_launch(road_by_rss(d) ? loop_lane : loop, d, lcores[i]);
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
	for (uint32_t i = 0; i < road_stages(&d->config); i++)
		rte_eal_wait_lcore(d->lcores[i]);
	d->running = false;
}

static uint32_t step_lanes(struct dataplane *d, uint32_t now)
{
	uint32_t moved = 0;

	for (uint32_t i = 0; i < d->config.workers; i++) {
		if (d->workers[i].now != now)
			lane_tick(&d->lanes[i], now);
		conn_tick(&d->workers[i].table, now);
		moved += lane_turn(&d->lanes[i]);
	}
	return moved;
}

uint32_t dataplane_step(struct dataplane *d, uint32_t now)
{
	uint32_t moved;

	if (d->workers[0].now != now)
		dataplane_weigh(d);
	if (road_by_rss(d))
		return step_lanes(d, now);
	if (d->steering.chooser.matcher.now != now)
		choose_tick(&d->steering.chooser, now);
	moved = steering_turn(&d->steering);
	for (uint32_t i = 0; i < d->config.workers; i++) {
		if (d->workers[i].now != now)
			worker_tick(&d->workers[i], now);
		conn_tick(&d->workers[i].table, now);
		moved += worker_turn(&d->workers[i]);
	}
	return moved + muxing_turn(&d->muxing);
}

void dataplane_flush(struct dataplane *d, uint32_t backend)
{
	for (uint32_t i = 0; i < d->config.workers; i++) {
		struct worker *w = &d->workers[i];

		if (!d->running) {
			conn_flush(&w->table, backend, &w->flush_at, w->table.bucket_count);
			continue;
		}
		__atomic_store_n(&w->flush, backend + 1, __ATOMIC_RELEASE);
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
	if (length >= RTE_ETHER_ADDR_LEN)
		memcpy(data, d->egress[0].mac, RTE_ETHER_ADDR_LEN); // it is for us
	packet_poison(m);
	m->port = 0;
	*packet_note(m) = (struct packet_note){.flags = PACKET_OWN, .worker = worker};
	if (rte_ring_sp_enqueue(road_by_rss(d) ? d->lanes[worker % d->config.workers].own : d->own, m) == 0)
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
