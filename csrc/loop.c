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
	LOOKS_PER_SECOND = 4,      // at the clock
};

typedef uint32_t turn_function(void *stage);

// A stage that reads the state and has a clock, on its lcore.
struct reader {
	struct dataplane *dataplane;
	uint32_t index;     // among the readers of the state: the workers or lanes, then steering
	uint32_t behind;    // seconds, of the stage's clock behind the machine's
	uint64_t period;    // in TSC cycles, between two looks at the clock
	uint64_t next_look; // TSC
};

// Seconds that this machine is up: the clock of running workers, which goes on from one process to the next.
static uint32_t seconds_up(void)
{
	struct timespec up;

	clock_gettime(CLOCK_BOOTTIME, &up);
	return (uint32_t)up.tv_sec;
}

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

// Between turns: nothing of the state is held. Returns whether it is time for a look at the clock.
static bool rest(struct reader *r)
{
	rte_rcu_qsbr_quiescent(r->dataplane->state.readers, r->index);
	if (rte_rdtsc() < r->next_look)
		return false;
	r->next_look = rte_rdtsc() + r->period;
	return true;
}

static uint32_t turn_steering(void *reader)
{
	struct reader *r = reader;
	struct steering *s = &r->dataplane->steering;
	uint32_t handled = steering_turn(s);

	if (rest(r)) {
		uint32_t now = seconds_up() - r->behind;

		if (now != s->chooser.matcher.now)
			choose_tick(&s->chooser, now);
	}
	return handled;
}

static uint32_t turn_muxing(void *stage)
{
	return muxing_turn(stage);
}

static uint32_t turn_worker(void *reader)
{
	struct reader *r = reader;
	struct worker *w = &r->dataplane->workers[r->index];
	uint32_t handled = worker_turn(w);

	if (rest(r)) {
		uint32_t now = seconds_up() - r->behind;

		if (now != w->now)
			worker_tick(w, now);
		conn_tick(&w->table, now);
	}
	return handled;
}

static uint32_t turn_lane(void *reader)
{
	struct reader *r = reader;
	struct lane *l = &r->dataplane->lanes[r->index];
	uint32_t handled = lane_turn(l);

	if (rest(r)) {
		uint32_t now = seconds_up() - r->behind;

		if (now != l->worker->now)
			lane_tick(l, now);
		conn_tick(&l->worker->table, now);
	}
	return handled;
}

static int run_reader(struct dataplane *d, uint32_t index, turn_function *turn, struct stage_stats *stats,
		      uint32_t clock)
{
	struct reader r = {.dataplane = d, .index = index, .period = rte_get_tsc_hz() / LOOKS_PER_SECOND};

	r.behind = seconds_up() - clock;
	rte_rcu_qsbr_thread_register(d->state.readers, index);
	rte_rcu_qsbr_thread_online(d->state.readers, index);
	run(d, turn, &r, stats);
	rte_rcu_qsbr_thread_offline(d->state.readers, index);
	rte_rcu_qsbr_thread_unregister(d->state.readers, index);
	return 0;
}

int loop_steering(void *dataplane)
{
	struct dataplane *d = dataplane;

	return run_reader(d, d->config.workers, turn_steering, &d->steering.stats,
			  d->steering.chooser.matcher.now);
}

int loop_muxing(void *dataplane)
{
	struct dataplane *d = dataplane;

	run(d, turn_muxing, &d->muxing, &d->muxing.stats);
	return 0;
}

// The place of this lcore among those of the stages.
static uint32_t place(const struct dataplane *d)
{
	uint32_t place = 0;

	while (d->lcores[place] != rte_lcore_id())
		place++;
	return place;
}

int loop_worker(void *dataplane)
{
	struct dataplane *d = dataplane;
	uint32_t index = place(d) - 1; // steering is the first

	return run_reader(d, index, turn_worker, &d->workers[index].stats, d->workers[index].now);
}

int loop_lane(void *dataplane)
{
	struct dataplane *d = dataplane;
	uint32_t index = place(d);

	return run_reader(d, index, turn_lane, &d->workers[index].stats, d->workers[index].now);
}
