#include "harness.h"

#include "fragment.h"

enum { TCP = 6, UDP = 17, OPTIONS = 60, NOW = 1000, PACKETS = 1 << 14, MODEL_DATAGRAMS = 64 };

static const struct hash_key KEY = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
static const struct fragment_flow FLOW = {0x1234, 0x5000, UDP}, OTHER_FLOW = {0x9999, 0x5000, UDP};
static char packets[PACKETS]; // packets are told apart by their addresses

// A table is too large for the stack; freed by the caller.
static struct fragment_table *table(uint16_t limit)
{
	struct fragment_table *t = malloc(sizeof(*t));

	assert_non_null(t);
	memset(t, 0xff, sizeof(*t));
	fragment_table_init(t, limit);
	return t;
}

// The `n`th of the datagrams of one bucket, none of them 0.
static uint64_t in_bucket(uint64_t bucket, uint64_t n)
{
	return bucket + 1 + n * FRAGMENT_BUCKETS;
}

static bool same_flow(const struct fragment_flow *a, const struct fragment_flow *b)
{
	return a->source_port == b->source_port && a->destination_port == b->destination_port &&
	       a->protocol == b->protocol;
}

static bool is_known(struct fragment_table *t, uint64_t datagram, uint32_t now)
{
	struct fragment_flow flow;
	enum fragment_verdict verdict = fragment_later(t, datagram, packets, now, &flow);

	if (verdict == FRAGMENT_WAITS)
		assert_ptr_equal(fragment_take(t, datagram), packets);
	return verdict == FRAGMENT_KNOWN;
}

// Like is_known(), but a datagram that is not known leaves no trace.
static bool is_there(const struct fragment_table *t, uint64_t datagram)
{
	const struct fragment_entry *bucket = t->entries[datagram % FRAGMENT_BUCKETS];
	bool there = false;

	for (int w = 0; w < FRAGMENT_WAYS; w++)
		there |= bucket[w].datagram == datagram && bucket[w].known;
	return there;
}

// -- what a datagram is

static const uint8_t FOUR[20] = {0x45, [12] = 198, 51, 100, 7, 192, 0, 2, 1};
static const uint8_t SIX[40] = {0x60, [8] = 0x20, 1, [23] = 7, [24] = 0x20, 1, [39] = 1};

static struct packet_view view_of(const uint8_t *ip, uint8_t protocol, uint32_t id)
{
	return (struct packet_view){
		.ip = ip, .version = ip[0] >> 4, .protocol = protocol, .fragment = true, .fragment_id = id};
}

static void a_datagram_is_addresses_id_and_in_ipv4_its_protocol(void **state)
{
	uint8_t source[20], destination[20], source6[40], destination6[40];

	(void)state;
	memcpy(source, FOUR, 20);
	memcpy(destination, FOUR, 20);
	memcpy(source6, SIX, 40);
	memcpy(destination6, SIX, 40);
	source[15] ^= 1;
	destination[19] ^= 1;
	source6[23] ^= 1;
	destination6[39] ^= 1;
	const struct {
		const char *what;
		struct packet_view one, other;
		bool same;
	} rows[] = {
		{"IPv4: all alike", view_of(FOUR, UDP, 7), view_of(FOUR, UDP, 7), true},
		{"IPv4: another id", view_of(FOUR, UDP, 7), view_of(FOUR, UDP, 8), false},
		{"IPv4: the last id and the first", view_of(FOUR, UDP, 0xffff), view_of(FOUR, UDP, 0), false},
		{"IPv4: another protocol", view_of(FOUR, UDP, 7), view_of(FOUR, TCP, 7), false},
		{"IPv4: another source", view_of(FOUR, UDP, 7), view_of(source, UDP, 7), false},
		{"IPv4: another destination", view_of(FOUR, UDP, 7), view_of(destination, UDP, 7), false},
		{"IPv6: all alike", view_of(SIX, UDP, 7), view_of(SIX, UDP, 7), true},
		{"IPv6: another id in its upper half", view_of(SIX, UDP, 7), view_of(SIX, UDP, 7 + (1 << 16)), false},
		{"IPv6: another id in its lower half", view_of(SIX, UDP, 7), view_of(SIX, UDP, 8), false},
		{"IPv6: the last id and the first", view_of(SIX, UDP, 0xffffffff), view_of(SIX, UDP, 0), false},
		{"IPv6: what comes next does not count", view_of(SIX, UDP, 7), view_of(SIX, OPTIONS, 7), true},
		{"IPv6: another source", view_of(SIX, UDP, 7), view_of(source6, UDP, 7), false},
		{"IPv6: another destination", view_of(SIX, UDP, 7), view_of(destination6, UDP, 7), false},
		{"IPv4 and IPv6", view_of(FOUR, UDP, 7), view_of(SIX, UDP, 7), false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t one = fragment_datagram(&KEY, &rows[i].one), other = fragment_datagram(&KEY, &rows[i].other);

		check_row(rows[i].what, (one == other) == rows[i].same);
	}
}

static void no_datagram_is_0_and_all_depend_on_the_key(void **state)
{
	struct hash_key key = KEY;

	(void)state;
	for (uint32_t id = 0; id < 65536; id++) {
		struct packet_view v = view_of(FOUR, UDP, id);

		key.k1 = KEY.k1 + 1;
		assert_true(fragment_datagram(&KEY, &v) != 0);
		assert_true(fragment_datagram(&KEY, &v) != fragment_datagram(&key, &v));
	}
}

// All nodes of a cluster must agree, also those of different versions: these numbers are for ever.
static void the_node_is_found_by_addresses_and_protocol(void **state)
{
	struct packet_view four = view_of(FOUR, UDP, 7), six = view_of(SIX, UDP, 7);
	struct packet_view again = view_of(FOUR, UDP, 8), options = view_of(SIX, OPTIONS, 9);
	struct packet_view tcp = view_of(FOUR, TCP, 7);

	(void)state;
	assert_int_equal(fragment_node_hash(&KEY, &four), 0x45c709e72cfd56d2);
	assert_int_equal(fragment_node_hash(&KEY, &six), 0x8c3a8e75a6d72fbd);
	assert_int_equal(fragment_node_hash(&KEY, &again), 0x45c709e72cfd56d2);
	assert_int_equal(fragment_node_hash(&KEY, &options), 0x8c3a8e75a6d72fbd);
	assert_true(fragment_node_hash(&KEY, &tcp) != 0x45c709e72cfd56d2);
}

// -- first and later ones

static void in_every_order_all_go_with_the_first(void **state)
{
	static const int orders[][4] = {{0, 1, 2, 3}, {1, 0, 2, 3}, {1, 2, 0, 3}, {1, 2, 3, 0}, {3, 2, 1, 0},
					{3, 1, 0, 2}, {2, 0, 3, 1}, {3, 0, 1, 2}}; // 0 is the first fragment

	(void)state;
	for (size_t i = 0; i < COUNT(orders); i++) {
		struct fragment_table *t = table(FRAGMENT_HELD);
		struct fragment_flow flow;
		int waiting = 0, told = 0;

		for (int k = 0; k < 4; k++) {
			int which = orders[i][k];

			if (which == 0) {
				fragment_first(t, 77, &FLOW, NOW);
				for (int early = 0; early < waiting; early++) // in the order in which they came
					assert_ptr_equal(fragment_take(t, 77), &packets[orders[i][early]]);
				told = 1;
			} else if (told) {
				assert_int_equal(fragment_later(t, 77, &packets[which], NOW, &flow), FRAGMENT_KNOWN);
				assert_true(same_flow(&flow, &FLOW));
			} else {
				assert_int_equal(fragment_later(t, 77, &packets[which], NOW, &flow), FRAGMENT_WAITS);
				waiting++;
			}
			assert_int_equal(t->held, told ? 0 : waiting);
		}
		assert_null(fragment_take(t, 77));
		free(t);
	}
}

static void another_datagrams_first_fragment_is_nothing_to_it(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	struct fragment_flow flow;

	(void)state;
	for (uint64_t other = 2; other < 4; other++) { // in another bucket, in the same one
		uint64_t d = other == 2 ? 2 : in_bucket(0, 1);

		assert_int_equal(fragment_later(t, d, packets, NOW, &flow), FRAGMENT_WAITS);
		fragment_first(t, in_bucket(0, 0), &FLOW, NOW);
		assert_null(fragment_take(t, in_bucket(0, 0)));
		assert_ptr_equal(fragment_take(t, d), packets);
	}
	free(t);
}

// An id that is used again soon, or a first fragment that was sent twice with other ports: the last one counts.
static void a_second_first_fragment_tells_anew(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	struct fragment_flow flow;

	(void)state;
	fragment_first(t, 77, &FLOW, NOW);
	fragment_first(t, 77, &OTHER_FLOW, NOW);
	assert_int_equal(fragment_later(t, 77, packets, NOW, &flow), FRAGMENT_KNOWN);
	assert_true(same_flow(&flow, &OTHER_FLOW));
	free(t);
}

// Within a burst those that wait are still there when the next fragment comes.
static void a_fragment_between_the_first_and_the_taking_is_known(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	struct fragment_flow flow;

	(void)state;
	fragment_later(t, 77, &packets[1], NOW, &flow);
	fragment_first(t, 77, &FLOW, NOW);
	assert_int_equal(fragment_later(t, 77, &packets[2], NOW, &flow), FRAGMENT_KNOWN);
	assert_int_equal(fragment_later(t, 77, &packets[3], NOW + 100, &flow), FRAGMENT_KNOWN);
	assert_ptr_equal(fragment_take(t, 77), &packets[1]);
	assert_null(fragment_take(t, 77));
	assert_true(is_known(t, 77, NOW + 104));
	free(t);
}

// -- the clock

static const uint32_t CLOCKS[] = {0, 1, NOW, 0x7ffffffe, UINT32_MAX - 6, UINT32_MAX - 1, UINT32_MAX};

static void a_flow_is_known_for_some_seconds_behind_the_last_fragment(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(CLOCKS); i++) {
		struct fragment_table *t = table(FRAGMENT_HELD);
		uint32_t now = CLOCKS[i];

		fragment_first(t, 77, &FLOW, now);
		now += FRAGMENT_KNOWN_SECONDS - 1;
		assert_true(is_known(t, 77, now)); // and for as long again
		now += FRAGMENT_KNOWN_SECONDS - 1;
		assert_true(is_known(t, 77, now));
		now += FRAGMENT_KNOWN_SECONDS;
		assert_false(is_known(t, 77, now));
		fragment_first(t, 77, &OTHER_FLOW, now);
		assert_true(is_known(t, 77, now));
		free(t);
	}
}

static void each_waits_for_its_own_time(void **state)
{
	struct fragment_flow flow;

	(void)state;
	for (size_t i = 0; i < COUNT(CLOCKS); i++) {
		struct fragment_table *t = table(FRAGMENT_HELD);
		uint32_t now = CLOCKS[i];

		assert_null(fragment_take_late(t, now, 0));
		fragment_later(t, 77, &packets[1], now, &flow);
		fragment_later(t, 78, &packets[2], now, &flow);
		fragment_later(t, 77, &packets[3], now + 1, &flow);
		assert_null(fragment_take_late(t, now + 1, FRAGMENT_HELD_SECONDS));
		assert_ptr_equal(fragment_take_late(t, now + 2, FRAGMENT_HELD_SECONDS), &packets[1]);
		assert_ptr_equal(fragment_take_late(t, now + 2, FRAGMENT_HELD_SECONDS), &packets[2]);
		assert_null(fragment_take_late(t, now + 2, FRAGMENT_HELD_SECONDS));
		assert_ptr_equal(fragment_take_late(t, now + 2, 0), &packets[3]); // at the end nothing stays
		assert_null(fragment_take_late(t, now + 2, 0));
		assert_int_equal(t->held, 0);
		free(t);
	}
}

// What was given up does not come later, and leaves its datagram as if nothing had been.
static void the_first_fragment_may_come_when_those_before_it_are_gone(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	struct fragment_flow flow;

	(void)state;
	fragment_later(t, 77, packets, NOW, &flow);
	assert_ptr_equal(fragment_take_late(t, NOW + 2, FRAGMENT_HELD_SECONDS), packets);
	fragment_first(t, 77, &FLOW, NOW + 2);
	assert_null(fragment_take(t, 77));
	assert_true(is_known(t, 77, NOW + 2));
	free(t);
}

// -- limits

static void a_newcomer_costs_the_oldest_its_place(void **state)
{
	static const uint16_t limits[] = {0, 1, 2, 100, FRAGMENT_HELD, FRAGMENT_HELD + 1, UINT16_MAX};

	(void)state;
	for (size_t i = 0; i < COUNT(limits); i++) {
		struct fragment_table *t = table(limits[i]);
		uint32_t most = limits[i] < FRAGMENT_HELD ? limits[i] : FRAGMENT_HELD;
		struct fragment_flow flow;

		for (uint32_t n = 0; n < 3 * FRAGMENT_HELD; n++) { // each in a bucket of its own
			assert_int_equal(fragment_later(t, n + 1, &packets[n], NOW, &flow), FRAGMENT_WAITS);
			assert_ptr_equal(fragment_take_excess(t), n < most ? NULL : &packets[n - most]);
			assert_null(fragment_take_excess(t));
			assert_int_equal(t->held, n < most ? n + 1 : most);
		}
		free(t);
	}
}

static void who_does_not_take_the_excess_keeps_the_next(void **state)
{
	struct fragment_table *t = table(1);
	struct fragment_flow flow;

	(void)state;
	assert_int_equal(fragment_later(t, 1, &packets[1], NOW, &flow), FRAGMENT_WAITS);
	assert_int_equal(fragment_later(t, 2, &packets[2], NOW, &flow), FRAGMENT_WAITS);
	assert_int_equal(fragment_later(t, 3, &packets[3], NOW, &flow), FRAGMENT_NO_ROOM);
	assert_ptr_equal(fragment_take_excess(t), &packets[1]);
	assert_null(fragment_take(t, 3));
	free(t);
}

static void a_table_that_was_not_made_holds_nothing(void **state)
{
	struct fragment_table *t = calloc(1, sizeof(*t));
	struct fragment_flow flow;

	(void)state;
	assert_int_equal(fragment_later(t, 77, packets, NOW, &flow), FRAGMENT_NO_ROOM);
	assert_null(fragment_take_excess(t));
	assert_null(fragment_take_late(t, NOW, 0));
	fragment_first(t, 77, &FLOW, NOW);
	assert_int_equal(fragment_later(t, 77, packets, NOW, &flow), FRAGMENT_KNOWN);
	free(t);
}

static void one_datagram_does_not_take_all_places(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	struct fragment_flow flow;

	(void)state;
	for (int i = 0; i < 2 * FRAGMENT_HELD_EACH; i++)
		assert_int_equal(fragment_later(t, 77, &packets[i], NOW, &flow),
				 i < FRAGMENT_HELD_EACH ? FRAGMENT_WAITS : FRAGMENT_NO_ROOM);
	assert_int_equal(fragment_later(t, 78, packets, NOW, &flow), FRAGMENT_WAITS);
	fragment_first(t, 77, &FLOW, NOW);
	for (int i = 0; i < FRAGMENT_HELD_EACH; i++)
		assert_ptr_equal(fragment_take(t, 77), &packets[i]);
	assert_null(fragment_take(t, 77));
	assert_int_equal(t->held, 1);
	free(t);
}

static void those_that_wait_leave_an_entry_for_a_first_fragment(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	struct fragment_flow flow;
	uint64_t n = 0;

	(void)state;
	for (; n < FRAGMENT_WAYS - 1; n++)
		assert_int_equal(fragment_later(t, in_bucket(5, n), &packets[n], NOW, &flow), FRAGMENT_WAITS);
	assert_int_equal(fragment_later(t, in_bucket(5, n), packets, NOW, &flow), FRAGMENT_NO_ROOM);
	for (uint64_t first = 10; first < 20; first++) { // each takes the one entry of the one before it
		fragment_first(t, in_bucket(5, first), &FLOW, NOW);
		assert_true(is_known(t, in_bucket(5, first), NOW));
		assert_int_equal(fragment_later(t, in_bucket(5, first - 1), packets, NOW, &flow), FRAGMENT_NO_ROOM);
	}
	fragment_first(t, in_bucket(5, 0), &FLOW, NOW); // room for another one once the packets of one have gone
	assert_ptr_equal(fragment_take(t, in_bucket(5, 0)), &packets[0]);
	assert_int_equal(fragment_later(t, in_bucket(5, n), &packets[9], NOW, &flow), FRAGMENT_WAITS);
	for (uint64_t i = 1; i < FRAGMENT_WAYS - 1; i++)
		assert_ptr_equal(fragment_take(t, in_bucket(5, i)), &packets[i]);
	assert_ptr_equal(fragment_take(t, in_bucket(5, n)), &packets[9]);
	free(t);
}

// An entry is free again when its packets have gone without their first fragment, in whatever way.
static void given_up_datagrams_leave_their_entries(void **state)
{
	struct fragment_table *t = table(2);
	struct fragment_flow flow;

	(void)state;
	for (uint32_t n = 0; n < 100; n++) {
		assert_int_equal(fragment_later(t, in_bucket(5, n), &packets[n], NOW + n, &flow), FRAGMENT_WAITS);
		assert_ptr_equal(fragment_take_excess(t), n < 2 ? NULL : &packets[n - 2]);
	}
	while (fragment_take_late(t, NOW, 0) != NULL)
		;
	for (uint64_t n = 0; n < FRAGMENT_WAYS; n++)
		assert_int_equal(t->entries[6][n].datagram, 0);
	free(t);
}

static void the_longest_unused_flow_is_forgotten_first(void **state)
{
	(void)state;
	for (uint64_t oldest = 0; oldest < FRAGMENT_WAYS; oldest++) {
		struct fragment_table *t = table(FRAGMENT_HELD);

		for (uint64_t n = 0; n < FRAGMENT_WAYS; n++)
			fragment_first(t, in_bucket(5, n), &FLOW, n == oldest ? NOW : NOW + 1);
		fragment_first(t, in_bucket(5, 99), &FLOW, NOW + 2);
		for (uint64_t n = 0; n < FRAGMENT_WAYS; n++)
			assert_int_equal(is_there(t, in_bucket(5, n)), n != oldest);
		assert_true(is_there(t, in_bucket(5, 99)));
		free(t);
	}
}

// Of flows of the same second it must not be the newest: its fragments are on their way.
static void in_a_flood_the_newest_flow_is_not_the_next_to_be_forgotten(void **state)
{
	struct fragment_table *t = table(FRAGMENT_HELD);
	uint64_t seed = 1;
	int kept = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		uint64_t mine = in_bucket((uint64_t)i, next_random(&seed) >> 20);

		for (int junk = 0; junk < 2 * FRAGMENT_WAYS; junk++)
			fragment_first(t, in_bucket((uint64_t)i, next_random(&seed) >> 20), &FLOW, NOW);
		fragment_first(t, mine, &FLOW, NOW);
		fragment_first(t, in_bucket((uint64_t)i, next_random(&seed) >> 20), &FLOW, NOW);
		kept += is_known(t, mine, NOW);
	}
	assert_in_range(kept, 700, 800); // three of four entries are another one's
	free(t);
}

// -- whatever comes

struct model {
	struct fragment_table *t;
	uint64_t seed;
	uint32_t now;
	uint32_t given;                // packets that the table was offered
	uint64_t owner[PACKETS];       // datagram of a packet that waits; 0: it is not in the table
	uint32_t since[PACKETS];
	uint32_t waiting;
	bool told[MODEL_DATAGRAMS];    // a first fragment came
	uint32_t seen[MODEL_DATAGRAMS]; // when it did, or one that was known
	struct fragment_flow flow[MODEL_DATAGRAMS]; // what the first one told last
};

// Sixteen of each of four buckets.
static uint64_t model_datagram(uint64_t n)
{
	return in_bucket(n / 16, n % 16);
}

// The oldest packet that waits, of one datagram or (0) of all; `given` when there is none.
static uint32_t oldest(const struct model *m, uint64_t datagram)
{
	uint32_t i = 0;

	while (i < m->given && (m->owner[i] == 0 || (datagram != 0 && m->owner[i] != datagram)))
		i++;
	return i;
}

static void gone(struct model *m, const void *packet, uint64_t datagram)
{
	uint32_t expected = oldest(m, datagram);

	assert_true(expected < m->given);
	assert_ptr_equal(packet, &packets[expected]);
	m->owner[expected] = 0;
	m->waiting--;
}

static void model_later(struct model *m, uint64_t n)
{
	struct fragment_flow flow;
	uint32_t i = m->given++;
	const void *excess;

	switch (fragment_later(m->t, model_datagram(n), &packets[i], m->now, &flow)) {
	case FRAGMENT_KNOWN:
		assert_true(m->told[n] && m->now - m->seen[n] < FRAGMENT_KNOWN_SECONDS);
		assert_true(same_flow(&flow, &m->flow[n]));
		m->seen[n] = m->now;
		break;
	case FRAGMENT_WAITS:
		m->owner[i] = model_datagram(n);
		m->since[i] = m->now;
		m->waiting++;
		excess = fragment_take_excess(m->t);
		if (excess != NULL)
			gone(m, excess, 0);
		break;
	case FRAGMENT_NO_ROOM:
		break;
	}
}

static void model_first(struct model *m, uint64_t n)
{
	const void *packet;

	m->flow[n] = (struct fragment_flow){(uint16_t)next_random(&m->seed), (uint16_t)n, UDP};
	m->told[n] = true;
	m->seen[n] = m->now;
	fragment_first(m->t, model_datagram(n), &m->flow[n], m->now);
	while ((packet = fragment_take(m->t, model_datagram(n))) != NULL)
		gone(m, packet, model_datagram(n));
	assert_int_equal(oldest(m, model_datagram(n)), m->given);
}

static void model_tick(struct model *m)
{
	const void *packet;
	uint32_t next;

	m->now++;
	while ((packet = fragment_take_late(m->t, m->now, FRAGMENT_HELD_SECONDS)) != NULL)
		gone(m, packet, 0);
	next = oldest(m, 0);
	assert_true(next == m->given || m->now - m->since[next] < FRAGMENT_HELD_SECONDS);
}

// Every packet is refused, or taken out once and in its turn, or counted as held; and flows are never another's.
static void no_packet_is_lost_doubled_or_forgotten(void **state)
{
	static const uint16_t limits[] = {0, 1, 5, 40, 200, FRAGMENT_HELD};
	static struct model m;
	const void *packet;

	(void)state;
	for (size_t run = 0; run < 4 * COUNT(limits); run++) {
		memset(&m, 0, sizeof(m));
		m.t = table(limits[run / 4]);
		m.seed = run + 1;
		m.now = run % 2 ? UINT32_MAX - 20 : NOW;
		while (m.given < PACKETS / 4) {
			uint32_t dice = random_below(&m.seed, 1000), n = random_below(&m.seed, MODEL_DATAGRAMS);

			if (dice < 5)
				model_tick(&m);
			else if (dice < (run % 4 < 2 ? 20u : 300u))
				model_first(&m, n);
			else
				model_later(&m, n);
			assert_int_equal(m.t->held, m.waiting);
			assert_true(m.waiting <= limits[run / 4]);
		}
		while ((packet = fragment_take_late(m.t, m.now, 0)) != NULL)
			gone(&m, packet, 0);
		assert_int_equal(m.waiting, 0);
		assert_int_equal(m.t->held, 0);
		free(m.t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_datagram_is_addresses_id_and_in_ipv4_its_protocol),
		cmocka_unit_test(no_datagram_is_0_and_all_depend_on_the_key),
		cmocka_unit_test(the_node_is_found_by_addresses_and_protocol),
		cmocka_unit_test(in_every_order_all_go_with_the_first),
		cmocka_unit_test(another_datagrams_first_fragment_is_nothing_to_it),
		cmocka_unit_test(a_second_first_fragment_tells_anew),
		cmocka_unit_test(a_fragment_between_the_first_and_the_taking_is_known),
		cmocka_unit_test(a_flow_is_known_for_some_seconds_behind_the_last_fragment),
		cmocka_unit_test(each_waits_for_its_own_time),
		cmocka_unit_test(the_first_fragment_may_come_when_those_before_it_are_gone),
		cmocka_unit_test(a_newcomer_costs_the_oldest_its_place),
		cmocka_unit_test(who_does_not_take_the_excess_keeps_the_next),
		cmocka_unit_test(a_table_that_was_not_made_holds_nothing),
		cmocka_unit_test(one_datagram_does_not_take_all_places),
		cmocka_unit_test(those_that_wait_leave_an_entry_for_a_first_fragment),
		cmocka_unit_test(given_up_datagrams_leave_their_entries),
		cmocka_unit_test(the_longest_unused_flow_is_forgotten_first),
		cmocka_unit_test(in_a_flood_the_newest_flow_is_not_the_next_to_be_forgotten),
		cmocka_unit_test(no_packet_is_lost_doubled_or_forgotten),
	};

	return cmocka_run_group_tests_name("fragment", tests, NULL, NULL);
}
