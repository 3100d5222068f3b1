#include "node.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_launch.h>
#include <rte_pause.h>

#include "parse.h"

enum { POPULATION = 128 }; // packets that go round on a net_ring port; its ring takes 1023

static bool is_driver(const struct node *n, const char *driver)
{
	return strncmp(n->name, driver, strlen(driver)) == 0;
}

static uint16_t lay_frames(uint16_t port, uint16_t queue, struct rte_mbuf **burst, uint16_t n, uint16_t most,
			   void *node)
{
	struct node *self = node;

	for (uint16_t i = 0; self->lay && i < n; i++)
		generator_lay(&self->generator, burst[i]);
	return n;
}

// A new second, as there is one between rounds.
static void tick(struct node *n)
{
	struct dataplane *d = n->rig.dataplane;
	uint32_t now = d->workers[0].now + 1;

	if (d->lanes == NULL)
		choose_tick(&d->steering.chooser, now);
	for (uint32_t i = 0; i < d->config.workers; i++) {
		if (d->lanes != NULL)
			lane_tick(&d->lanes[i], now);
		else
			worker_tick(&d->workers[i], now);
		conn_tick(&d->workers[i].table, now);
	}
}

// Out with what stages that were stopped have left between them.
static void settle(struct node *n)
{
	struct dataplane *d = n->rig.dataplane;
	uint32_t moved;

	do {
		moved = 0;
		for (uint32_t i = 0; i < d->config.workers; i++)
			moved += d->lanes != NULL ? muxing_send(&d->lanes[i].muxing) : worker_turn(&d->workers[i]);
		moved += d->lanes != NULL ? 0 : muxing_turn(&d->muxing);
	} while (moved > 0);
}

// As many packets on the ring as there were at first; what was dropped has left it.
static void fill_ring(struct node *n)
{
	uint32_t missing = POPULATION - packet_pool_missing(&n->rig.pool);
	struct rte_mbuf *m;

	while (is_driver(n, "net_ring") && missing-- > 0 && (m = rte_pktmbuf_alloc(n->rig.pool.mempool)) != NULL)
		if (port_transmit(n->rig.port, 0, &m, 1) == 0)
			packet_free(m);
}

// Add a turn that had packets to the time of each of its parts.
static void account(struct node *n, const uint64_t *at, int parts, uint32_t handled)
{
	if (handled == 0)
		return;
	if (at[parts] - at[0] > rig_longest_turn()) {
		n->interrupted++;
		return;
	}
	for (int i = 0; i < parts; i++)
		n->cycles[i] += at[i + 1] - at[i];
	n->handled += handled;
}

static uint32_t turn_lanes(struct node *n)
{
	struct dataplane *d = n->rig.dataplane;
	uint64_t at[4] = {rte_rdtsc()};
	uint32_t handled = 0;

	at[1] = at[0];
	for (uint32_t i = 0; i < d->config.workers; i++) {
		uint64_t before = d->lanes[i].arrivals[0].received;

		lane_turn(&d->lanes[i]);
		handled += (uint32_t)(d->lanes[i].arrivals[0].received - before);
	}
	at[2] = at[3] = rte_rdtsc();
	account(n, at, 3, handled);
	return handled;
}

// Returns whether there were packets.
static bool turn(struct node *n)
{
	struct dataplane *d = n->rig.dataplane;
	uint64_t at[4] = {rte_rdtsc()};
	uint32_t handled;

	if (d->lanes != NULL)
		return turn_lanes(n) > 0;
	handled = steering_turn(&d->steering);
	at[1] = rte_rdtsc();
	for (uint32_t i = 0; i < d->config.workers; i++)
		worker_turn(&d->workers[i]);
	at[2] = rte_rdtsc();
	muxing_turn(&d->muxing);
	at[3] = rte_rdtsc();
	account(n, at, 3, handled);
	return handled > 0;
}

static void exchange_addresses(struct rte_mbuf **burst, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		packet_prefetch(burst[i]);
	for (uint16_t i = 0; i < n; i++) {
		struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(burst[i], struct rte_ether_hdr *);
		struct rte_ether_addr destination = ethernet->dst_addr;

		ethernet->dst_addr = ethernet->src_addr;
		ethernet->src_addr = destination;
	}
}

// Returns whether there were packets.
static bool pass(struct node *n)
{
	struct rte_mbuf *burst[BURST];
	uint64_t at[2] = {rte_rdtsc()};
	uint16_t received = port_receive(n->rig.port, 0, burst, BURST);
	uint16_t sent = 0;

	if (n->mode == NODE_PLAIN)
		exchange_addresses(burst, received);
	if (received > 0)
		sent = port_transmit(n->rig.port, 0, burst, received);
	n->passed += received;
	n->refused += received - sent;
	for (; sent < received; sent++)
		packet_free(burst[sent]);
	at[1] = rte_rdtsc();
	account(n, at, 1, received);
	return received > 0;
}

static int loop(void *node)
{
	struct node *n = node;

	while (!__atomic_load_n(&n->stop, __ATOMIC_RELAXED))
		if (!(n->mode == NODE_TURNS ? turn(n) : pass(n)))
			rte_pause(); // as a stage that spins
	return 0;
}

static void begin(struct node *n, enum node_mode mode, bool lay)
{
	n->mode = mode;
	n->lay = lay;
	n->stop = false;
	n->passed = n->refused = n->handled = n->interrupted = 0;
	memset(n->cycles, 0, sizeof(n->cycles));
	settle(n);
	fill_ring(n);
	tick(n);
	rig_fates(&n->rig, &n->before);
	n->received = dataplane_received(n->rig.dataplane);
	n->began = rte_rdtsc();
}

static void end(struct node *n, struct node_round *round)
{
	double hz = (double)rte_get_tsc_hz();
	struct rig_fates fates;

	*round = (struct node_round){.seconds = (double)(rte_rdtsc() - n->began) / hz};
	rig_fates(&n->rig, &fates);
	round->packets = dataplane_received(n->rig.dataplane) - n->received;
	round->forwarded = fates.forwarded - n->before.forwarded;
	round->dropped = fates.dropped - n->before.dropped;
	round->known = fates.known - n->before.known;
	round->interrupted = n->interrupted;
	for (int i = 0; i < 3 && n->handled > 0; i++)
		round->stage_ns[i] = (double)n->cycles[i] / (double)n->handled / hz * 1e9;
	if (n->mode == NODE_PASS || n->mode == NODE_PLAIN) {
		round->packets = round->known = n->passed;
		round->dropped = n->refused;
		round->forwarded = n->passed - n->refused;
	}
}

int node_start(struct node *n, enum node_mode mode, const unsigned int *lcores, bool lay)
{
	begin(n, mode, lay);
	n->lcore = lcores[0];
	return mode == NODE_STAGES ? dataplane_start(n->rig.dataplane, lcores) : rte_eal_remote_launch(loop, n, n->lcore);
}

void node_stop(struct node *n, struct node_round *round)
{
	struct dataplane *d = n->rig.dataplane;

	__atomic_store_n(&n->stop, true, __ATOMIC_RELAXED);
	if (n->mode == NODE_STAGES) {
		__atomic_store_n(&d->stop, true, __ATOMIC_RELAXED);
		for (uint32_t i = 0; i < road_stages(&d->config); i++)
			rig_wait(d->lcores[i]);
		dataplane_stop(d);
	} else {
		rig_wait(n->lcore);
	}
	end(n, round);
}

void node_step(struct node *n, uint32_t turns, struct node_round *round)
{
	begin(n, NODE_TURNS, true);
	while (turns-- > 0)
		turn(n);
	end(n, round);
}

void node_open_flows(struct node *n)
{
	for (int pass_number = 0; pass_number < 2; pass_number++) {
		generator_open(&n->generator, pass_number == 0 ? TCP_SYN : TCP_ACK);
		begin(n, NODE_TURNS, true);
		while (n->generator.next < n->config.generator.flows)
			turn(n);
	}
	generator_opened(&n->generator);
}

static int open_rig(struct node *n)
{
	const struct node_config *config = &n->config;
	const struct rig_config rig = {
		.name = n->name,
		.devargs = config->devargs,
		.vips = config->generator.vips,
		.backends = config->backends,
		.table_size = config->table_size,
		.workers = config->workers,
		.layout = config->layout,
		.ring_size = config->ring_size,
		.entries = config->generator.flows * 2,
		.packets = config->packets,
		.version = config->generator.version,
		.idle = config->idle,
	};

	return rig_open(&n->rig, &rig);
}

struct node *node_new(const struct node_config *config, int *error)
{
	const char *device = config->devargs != NULL ? config->devargs : "memory";
	struct node *n = calloc(1, sizeof(*n));

	*error = -ENOMEM;
	if (n == NULL)
		return NULL;
	n->config = *config;
	snprintf(n->name, sizeof(n->name), "%.*s", (int)strcspn(device, ","), device);
	generator_init(&n->generator, &config->generator, 1);
	*error = open_rig(n);
	if (*error == 0 && (is_driver(n, "net_null") || is_driver(n, "net_ring")) &&
	    rte_eth_add_rx_callback(n->rig.port->id, 0, lay_frames, n) == NULL)
		*error = -ENOTSUP;
	if (*error == 0)
		return n;
	node_delete(n);
	return NULL;
}

void node_delete(struct node *n)
{
	if (n == NULL)
		return;
	rig_close(&n->rig);
	free(n);
}
