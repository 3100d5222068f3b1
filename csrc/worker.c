#include "worker.h"

#include "job.h"
#include "muxing.h"
#include "punt.h"

enum {
	ANSWERS_PER_SECOND = 1000, // of each kind
	SWEEP_SECONDS = 60,        // a whole round of the connection table
	FLUSH_PER_TURN = 256,      // buckets, so that a turn stays short
	SWEEP_PER_TURN = 16,       // likewise
};

void worker_end(struct worker *w, struct rte_mbuf *m, enum reason reason)
{
	if ((packet_note(m)->flags & PACKET_ASIDE) == 0)
		packet_end(&w->stats, w->collector, m, reason);
}

void worker_pass_on(struct worker *w, struct rte_mbuf **packets, uint16_t n)
{
	unsigned int sent;

	if (w->out == NULL) {
		muxing_take(w->muxing, packets, n);
		return;
	}
	sent = rte_ring_sp_enqueue_burst(w->out, (void *const *)packets, n, NULL);
	for (; sent < n; sent++)
		packet_end(&w->stats, w->collector, packets[sent], REASON_muxing_full);
}

void worker_housekeeping(struct worker *w)
{
	uint32_t flush = __atomic_load_n(&w->flush, __ATOMIC_ACQUIRE);
	uint32_t buckets = w->sweep_left < SWEEP_PER_TURN ? w->sweep_left : SWEEP_PER_TURN;

	if (flush != 0 && conn_flush(&w->table, flush - 1, &w->flush_at, FLUSH_PER_TURN))
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
	w->punts_left = PUNTS_PER_SECOND;
	w->routing_punts_left = ROUTING_PUNTS_PER_SECOND;
	w->sweep_left = w->table.bucket_count / SWEEP_SECONDS + 1;
}

void worker_burst(struct worker *w, struct rte_mbuf **burst, uint16_t n)
{
	const struct state *s = state_acquire(w->state);
	struct job jobs[BURST];

	if (n == 0)
		return;
	w->answer_count = 0;
	n = classify_pass(w, s, burst, jobs, n);
	n = decide_pass(w, s, burst, jobs, n);
	n = wrap_pass(w, burst, jobs, n);
	worker_pass_on(w, burst, n);
	worker_pass_on(w, w->answers, w->answer_count);
}

uint32_t worker_turn(struct worker *w)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n = (uint16_t)rte_ring_sc_dequeue_burst(w->in, (void **)burst, BURST, NULL);

	worker_burst(w, burst, n);
	worker_housekeeping(w); // no packet waits for it
	return n;
}
