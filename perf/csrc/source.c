#include "source.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_launch.h>

#include "parse.h"

enum {
	LATE = 2 * BURST,  // packets: a source that was held up for longer does not catch up
	QUIET_MS = 5,      // nothing has come back for so long: nothing will
	LINK_MS = 3000,
};

static uint64_t *stamp_of(struct rte_mbuf *m)
{
	return (uint64_t *)((uint8_t *)m->buf_addr + m->buf_len - sizeof(uint64_t));
}

static uint16_t put(struct source *s, struct rte_mbuf **burst, uint16_t n)
{
	if (s->port != NULL)
		return port_transmit(s->port, 0, burst, n);
	return (uint16_t)rte_ring_sp_enqueue_burst(s->node->rig.port->arriving[0], (void **)burst, n, NULL);
}

static uint16_t take(struct source *s, struct rte_mbuf **burst)
{
	if (s->port != NULL)
		return port_receive(s->port, 0, burst, BURST);
	return (uint16_t)rte_ring_sc_dequeue_burst(s->node->rig.port->leaving[0], (void **)burst, BURST, NULL);
}

// Take what has come back. Returns how many.
static uint16_t collect(struct source *s)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n = take(s, burst);
	uint64_t now = rte_rdtsc();

	for (uint16_t i = 0; s->port == NULL && i < n; i++)
		histogram_add(&s->delays, now - *stamp_of(burst[i]));
	rte_pktmbuf_free_bulk(burst, n);
	s->returned += n;
	return n;
}

static void send_burst(struct source *s, uint16_t n)
{
	struct rte_mbuf *burst[BURST];
	uint16_t taken = 0;
	uint64_t now;

	s->sent += n;
	if (rte_pktmbuf_alloc_bulk(s->node->rig.pool.mempool, burst, n) != 0) {
		s->refused += n; // the node holds all there are
		return;
	}
	for (uint16_t i = 0; i < n; i++)
		generator_lay(&s->generator, burst[i]);
	now = rte_rdtsc();
	for (uint16_t i = 0; i < n; i++)
		*stamp_of(burst[i]) = now;
	do {
		taken += put(s, burst + taken, n - taken);
		if (taken < n && s->wait)
			collect(s);
	} while (taken < n && s->wait);
	s->refused += n - taken;
	rte_pktmbuf_free_bulk(burst + taken, n - taken);
}

// Packets that are due by now.
static uint16_t due(const struct source *s, double *next)
{
	double now = (double)(rte_rdtsc() - s->began), count;

	if (s->gap == 0)
		return BURST;
	if (now < *next)
		return 0;
	if (now > *next + LATE * s->gap)
		*next = now;
	count = (now - *next) / s->gap + 1;
	count = count < BURST ? (double)(uint16_t)count : BURST;
	*next += count * s->gap;
	return (uint16_t)count;
}

static int loop(void *source)
{
	struct source *s = source;
	uint64_t quiet = rte_get_tsc_hz() / 1000 * QUIET_MS, last;
	double next = 0;

	s->began = rte_rdtsc();
	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED) && (s->most == 0 || s->sent < s->most)) {
		uint16_t n = due(s, &next);

		if (n > 0)
			send_burst(s, n);
		collect(s);
	}
	s->ended = last = rte_rdtsc();
	while (rte_rdtsc() - last < quiet)
		if (collect(s) > 0)
			last = rte_rdtsc();
	return 0;
}

static void start(struct source *s, double packets_per_second)
{
	s->gap = packets_per_second > 0 ? (double)rte_get_tsc_hz() / packets_per_second : 0;
	s->stop = false;
	s->sent = s->refused = s->returned = 0;
	s->delays = (struct histogram){0};
	rte_eal_remote_launch(loop, s, s->lcore);
}

void source_start(struct source *s, double packets_per_second)
{
	s->most = 0;
	s->wait = false;
	start(s, packets_per_second);
}

void source_open_flows(struct source *s, double packets_per_second, bool first)
{
	s->most = s->node->config.generator.flows;
	s->wait = true;
	generator_open(&s->generator, first ? TCP_SYN : TCP_ACK);
	start(s, packets_per_second);
	rig_wait(s->lcore);
	generator_opened(&s->generator);
}

void source_stop(struct source *s, struct source_round *round)
{
	double ns = 1e9 / (double)rte_get_tsc_hz();

	__atomic_store_n(&s->stop, true, __ATOMIC_RELAXED);
	rig_wait(s->lcore);
	*round = (struct source_round){
		.seconds = (double)(s->ended - s->began) * ns / 1e9,
		.sent = s->sent,
		.refused = s->refused,
		.returned = s->returned,
		.median_ns = (double)histogram_at(&s->delays, 0.5) * ns,
		.p99_ns = (double)histogram_at(&s->delays, 0.99) * ns,
		.p999_ns = (double)histogram_at(&s->delays, 0.999) * ns,
		.longest_ns = (double)s->delays.longest * ns,
	};
}

static int wait_for_link(const struct source *s)
{
	for (int ms = 0; ms < LINK_MS; ms++) {
		if (port_link_up(s->port) && port_link_up(s->node->rig.port))
			return 0;
		rte_delay_us_sleep(1000);
	}
	return -ENETDOWN;
}

struct source *source_new(struct node *n, const char *devargs, unsigned int lcore, int *error)
{
	struct source *s = calloc(1, sizeof(*s));

	*error = -ENOMEM;
	if (s == NULL)
		return NULL;
	*error = 0;
	s->node = n;
	s->lcore = lcore;
	generator_init(&s->generator, &n->config.generator, 2);
	if (devargs != NULL) {
		s->port = port_new_device(devargs, 1, &n->rig.pool, 1, 0, error);
		if (s->port != NULL)
			*error = wait_for_link(s);
	}
	if (*error == 0)
		return s;
	source_delete(s);
	return NULL;
}

void source_delete(struct source *s)
{
	if (s == NULL)
		return;
	if (s->port != NULL)
		port_delete(s->port);
	free(s);
}
