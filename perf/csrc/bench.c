#include "bench.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_launch.h>

#include "floor.h"
#include "parse.h"
#include "rig.h"

enum {
	POOL_HOT = 2048,    // with the mempool's cache: the buffers of a burst are those of the burst before
	POOL_COLD = 16384,  // in rotation: each comes back after all others
	TURNS_TOGETHER = 8, // bursts of one kind before the other's, so that both meet the same machine
};

// One worker, what feeds it, and the floor beside it.
struct track {
	struct bench *bench;
	struct worker *worker;
	struct generator generator;
	struct floor floor;
	uint32_t bursts; // of the round under way
	struct bench_round round;
} __attribute__((aligned(64)));

struct bench {
	struct bench_config config;
	struct rig rig;
	struct track tracks[MAX_WORKERS];
};

static enum reason expected_of(enum traffic_kind traffic)
{
	return traffic == TRAFFIC_HIT || traffic == TRAFFIC_STALE ? REASON_known_flow :
	       traffic == TRAFFIC_NOT_VIP			  ? REASON_other_port :
								    REASON_new_flow;
}

static void prepare(struct track *t, struct rte_mbuf **burst)
{
	rte_pktmbuf_alloc_bulk(t->bench->rig.pool.mempool, burst, BURST);
	for (int i = 0; i < BURST; i++) {
		generator_lay(&t->generator, burst[i]);
		*packet_note(burst[i]) = (struct packet_note){0};
		burst[i]->port = 0;
	}
}

// One burst through the worker. Returns its time in cycles.
static uint64_t through_worker(struct track *t)
{
	enum reason expected = expected_of(t->generator.config.traffic);
	struct rte_mbuf *burst[BURST];
	uint64_t before = t->worker->stats.reasons[expected], began, took;
	uint32_t n;

	prepare(t, burst);
	rte_ring_sp_enqueue_burst(t->worker->in, (void **)burst, BURST, NULL);
	began = rte_rdtsc_precise();
	worker_turn(t->worker);
	took = rte_rdtsc_precise() - began;
	n = rte_ring_sc_dequeue_burst(t->worker->out, (void **)burst, BURST, NULL);
	for (uint32_t i = 0; i < n; i++)
		t->round.expected += packet_note(burst[i])->reason == expected;
	t->round.expected += t->worker->stats.reasons[expected] - before;
	t->round.forwarded += n;
	rte_pktmbuf_free_bulk(burst, n);
	return took;
}

static uint64_t through_floor(struct track *t)
{
	struct rte_mbuf *burst[BURST];
	uint64_t began, took;

	prepare(t, burst);
	began = rte_rdtsc_precise();
	floor_burst(&t->floor, burst);
	took = rte_rdtsc_precise() - began;
	rte_pktmbuf_free_bulk(burst, BURST);
	return took;
}

static void empty_table(struct track *t)
{
	struct conn_timeouts timeouts = t->worker->table.timeouts;
	struct dataplane *d = t->bench->rig.dataplane;
	uint32_t entries = d->config.connection_entries;
	void *memory = d->tables[t->worker - d->workers];

	memset(memory, 0, conn_table_memory(entries));
	conn_table_init(&t->worker->table, memory, entries, &timeouts);
	t->generator.next = 0;
}

// A new second where the traffic wants one, an empty table where it has no room left.
static void between_bursts(struct track *t)
{
	const struct generator_config *c = &t->generator.config;
	bool all_seen = t->generator.next + BURST > c->flows;

	if (c->traffic == TRAFFIC_NEW && all_seen)
		empty_table(t);
	if (c->traffic == TRAFFIC_STALE && all_seen) {
		worker_tick(t->worker, t->worker->now + 1);
		t->generator.next = 0;
	}
}

// Every flow's first packet, and one a second later, so that all are established, and stamped in this second.
static void open_flows(struct track *t)
{
	for (int pass = 0; pass < 2; pass++) {
		generator_open(&t->generator, pass == 0 ? TCP_SYN : TCP_ACK);
		while (t->generator.next < t->generator.config.flows)
			through_worker(t);
		if (pass == 0)
			worker_tick(t->worker, t->worker->now + 1);
	}
	generator_opened(&t->generator);
}

// What a worker must have seen before the first measured packet.
static int begin(void *track)
{
	struct track *t = track;
	enum traffic_kind traffic = t->generator.config.traffic;

	if (traffic == TRAFFIC_HIT || traffic == TRAFFIC_STALE)
		open_flows(t);
	if (traffic == TRAFFIC_STALE)
		worker_tick(t->worker, t->worker->now + 1);
	for (uint32_t i = 0; traffic == TRAFFIC_FLOOD && i < 2 * t->generator.config.flows / BURST; i++)
		through_worker(t);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

// Nanoseconds per packet of the middle one of these times of TURNS_TOGETHER bursts: interrupted ones do not count.
static double middle(uint64_t *times, uint32_t count)
{
	qsort(times, count, sizeof(*times), by_value);
	return (double)times[count / 2] / (TURNS_TOGETHER * BURST) / (double)rte_get_tsc_hz() * 1e9;
}

static int run(void *track)
{
	struct track *t = track;
	uint32_t count = t->bursts / TURNS_TOGETHER;
	uint64_t *worker = calloc(2 * count, sizeof(*worker)), *floor = worker + count;

	t->round = (struct bench_round){.packets = (uint64_t)t->bursts * BURST};
	if (t->generator.config.traffic == TRAFFIC_NEW)
		empty_table(t);
	for (uint32_t i = 0; worker != NULL && i < count; i++) {
		uint64_t next;

		for (int k = 0; k < TURNS_TOGETHER; k++) {
			between_bursts(t);
			worker[i] += through_worker(t);
		}
		next = t->generator.next;
		for (int k = 0; k < TURNS_TOGETHER; k++)
			floor[i] += through_floor(t);
		t->generator.next = next;
	}
	if (worker == NULL)
		return -ENOMEM;
	t->round.worker_ns = middle(worker, count);
	t->round.floor_ns = middle(floor, count);
	free(worker);
	return 0;
}

// The same on the lcores of all workers at once.
static void on_all(struct bench *b, lcore_function_t *function)
{
	for (uint32_t i = 1; i < b->config.workers; i++)
		rte_eal_remote_launch(function, &b->tracks[i], i);
	function(&b->tracks[0]);
	for (uint32_t i = 1; i < b->config.workers; i++)
		rte_eal_wait_lcore(i);
}

void bench_run(struct bench *b, uint32_t bursts, struct bench_round *round)
{
	bursts = (bursts + TURNS_TOGETHER - 1) / TURNS_TOGETHER * TURNS_TOGETHER;
	for (uint32_t i = 0; i < b->config.workers; i++)
		b->tracks[i].bursts = bursts;
	on_all(b, run);
	*round = (struct bench_round){0};
	for (uint32_t i = 0; i < b->config.workers; i++) {
		const struct bench_round *r = &b->tracks[i].round;

		round->worker_ns += r->worker_ns / b->config.workers;
		round->floor_ns += r->floor_ns / b->config.workers;
		round->packets += r->packets;
		round->expected += r->expected;
		round->forwarded += r->forwarded;
	}
}

static int open_track(struct bench *b, uint32_t i)
{
	struct track *t = &b->tracks[i];

	t->bench = b;
	t->worker = &b->rig.dataplane->workers[i];
	generator_init(&t->generator, &b->config.generator, i + 1);
	return floor_open(&t->floor, t->worker->table.bucket_count, b->config.generator.version);
}

struct bench *bench_new(const struct bench_config *config, int *error)
{
	const struct generator_config *traffic = &config->generator;
	struct bench *b = aligned_alloc(64, sizeof(*b));
	const struct rig_config rig = {
		.name = "bench",
		.vips = traffic->vips,
		.backends = config->backends,
		.table_size = config->table_size,
		.workers = config->workers,
		.ring_size = 1024,
		.entries = traffic->traffic == TRAFFIC_FLOOD ? traffic->flows : traffic->flows * 2,
		.packets = (config->cold ? POOL_COLD : POOL_HOT) * config->workers,
		.version = traffic->version,
		.cold = config->cold,
		.only_own = config->only_own,
	};

	*error = -ENOMEM;
	if (b == NULL)
		return NULL;
	*b = (struct bench){.config = *config};
	*error = rig_open(&b->rig, &rig);
	for (uint32_t i = 0; i < config->workers && *error == 0; i++)
		*error = open_track(b, i);
	if (*error != 0) {
		bench_delete(b);
		return NULL;
	}
	on_all(b, begin);
	return b;
}

void bench_delete(struct bench *b)
{
	if (b == NULL)
		return;
	for (uint32_t i = 0; i < b->config.workers; i++)
		floor_close(&b->tracks[i].floor);
	rig_close(&b->rig);
	free(b);
}
