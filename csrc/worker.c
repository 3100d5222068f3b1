#include "worker.h"

#include "checksum.h"
#include "flow_burst.h"
#include "job.h"
#include "learn.h"

enum {
	ANSWERS_PER_SECOND = 1000, // of each kind
	SWEEP_SECONDS = 60,        // a whole round of the connection table
	FLUSH_PER_TURN = 256,      // buckets, so that a turn stays short
	SWEEP_PER_TURN = 16,       // likewise
};

// Take a packet off the road here, unless it is among the answers: then muxing counts it.
static void end(struct worker *w, struct rte_mbuf *m, enum reason reason)
{
	if (reason != REASON_echo_answered && reason != REASON_too_big_answered)
		packet_end(&w->stats, w->collector, m, reason);
}

static void finish_checksum(struct rte_mbuf *m, const struct packet_view *v)
{
	if (v->has_ports && !v->fragment && v->available >= v->ip_length && checksum_looks_unfinished(v))
		checksum_finish(rte_pktmbuf_mtod_offset(m, uint8_t *, v->l3), v);
}

// Headers -> views and vips. Packets that go on are packed to the front and their buckets prefetched; the others end.
static uint16_t parse_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs,
			   uint16_t n)
{
	const struct flow_key *keys[BURST];
	uint64_t hashes[BURST];
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < n; i++) {
		struct job *job = &jobs[kept];
		enum reason reason = classify(w, s, burst[i], job);

		if (reason != GO_ON) {
			end(w, burst[i], reason);
			continue;
		}
		if (w->egress[burst[i]->port].unfinished)
			finish_checksum(burst[i], &job->view);
		keys[kept] = &job->view.key;
		burst[kept++] = burst[i];
	}
	flow_hash_burst(&w->key, keys, kept, hashes);
	for (uint16_t i = 0; i < kept; i++) {
		jobs[i].hash = hashes[i];
		conn_prefetch(&w->table, hashes[i]);
	}
	return kept;
}

// Vips and hashes -> backends, in the packets' notes.
static uint16_t decide_pass(struct worker *w, const struct state *s, struct rte_mbuf **burst, struct job *jobs,
			    uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		enum reason reason = decide(w, s, burst[i], &jobs[i]);

		if (reason == REASON_no_backend) {
			end(w, burst[i], reason);
			continue;
		}
		packet_note(burst[i])->reason = (uint8_t)reason;
		rte_prefetch0(jobs[i].to);
		way_prefetch(w, packet_note(burst[i])->backend, jobs[i].view.ip_length);
		if (kept != i) {
			jobs[kept] = jobs[i];
			burst[kept] = burst[i];
		}
		kept++;
	}
	return kept;
}

static void pass_on(struct worker *w, struct rte_mbuf **packets, uint16_t n)
{
	unsigned int sent = rte_ring_sp_enqueue_burst(w->out, (void *const *)packets, n, NULL);

	for (; sent < n; sent++)
		packet_end(&w->stats, w->collector, packets[sent], REASON_muxing_full);
}

// Outer headers into the headroom. What is cut goes on from here, behind what came before it.
static uint16_t wrap_pass(struct worker *w, struct rte_mbuf **burst, struct job *jobs, uint16_t n)
{
	uint16_t kept = 0;

	for (uint16_t i = 0; i < n; i++) {
		enum reason reason = wrap(w, burst[i], &jobs[i]);

		if (reason == GO_ON && jobs[i].piece_mtu == 0) {
			burst[kept++] = burst[i];
			continue;
		}
		if (reason == GO_ON) {
			pass_on(w, burst, kept);
			kept = 0;
			reason = wrap_in_pieces(w, burst[i], &jobs[i]);
		}
		if (reason != GO_ON)
			end(w, burst[i], reason);
	}
	return kept;
}

static void housekeeping(struct worker *w)
{
	uint32_t flush = __atomic_load_n(&w->flush, __ATOMIC_ACQUIRE);
	uint32_t buckets = w->sweep_left < SWEEP_PER_TURN ? w->sweep_left : SWEEP_PER_TURN;

	if (flush != 0 && conn_flush(&w->table, (uint16_t)(flush - 1), &w->flush_at, FLUSH_PER_TURN))
		__atomic_store_n(&w->flush, 0, __ATOMIC_RELEASE); // the asker waits for this
	conn_sweep(&w->table, buckets, w->now);
	w->sweep_left -= buckets;
}

void worker_tick(struct worker *w, uint32_t now)
{
	// A capture may pause for days: nothing lives so long, and the clock in the entries would come round again.
	if (now - w->now > CONN_LONGEST)
		conn_sweep(&w->table, w->table.bucket_count, w->now + CONN_LONGEST + 1);
	w->now = now;
	w->echoes_left = ANSWERS_PER_SECOND;
	w->errors_left = ANSWERS_PER_SECOND;
	w->sweep_left = w->table.bucket_count / SWEEP_SECONDS + 1;
}

// A burst through the passes and on.
static void handle(struct worker *w, struct rte_mbuf **burst, uint16_t n)
{
	const struct state *s = state_acquire(w->state);
	struct job jobs[BURST];

	w->answer_count = 0;
	n = parse_pass(w, s, burst, jobs, n);
	n = decide_pass(w, s, burst, jobs, n);
	n = wrap_pass(w, burst, jobs, n);
	pass_on(w, burst, n);
	pass_on(w, w->answers, w->answer_count);
}

uint32_t worker_turn(struct worker *w)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n = (uint16_t)rte_ring_sc_dequeue_burst(w->in, (void **)burst, BURST, NULL);

	housekeeping(w);
	if (n > 0)
		handle(w, burst, n);
	return n;
}
