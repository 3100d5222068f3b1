#include "harness.h"

#include <errno.h>

#include "vip_table.h"

enum { TCP = 6, UDP = 17 };

static const uint8_t A4[4] = {192, 0, 2, 1}, B4[4] = {192, 0, 2, 2};
static const uint8_t A6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};
static const uint8_t A4_AS_6[16] = {192, 0, 2, 1}; // an IPv6 address that begins like A4

static void a_packet_finds_its_port_before_any_port(void **state)
{
	static const struct {
		const char *what;
		const uint8_t *address;
		uint8_t length, protocol;
		uint16_t port;
		int32_t position;
	} rows[] = {
		{"exact port", A4, 4, TCP, 80, 0},
		{"another port goes to any", A4, 4, TCP, 81, 1},
		{"port 0 goes to any", A4, 4, TCP, 0, 1},
		{"highest port goes to any", A4, 4, TCP, 65535, 1},
		{"UDP on the port of a TCP vip", A4, 4, UDP, 80, 2},
		{"UDP has no any", A4, 4, UDP, 81, VIP_NONE},
		{"an address without vips", B4, 4, TCP, 80, VIP_NONE},
		{"IPv6", A6, 16, UDP, 53, 3},
		{"IPv6 on another port", A6, 16, UDP, 54, VIP_NONE},
		{"IPv6 that begins like an IPv4 vip", A4_AS_6, 16, TCP, 80, VIP_NONE},
		{"another protocol", A4, 4, 132, 80, VIP_NONE},
		{"protocol 0 is nobody's", A4, 4, 0, 0, VIP_NONE},
		{"protocol 0 is nobody's on any port", A4, 4, 0, 80, VIP_NONE},
	};
	struct vip_table t;

	(void)state;
	assert_int_equal(vip_table_create(&t, 4), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 80, 0), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 0, 1), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, UDP, 80, 2), 0);
	assert_int_equal(vip_table_add(&t, A6, 16, UDP, 53, 3), 0);
	for (size_t i = 0; i < COUNT(rows); i++)
		check_row(rows[i].what, vip_table_find(&t, rows[i].address, rows[i].length, rows[i].protocol,
						       rows[i].port) == rows[i].position);
	vip_table_free(&t);
}

static void nothing_but_the_whole_triple_matches(void **state)
{
	struct vip_table t; // of eight entries, so that every other triple meets the one vip soon

	(void)state;
	assert_int_equal(vip_table_create(&t, 1), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 80, 0), 0);
	for (uint32_t other = 0; other < 65536; other++) {
		uint8_t four[4] = {192, 0, (uint8_t)(other >> 8), (uint8_t)other}, six[16] = {192, 0, 2, 1};

		six[15] = (uint8_t)other;
		assert_int_equal(vip_table_find(&t, A4, 4, TCP, (uint16_t)other), other == 80 ? 0 : VIP_NONE);
		assert_int_equal(vip_table_find(&t, A4, 4, (uint8_t)other, 80),
				 (uint8_t)other == TCP ? 0 : VIP_NONE);
		assert_int_equal(vip_table_find(&t, four, 4, TCP, 80), other == 0x201 ? 0 : VIP_NONE);
		assert_int_equal(vip_table_owns(&t, four, 4), other == 0x201);
		assert_int_equal(vip_table_find(&t, six, 16, TCP, 80), VIP_NONE);
	}
	vip_table_free(&t);
}

static void a_triple_given_twice_is_refused_and_changes_nothing(void **state)
{
	struct vip_table t;

	(void)state;
	assert_int_equal(vip_table_create(&t, 3), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 80, 7), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 80, 8), -EEXIST);
	assert_int_equal(vip_table_find(&t, A4, 4, TCP, 80), 7);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 0, 9), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 0, 10), -EEXIST);
	assert_int_equal(vip_table_find(&t, A4, 4, TCP, 443), 9);
	vip_table_free(&t);
}

static void an_address_is_owned_when_any_vip_has_it(void **state)
{
	struct vip_table t;

	(void)state;
	assert_int_equal(vip_table_create(&t, 2), 0);
	assert_false(vip_table_owns(&t, A4, 4));
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 80, 0), 0);
	assert_true(vip_table_owns(&t, A4, 4));
	assert_false(vip_table_owns(&t, B4, 4));
	assert_false(vip_table_owns(&t, A4_AS_6, 16));
	assert_false(vip_table_owns(&t, A6, 16));
	assert_int_equal(vip_table_add(&t, A6, 16, UDP, 0, 1), 0);
	assert_true(vip_table_owns(&t, A6, 16));
	vip_table_free(&t);
}

static void an_address_is_served_when_any_vip_of_it_is(void **state)
{
	struct vip_table t;

	(void)state;
	assert_int_equal(vip_table_create(&t, 4), 0);
	assert_int_equal(vip_table_add(&t, A4, 4, TCP, 80, 0), 0);
	assert_int_equal(vip_table_add(&t, B4, 4, TCP, 80, 1), 0);
	assert_int_equal(vip_table_add(&t, A6, 16, UDP, 53, 2), 0);
	assert_false(vip_table_served(&t, A4, 4));
	assert_false(vip_table_served(&t, A6, 16));
	vip_table_mark_served(&t, A4, 4);
	vip_table_mark_served(&t, A4, 4);
	assert_true(vip_table_served(&t, A4, 4));
	assert_false(vip_table_served(&t, B4, 4));
	assert_false(vip_table_served(&t, A6, 16));
	assert_false(vip_table_served(&t, A4_AS_6, 16));
	assert_int_equal(vip_table_add(&t, A4, 4, UDP, 80, 3), 0);
	assert_true(vip_table_served(&t, A4, 4)); // a vip more takes nothing away
	assert_int_equal(vip_table_find(&t, A4, 4, UDP, 80), 3);
	vip_table_free(&t);
}

static void an_empty_table_has_nothing(void **state)
{
	struct vip_table t;

	(void)state;
	assert_int_equal(vip_table_create(&t, 0), 0);
	assert_int_equal(vip_table_find(&t, A4, 4, TCP, 80), VIP_NONE);
	assert_false(vip_table_owns(&t, A6, 16));
	vip_table_free(&t);
}

// Addresses next to each other, as in real configurations.
static void numbered_address(uint8_t address[16], uint8_t length, uint32_t i)
{
	memset(address, 0, 16);
	memcpy(address, length == 4 ? A4 : A6, length);
	address[length - 1] = (uint8_t)i;
	address[length - 2] = (uint8_t)(i / 256);
}

static void a_full_table_finds_all_its_vips_and_no_other(void **state)
{
	enum { VIPS = 16384 };
	struct vip_table t;
	uint8_t address[16];

	(void)state;
	assert_int_equal(vip_table_create(&t, VIPS), 0);
	for (uint32_t i = 0; i < VIPS; i++) {
		numbered_address(address, i % 2 ? 16 : 4, i / 4);
		assert_int_equal(vip_table_add(&t, address, i % 2 ? 16 : 4, i / 2 % 2 ? TCP : UDP,
					       (uint16_t)(1 + i % 1000), (int32_t)i),
				 0);
	}
	for (uint32_t i = 0; i < VIPS; i++) {
		uint8_t length = i % 2 ? 16 : 4, protocol = i / 2 % 2 ? TCP : UDP;

		numbered_address(address, length, i / 4);
		assert_int_equal(vip_table_find(&t, address, length, protocol, (uint16_t)(1 + i % 1000)), (int32_t)i);
		assert_int_equal(vip_table_find(&t, address, length, protocol, 1001), VIP_NONE);
		assert_true(vip_table_owns(&t, address, length));
	}
	for (uint32_t i = VIPS / 4; i < VIPS; i++) {
		numbered_address(address, i % 2 ? 16 : 4, i);
		assert_false(vip_table_owns(&t, address, i % 2 ? 16 : 4));
	}
	vip_table_free(&t);
}

static void addresses_are_read_to_their_length_only(void **state)
{
	uint8_t *four = at_end_of_block(A4, 4), *six = at_end_of_block(A6, 16);
	struct vip_table t;

	(void)state;
	assert_int_equal(vip_table_create(&t, 2), 0);
	assert_int_equal(vip_table_add(&t, four, 4, TCP, 80, 0), 0);
	assert_int_equal(vip_table_add(&t, six, 16, TCP, 80, 1), 0);
	assert_int_equal(vip_table_find(&t, four, 4, TCP, 80), 0);
	assert_int_equal(vip_table_find(&t, six, 16, TCP, 80), 1);
	assert_true(vip_table_owns(&t, four, 4) && vip_table_owns(&t, six, 16));
	vip_table_free(&t);
	free(four);
	free(six);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_finds_its_port_before_any_port),
		cmocka_unit_test(nothing_but_the_whole_triple_matches),
		cmocka_unit_test(a_triple_given_twice_is_refused_and_changes_nothing),
		cmocka_unit_test(an_address_is_owned_when_any_vip_has_it),
		cmocka_unit_test(an_address_is_served_when_any_vip_of_it_is),
		cmocka_unit_test(an_empty_table_has_nothing),
		cmocka_unit_test(a_full_table_finds_all_its_vips_and_no_other),
		cmocka_unit_test(addresses_are_read_to_their_length_only),
	};

	return cmocka_run_group_tests_name("vip_table", tests, NULL, NULL);
}
