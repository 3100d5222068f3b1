#include "harness.h"

#include "churn.h"
#include "conn_table.h"

enum { BACKENDS = 4, VIPS = 2, NOW = 1000, SIZE = 7, NEXT_SIZE = 5 };

static const struct conn_timeouts TIMEOUTS = {{10, 7200, 5, 60}};
static const uint16_t GENERATIONS[BACKENDS] = {1, 2, 0, 4}; // nobody has number 2

// Slots by tag modulo 7 and modulo 5; NOBODY stands for a backend that has no number yet.
enum { NOBODY = 0xffff };
static const uint16_t SLOTS[SIZE] = {0, 1, 0, 1, 0, 1, 3};
static const uint16_t NEXT[NEXT_SIZE] = {0, 1, NOBODY, 1, 0};
static const uint8_t ALL[1] = {0x0f}, ALL_BUT_3[1] = {0x07};

struct world {
	struct conn_table table;
	uint16_t position[CONN_MAX_VIPS];
	struct churn_vip vips[VIPS];
	struct churn churn;
};

static void begin(struct world *w, uint32_t entries)
{
	void *memory = aligned_alloc(64, conn_table_memory(entries));

	assert_non_null(memory);
	memset(memory, 0, conn_table_memory(entries));
	memset(w, 0, sizeof(*w));
	conn_table_init(&w->table, memory, entries, &TIMEOUTS);
	memset(w->position, 0xff, sizeof(w->position));
	w->position[5] = 0;
	w->position[CONN_MAX_VIPS - 1] = 1;
	for (int i = 0; i < VIPS; i++)
		w->vips[i] = (struct churn_vip){.now = {SLOTS, SIZE, ALL}, .next = {NEXT, NEXT_SIZE, ALL_BUT_3}};
	w->churn = (struct churn){GENERATIONS, BACKENDS, w->position, w->vips};
}

static void drop(struct world *w)
{
	free(w->table.buckets);
}

static void put(struct world *w, uint16_t vip, uint32_t tag, uint16_t backend, uint32_t seen)
{
	uint16_t generation = backend < BACKENDS && GENERATIONS[backend] != 0 ? GENERATIONS[backend] : 1;
	struct conn_entry e = {backend, generation, vip, CONN_DATAGRAM, 0};

	assert_true(conn_insert(&w->table, (uint64_t)tag << 32 | tag, &e, seen));
}

static bool counted(const struct churn_vip *v, uint64_t live, uint64_t at_risk, uint64_t moved, uint64_t lost)
{
	return v->live == live && v->at_risk == at_risk && v->moved == moved && v->lost == lost;
}

static void each_flow_is_what_its_backend_and_its_slots_make_of_it(void **state)
{
	static const struct {
		const char *what;
		uint32_t tag;
		uint16_t backend;
		uint64_t live, at_risk, moved, lost;
	} rows[] = {
		{"both tables choose its backend", 35, 0, 1, 0, 0, 0},
		{"the next table chooses another one", 1, 1, 1, 0, 0, 0},
		{"the slot goes to a backend without flows", 7, 0, 1, 1, 1, 0},
		{"it is away from its slot already, and stays so", 7, 1, 1, 1, 0, 0},
		{"it is away from its slot, and the next table leads back", 0, 0, 1, 0, 0, 0},
		{"its backend may not be used any more", 6, 3, 1, 1, 1, 1},
		{"likewise, of one that the table in force has left before", 0, 3, 1, 1, 1, 1},
		{"the highest tag", UINT32_MAX, 0, 1, 0, 0, 0},
		{"its backend's number is nobody's", 0, 2, 0, 0, 0, 0},
		{"its backend's number is beyond what there is", 0, 9, 0, 0, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct world w;

		begin(&w, 100);
		put(&w, 5, rows[i].tag, rows[i].backend, NOW);
		churn_count(&w.churn, &w.table, NOW);
		check_row(rows[i].what, counted(&w.vips[0], rows[i].live, rows[i].at_risk, rows[i].moved, rows[i].lost));
		check_row(rows[i].what, counted(&w.vips[1], 0, 0, 0, 0));
		drop(&w);
	}
}

static void a_flow_of_another_generation_counts_for_nothing(void **state)
{
	struct conn_entry e = {.backend = 1, .generation = 1, .vip = 5, .state = CONN_DATAGRAM};
	struct world w;

	(void)state;
	begin(&w, 100);
	assert_true(conn_insert(&w.table, 1, &e, NOW));
	churn_count(&w.churn, &w.table, NOW);
	assert_true(counted(&w.vips[0], 0, 0, 0, 0));
	drop(&w);
}

static void a_flow_that_its_vip_may_not_use_now_is_none(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 100);
	w.vips[0].now.usable = ALL_BUT_3;
	put(&w, 5, 6, 3, NOW);
	churn_count(&w.churn, &w.table, NOW);
	assert_true(counted(&w.vips[0], 0, 0, 0, 0));
	drop(&w);
}

static void flows_count_for_their_vip_and_those_of_no_vip_for_none(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 100);
	for (uint32_t tag = 0; tag < 12; tag++)
		put(&w, tag < 3 ? 5 : tag < 8 ? CONN_MAX_VIPS - 1 : 6, tag, 0, NOW);
	churn_count(&w.churn, &w.table, NOW);
	assert_int_equal(w.vips[0].live, 3);
	assert_int_equal(w.vips[1].live, 5);
	churn_count(&w.churn, &w.table, NOW); // another worker's: counts grow
	assert_int_equal(w.vips[1].live, 10);
	drop(&w);
}

static void a_flow_counts_until_it_has_expired_and_one_of_the_next_second_too(void **state)
{
	static const struct {
		const char *what;
		uint32_t seen, now;
		uint64_t live;
	} rows[] = {
		{"in the second of its timeout", NOW, NOW + 60, 1},
		{"a second later", NOW, NOW + 61, 0},
		{"its owner's clock has gone on since it was read", NOW + 1, NOW, 1},
		{"the clock has wrapped between", (1 << CONN_CLOCK_BITS) - 3, (1 << CONN_CLOCK_BITS) + 2, 1},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct world w;

		begin(&w, 100);
		put(&w, 5, 1, 1, rows[i].seen);
		churn_count(&w.churn, &w.table, rows[i].now);
		check_row(rows[i].what, w.vips[0].live == rows[i].live);
		drop(&w);
	}
}

static void a_vip_without_slots_leaves_all_flows_at_risk(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 100);
	w.vips[0].next.size = 0;
	for (uint32_t tag = 0; tag < 7; tag++)
		put(&w, 5, tag, 0, NOW); // three of them are where their slot is
	churn_count(&w.churn, &w.table, NOW);
	assert_true(counted(&w.vips[0], 7, 7, 3, 0));
	w.vips[1].now.size = 0;
	for (uint32_t tag = 10; tag < 15; tag++)
		put(&w, CONN_MAX_VIPS - 1, tag, 3, NOW);
	churn_count(&w.churn, &w.table, NOW);
	assert_true(counted(&w.vips[1], 5, 5, 5, 5));
	drop(&w);
}

static void flows_that_stand_away_from_their_bucket_are_counted_once(void **state)
{
	struct world w;

	(void)state;
	begin(&w, 40);
	for (uint32_t tag = 0; tag < 20; tag++) {
		struct conn_entry e = {0, 1, 5, CONN_DATAGRAM, 0};

		assert_true(conn_insert(&w.table, (uint64_t)tag << 32, &e, NOW)); // all of bucket 0
	}
	churn_count(&w.churn, &w.table, NOW);
	assert_int_equal(w.vips[0].live, 20);
	drop(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_flow_is_what_its_backend_and_its_slots_make_of_it),
		cmocka_unit_test(a_flow_of_another_generation_counts_for_nothing),
		cmocka_unit_test(a_flow_that_its_vip_may_not_use_now_is_none),
		cmocka_unit_test(flows_count_for_their_vip_and_those_of_no_vip_for_none),
		cmocka_unit_test(a_flow_counts_until_it_has_expired_and_one_of_the_next_second_too),
		cmocka_unit_test(a_vip_without_slots_leaves_all_flows_at_risk),
		cmocka_unit_test(flows_that_stand_away_from_their_bucket_are_counted_once),
	};

	return cmocka_run_group_tests_name("churn", tests, NULL, NULL);
}
