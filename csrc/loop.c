#include "loop.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_pause.h>

#include "road.h"

enum {
	IDLE_TURNS = 16,           // turns without a packet before a stage that may sleep does
	SLEEP_FIRST_NS = 20000,    // doubled while nothing comes
	SLEEP_LONGEST_NS = 320000, // the delay that the first packet after a pause may see, per stage
	TIMER_SLACK_NS = 1000,     // the default of 50 us would more than double a short sleep
};

typedef uint32_t turn_function(void *stage);

// A worker on its lcore: what its turns need beside the worker itself.
struct worker_on_lcore {
	struct worker *worker;
	struct rte_rcu_qsbr *readers;
	uint32_t index;
	uint64_t second;      // in TSC cycles
	uint64_t next_second; // TSC at which the worker's clock moves
};

// What a stage does when there was nothing to do in so many turns.
static void idle(enum idle_policy policy, uint32_t turns)
{
	struct timespec pause = {0};
	uint32_t doublings = (turns - IDLE_TURNS) / IDLE_TURNS;

	if (policy == IDLE_SPIN || turns < IDLE_TURNS) {
		rte_pause();
	} else if (policy == IDLE_YIELD) {
		sched_yield();
	} else {
		pause.tv_nsec = doublings < 4 ? SLEEP_FIRST_NS << doublings : SLEEP_LONGEST_NS;
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	}
}

static void run(const struct dataplane *d, turn_function *turn, void *stage, struct stage_stats *stats)
{
	uint32_t idle_turns = 0;

	prctl(PR_SET_TIMERSLACK, (unsigned long)TIMER_SLACK_NS);
	while (!__atomic_load_n(&d->stop, __ATOMIC_RELAXED)) {
		uint32_t handled = turn(stage);

		count(&stats->turns, 1);
		idle_turns = handled > 0 ? 0 : idle_turns + 1;
		if (handled == 0)
			idle(d->config.idle, idle_turns);
	}
}

static uint32_t turn_steering(void *stage)
{
	return steering_turn(stage);
}

static uint32_t turn_muxing(void *stage)
{
	return muxing_turn(stage);
}

static uint32_t turn_worker(void *stage)
{
	struct worker_on_lcore *l = stage;
	uint32_t handled = worker_turn(l->worker);

	rte_rcu_qsbr_quiescent(l->readers, l->index); // nothing of the state is held between turns
	for (; rte_rdtsc() >= l->next_second; l->next_second += l->second)
		worker_tick(l->worker, l->worker->now + 1);
	return handled;
}

int loop_steering(void *dataplane)
{
	struct dataplane *d = dataplane;

	run(d, turn_steering, &d->steering, &d->steering.stats);
	return 0;
}

int loop_muxing(void *dataplane)
{
	struct dataplane *d = dataplane;

	run(d, turn_muxing, &d->muxing, &d->muxing.stats);
	return 0;
}

int loop_worker(void *dataplane)
{
	struct dataplane *d = dataplane;
	struct worker_on_lcore l = {.readers = d->state.readers, .second = rte_get_tsc_hz()};

	while (d->lcores[1 + l.index] != rte_lcore_id())
		l.index++;
	l.worker = &d->workers[l.index];
	l.next_second = rte_rdtsc() + l.second;
	rte_rcu_qsbr_thread_register(l.readers, l.index);
	rte_rcu_qsbr_thread_online(l.readers, l.index);
	run(d, turn_worker, &l, &l.worker->stats);
	rte_rcu_qsbr_thread_offline(l.readers, l.index);
	rte_rcu_qsbr_thread_unregister(l.readers, l.index);
	return 0;
}
