#include "bench.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "maglev.h"
#include "road.h"
#include "wire.h"

enum {
	POOL_HOT = 2048,    // with the mempool's cache: the buffers of a burst are those of the burst before
	POOL_COLD = 16384,  // in rotation: each comes back after all others
	TURNS_TOGETHER = 8, // bursts of one kind before the other's, so that both meet the same machine
	PREPENDED = 38,     // Ethernet and outer IPv4 with GRE, or what stands for them in the floor
};

struct bench {
	struct bench_config config;
	struct packet_pool pool;
	struct port *port;
	struct dataplane *dataplane;
	struct worker *worker;
	struct state *state;
	uint16_t *slots;
	uint8_t frame[128]; // headers of a packet, its varying fields zero
	uint32_t frame_sum; // of the IPv4 header
	uint64_t seed;
	uint32_t next;     // flow that comes next, where each comes once
	uint64_t *floor_table;
	uint32_t floor_mask;
};

static uint64_t next_random(struct bench *b)
{
	uint64_t z = b->seed += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

// -- what is set up once -------------------------------------------------------------------------------------------

static void vip_address(const struct bench *b, uint32_t number, uint8_t *address)
{
	static const uint8_t four[4] = {192, 0, 2, 1}, six[16] = {0x20, 0x01, 0x0d, 0xb8};
	uint32_t length = b->config.version == 4 ? 4 : 16;

	memcpy(address, b->config.version == 4 ? four : six, length);
	write16(address + length - 2, b->config.version == 4 ? 0x0201 + number : number + 1);
}

static int make_pool(struct bench *b)
{
	if (!b->config.cold)
		return packet_pool_create(&b->pool, "bench", POOL_HOT);
	b->pool.size = POOL_COLD;
	b->pool.mempool = rte_pktmbuf_pool_create("bench", POOL_COLD, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
						  (int)rte_socket_id());
	return b->pool.mempool != NULL ? 0 : -ENOMEM;
}

static int make_slots(struct bench *b)
{
	struct maglev_member *members = calloc(b->config.backends, sizeof(*members));
	char name[16];
	int rc = -ENOMEM;

	b->slots = calloc(b->config.table_size, sizeof(*b->slots));
	if (members != NULL && b->slots != NULL) {
		for (uint32_t i = 0; i < b->config.backends; i++) {
			int length = snprintf(name, sizeof(name), "b%05u", i);

			maglev_permutation(name, (size_t)length, b->config.table_size, &members[i]);
			members[i].weight = 1;
		}
		rc = maglev_populate(members, b->config.backends, b->config.table_size, b->slots);
	}
	free(members);
	return rc;
}

static int make_state(struct bench *b)
{
	struct backend_spec *backends = calloc(b->config.backends, sizeof(*backends));
	struct vip_spec *vips = calloc(b->config.vips, sizeof(*vips));
	uint16_t *usable = calloc(b->config.backends, sizeof(*usable));
	const struct cluster_spec alone = {0};
	int error = -ENOMEM;

	if (backends != NULL && vips != NULL && usable != NULL) {
		for (uint32_t i = 0; i < b->config.backends; i++) {
			backends[i] = (struct backend_spec){.index = (uint16_t)i, .generation = 1, .address_length = 4,
							    .address = {10, 1, (uint8_t)(i >> 8), (uint8_t)i},
							    .source = {10, 0, 2, 2}};
			usable[i] = (uint16_t)i;
		}
		for (uint32_t i = 0; i < b->config.vips; i++) {
			vips[i] = (struct vip_spec){.id = (uint16_t)i, .port = 80, .protocol = IPPROTO_TCP,
						    .address_length = b->config.version == 4 ? 4 : 16,
						    .table_size = b->config.table_size, .slots = b->slots,
						    .usable = usable, .usable_count = b->config.backends};
			vip_address(b, i, vips[i].address);
		}
		b->state = state_build(vips, b->config.vips, backends, b->config.backends, &alone, &error);
	}
	free(backends);
	free(vips);
	free(usable);
	return b->state != NULL ? 0 : error;
}

static void make_frame(struct bench *b)
{
	uint8_t *ip = b->frame + 14, *tcp = ip + (b->config.version == 4 ? 20 : 40);
	uint32_t length = b->config.bytes - 14u;

	memcpy(b->frame, (uint8_t[]){2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, 12);
	write16(b->frame + 12, b->config.version == 4 ? 0x0800 : 0x86dd);
	if (b->config.version == 4) {
		ip[0] = 0x45;
		write16(ip + 2, length);
		ip[6] = 0x40; // DF
		ip[8] = 64;
		ip[9] = IPPROTO_TCP;
		ip[12] = 10;
		b->frame_sum = sum_words(ip, 20, 0);
	} else {
		ip[0] = 0x60;
		write16(ip + 4, length - 40);
		ip[6] = IPPROTO_TCP;
		ip[7] = 64;
		ip[8] = 0xfd;
	}
	write16(tcp + 2, b->config.traffic == BENCH_NOT_VIP ? 81 : 80);
	tcp[12] = 0x50;
}

static int make_dataplane(struct bench *b)
{
	uint32_t entries = b->config.flows * 2;
	struct dataplane_config config = {
		.hash_key = {0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL},
		.steering_seed = 1,
		.workers = 1,
		.ring_size = 1024,
		.connection_entries = b->config.traffic == BENCH_FLOOD ? b->config.flows : entries,
		.connection_seconds = {10, 7200, 10, 60},
	};
	int error;

	b->port = port_new_memory("bench", 0, 1, &error);
	if (b->port == NULL)
		return error;
	b->dataplane = dataplane_new(&config, &b->pool, &b->port, 1, &error);
	if (b->dataplane == NULL)
		return error;
	b->worker = &b->dataplane->workers[0];
	dataplane_set_port(b->dataplane, 0, 9216, false, false);
	dataplane_set_next_hop(b->dataplane, 0, 0, (uint8_t[]){2, 0, 0, 0, 0, 9});
	for (b->floor_mask = 1; b->floor_mask < b->worker->table.bucket_count; b->floor_mask *= 2)
		;
	b->floor_table = rte_zmalloc("floor", (size_t)b->floor_mask * 64, 64);
	b->floor_mask--;
	return b->floor_table != NULL ? 0 : -ENOMEM;
}

// -- packets -------------------------------------------------------------------------------------------------------

// The frame of a flow: its number in source address and port, and the vip that it is for.
static void lay(struct bench *b, struct rte_mbuf *m, uint64_t flow, uint8_t tcp_flags)
{
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, b->config.bytes), *ip = frame + 14;
	uint32_t headers = b->config.version == 4 ? 54 : 74;
	uint8_t *tcp = frame + headers - 20;

	memcpy(frame, b->frame, headers);
	write16(tcp, 1024 + (uint32_t)(flow & 0x3fff));
	tcp[13] = tcp_flags;
	if (b->config.version == 4) {
		write16(ip + 14, (uint32_t)(flow >> 14));
		ip[13] = (uint8_t)(flow >> 30);
		vip_address(b, (uint32_t)(flow % b->config.vips), ip + 16);
		write16(ip + 10, (uint16_t)~fold(sum_words(ip + 12, 8, b->frame_sum - 0x0a00)));
	} else {
		write16(ip + 22, (uint32_t)(flow >> 14));
		ip[21] = (uint8_t)(flow >> 30);
		vip_address(b, (uint32_t)(flow % b->config.vips), ip + 24);
	}
}

static uint64_t choose_flow(struct bench *b)
{
	switch (b->config.traffic) {
	case BENCH_NEW:
		return b->next++;
	case BENCH_FLOOD:
		return next_random(b) & 0x3fffffffff;
	default:
		return next_random(b) % b->config.flows;
	}
}

static void prepare(struct bench *b, struct rte_mbuf **burst, uint8_t tcp_flags)
{
	rte_pktmbuf_alloc_bulk(b->pool.mempool, burst, BURST);
	for (int i = 0; i < BURST; i++) {
		*packet_note(burst[i]) = (struct packet_note){0};
		burst[i]->port = 0;
		lay(b, burst[i], choose_flow(b), tcp_flags);
	}
}

// One burst through the worker. Returns its time in cycles.
static uint64_t through_worker(struct bench *b, uint8_t tcp_flags, enum reason expected, uint64_t *met)
{
	struct rte_mbuf *burst[BURST];
	uint64_t before = b->worker->stats.reasons[expected], began, took;
	uint32_t n;

	prepare(b, burst, tcp_flags);
	rte_ring_sp_enqueue_burst(b->worker->in, (void **)burst, BURST, NULL);
	began = rte_rdtsc_precise();
	worker_turn(b->worker);
	took = rte_rdtsc_precise() - began;
	n = rte_ring_sc_dequeue_burst(b->worker->out, (void **)burst, BURST, NULL);
	for (uint32_t i = 0; i < n; i++)
		*met += packet_note(burst[i])->reason == expected;
	*met += b->worker->stats.reasons[expected] - before;
	rte_pktmbuf_free_bulk(burst, n);
	return took;
}

// What no implementation can avoid: one header line read, one line of the table read and stamped, headers written.
static uint64_t through_floor(struct bench *b, uint8_t tcp_flags)
{
	static const uint8_t headers[PREPENDED] = {1};
	struct rte_mbuf *burst[BURST];
	uint64_t *lines[BURST];
	uint64_t began, took;

	prepare(b, burst, tcp_flags);
	began = rte_rdtsc_precise();
	for (int i = 0; i < BURST; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (int i = 0; i < BURST; i++) {
		const uint8_t *frame = rte_pktmbuf_mtod(burst[i], const uint8_t *);
		uint64_t word;

		memcpy(&word, frame + (b->config.version == 4 ? 28 : 34), sizeof(word));
		word *= 0x9e3779b97f4a7c15ULL;
		lines[i] = b->floor_table + 8 * (size_t)((word >> 32) & b->floor_mask);
		rte_prefetch0(lines[i]);
	}
	for (int i = 0; i < BURST; i++) {
		*lines[i] = *lines[i] + 1;
		memcpy(rte_pktmbuf_mtod(burst[i], uint8_t *) - (PREPENDED - 14), headers, PREPENDED);
	}
	took = rte_rdtsc_precise() - began;
	rte_pktmbuf_free_bulk(burst, BURST);
	return took;
}

// -- the benchmark -------------------------------------------------------------------------------------------------

static void empty_table(struct bench *b)
{
	struct conn_timeouts timeouts = b->worker->table.timeouts;
	uint32_t entries = b->dataplane->config.connection_entries;

	memset(b->dataplane->tables[0], 0, conn_table_memory(entries));
	conn_table_init(&b->worker->table, b->dataplane->tables[0], entries, &timeouts);
	b->next = 0;
}

// Every flow's first packet, and one a second later, so that all are established.
static void open_flows(struct bench *b)
{
	enum bench_traffic traffic = b->config.traffic;
	uint64_t met = 0;

	b->config.traffic = BENCH_NEW; // in order
	for (int pass = 0; pass < 2; pass++) {
		b->next = 0;
		while (b->next < b->config.flows)
			through_worker(b, pass == 0 ? TCP_SYN : TCP_ACK, REASON_new_flow, &met);
		worker_tick(b->worker, b->worker->now + 1);
	}
	b->config.traffic = traffic;
}

static enum reason expected_of(enum bench_traffic traffic)
{
	return traffic == BENCH_HIT ? REASON_known_flow : traffic == BENCH_NOT_VIP ? REASON_other_port : REASON_new_flow;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double median(uint64_t *values, uint32_t count)
{
	qsort(values, count, sizeof(*values), by_value);
	return (double)values[count / 2];
}

void bench_run(struct bench *b, uint32_t bursts, struct bench_round *round)
{
	uint8_t flags = b->config.traffic == BENCH_HIT ? TCP_ACK : TCP_SYN;
	enum reason expected = expected_of(b->config.traffic);
	uint64_t *worker = calloc(2 * (bursts / TURNS_TOGETHER), sizeof(*worker));
	uint64_t *floor = worker + bursts / TURNS_TOGETHER;
	double per_ns = (double)rte_get_tsc_hz() / 1e9;

	*round = (struct bench_round){.packets = (uint64_t)bursts * BURST};
	if (b->config.traffic == BENCH_NEW)
		empty_table(b);
	for (uint32_t i = 0; i < bursts; i++) {
		if (b->config.traffic == BENCH_NEW && b->next + BURST > b->config.flows)
			empty_table(b);
		worker[i / TURNS_TOGETHER] += through_worker(b, flags, expected, &round->expected);
		if ((i + 1) % TURNS_TOGETHER == 0) {
			uint32_t next = b->next;

			for (int k = 0; k < TURNS_TOGETHER; k++)
				floor[i / TURNS_TOGETHER] += through_floor(b, flags);
			b->next = next;
		}
	}
	round->worker_ns = median(worker, bursts / TURNS_TOGETHER) / (TURNS_TOGETHER * BURST) / per_ns;
	round->floor_ns = median(floor, bursts / TURNS_TOGETHER) / (TURNS_TOGETHER * BURST) / per_ns;
	free(worker);
}

struct bench *bench_new(const struct bench_config *config, int *error)
{
	struct bench *b = calloc(1, sizeof(*b));

	*error = -ENOMEM;
	if (b == NULL)
		return NULL;
	b->config = *config;
	b->seed = 1;
	if ((*error = make_pool(b)) < 0 || (*error = make_slots(b)) < 0 || (*error = make_state(b)) < 0 ||
	    (*error = make_dataplane(b)) < 0) {
		bench_delete(b);
		return NULL;
	}
	make_frame(b);
	dataplane_publish(b->dataplane, b->state);
	if (config->traffic == BENCH_HIT)
		open_flows(b);
	if (config->traffic == BENCH_FLOOD) // full before the first measured packet
		for (uint32_t i = 0; i < 2 * config->flows / BURST; i++) {
			uint64_t met = 0;

			through_worker(b, TCP_SYN, REASON_new_flow, &met);
		}
	return b;
}

void bench_delete(struct bench *b)
{
	if (b == NULL)
		return;
	dataplane_delete(b->dataplane);
	port_delete(b->port);
	packet_pool_free(&b->pool);
	state_free(b->state);
	rte_free(b->floor_table);
	free(b->slots);
	free(b);
}
