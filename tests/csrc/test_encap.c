#include "harness.h"

#include "encap.h"

static const uint8_t NODE4[4] = {10, 0, 2, 2}, BACKEND4[4] = {10, 0, 3, 2};
static const uint8_t NODE6[16] = {0xfd, 0, 0, 2, [15] = 2}, BACKEND6[16] = {0xfd, 0, 0, 3, [15] = 2};

static struct packet_view inner_of(uint8_t version, uint32_t length)
{
	return (struct packet_view){
		.version = version, .ip_length = length, .traffic_class = 0xb8, .dont_fragment = true, .ttl = 7};
}

static struct encap_template template_of(int outer)
{
	struct encap_template t;

	memset(&t, 0xff, sizeof(t));
	if (outer == 4)
		encap_template_ipv4(&t, NODE4, BACKEND4);
	else
		encap_template_ipv6(&t, NODE6, BACKEND6);
	return t;
}

// The outer headers, written into a block that ends behind them and holds something else before. Freed by the caller.
static uint8_t *written(const struct encap_template *t, const struct packet_view *inner, uint16_t id, uint32_t label)
{
	uint8_t dirt[ENCAP_IPV6];
	uint8_t *outer;

	memset(dirt, 0xff, sizeof(dirt));
	outer = at_end_of_block(dirt, t->length);
	encap_write(t, outer, inner, id, label);
	return outer;
}

static void every_byte_of_the_four_combinations(void **state)
{
	static const struct {
		const char *what;
		int outer;
		uint8_t inner;
		uint8_t length;
		uint8_t header[ENCAP_IPV6];
	} rows[] = {
		// 45b8 + 0040 + 0000 + 4000 + 402f + 0a00 + 0202 + 0a00 + 0302 = df2b, and the checksum is its complement.
		{"IPv4 in IPv4", 4, 4, 24, {0x45, 0xb8, 0x00, 0x40, 0x00, 0x00, 0x40, 0x00, 64, 47, 0x20, 0xd4, 10, 0,
					    2, 2, 10, 0, 3, 2, 0, 0, 0x08, 0x00}},
		{"IPv6 in IPv4", 4, 6, 24, {0x45, 0xb8, 0x00, 0x40, 0x00, 0x00, 0x40, 0x00, 64, 47, 0x20, 0xd4, 10, 0,
					    2, 2, 10, 0, 3, 2, 0, 0, 0x86, 0xdd}},
		{"IPv4 in IPv6", 6, 4, 44, {0x6b, 0x8a, 0xbc, 0xde, 0x00, 0x2c, 47, 64, 0xfd, 0, 0, 2, 0, 0, 0, 0, 0,
					    0, 0, 0, 0, 0, 0, 2, 0xfd, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0,
					    0, 0x08, 0x00}},
		{"IPv6 in IPv6", 6, 6, 44, {0x6b, 0x8a, 0xbc, 0xde, 0x00, 0x2c, 47, 64, 0xfd, 0, 0, 2, 0, 0, 0, 0, 0,
					    0, 0, 0, 0, 0, 0, 2, 0xfd, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0,
					    0, 0x86, 0xdd}},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct encap_template t = template_of(rows[i].outer);
		struct packet_view inner = inner_of(rows[i].inner, 40);
		uint8_t *outer = written(&t, &inner, 0x1234, 0xabcde);

		check_row(rows[i].what, t.length == rows[i].length);
		check_row(rows[i].what, memcmp(outer, rows[i].header, t.length) == 0);
		free(outer);
	}
}

static void the_outer_checksum_is_right_for_every_class_and_length(void **state)
{
	static const uint32_t lengths[] = {20, 21, 40, 576, 1476, 1500, 8976, 65511};
	static const uint16_t ids[] = {0, 1, 0x7fff, 0x8000, 0xffff};
	struct encap_template t = template_of(4);

	(void)state;
	for (uint32_t class = 0; class < 256; class++)
		for (size_t i = 0; i < COUNT(lengths) * COUNT(ids) * 2; i++) {
			struct packet_view inner = inner_of(4, lengths[i / 2 % COUNT(lengths)]);
			uint8_t *outer;

			inner.traffic_class = (uint8_t)class;
			inner.dont_fragment = i % 2;
			outer = written(&t, &inner, ids[i / 2 / COUNT(lengths)], 0);
			assert_int_equal(internet_checksum(outer, 20), 0);
			assert_int_equal(be16(outer + 2), inner.ip_length + 24);
			free(outer);
		}
}

static void the_outer_checksum_is_right_for_all_addresses(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct packet_view inner = inner_of(4, 20 + random_below(&seed, 65492));
		struct encap_template t;
		uint8_t addresses[8], *outer;

		for (int k = 0; k < 8; k++)
			addresses[k] = i % 8 == 0 ? 0xff : (uint8_t)next_random(&seed);
		inner.traffic_class = (uint8_t)next_random(&seed);
		inner.dont_fragment = next_random(&seed) & 1;
		encap_template_ipv4(&t, addresses, addresses + 4);
		outer = written(&t, &inner, (uint16_t)next_random(&seed), 0);
		assert_int_equal(internet_checksum(outer, 20), 0);
		assert_memory_equal(outer + 12, addresses, 8);
		free(outer);
	}
}

// Sums that carry twice when they are folded are rare: every id and every end of an address.
static void the_outer_checksum_is_right_for_every_carry(void **state)
{
	struct packet_view inner = inner_of(4, 1456);
	uint8_t addresses[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint8_t outer[ENCAP_IPV4];

	(void)state;
	inner.dont_fragment = false;
	for (uint32_t i = 0; i < 65536; i++) {
		struct encap_template t = template_of(4);

		encap_write(&t, outer, &inner, (uint16_t)i, 0);
		assert_int_equal(internet_checksum(outer, 20), 0);
		put_be16(addresses + 6, i);
		encap_template_ipv4(&t, addresses, addresses + 4);
		encap_write(&t, outer, &inner, 0, 0);
		assert_int_equal(internet_checksum(outer, 20), 0);
	}
}

static void the_id_is_used_only_where_fragmentation_is_allowed(void **state)
{
	struct encap_template t = template_of(4);
	struct packet_view inner = inner_of(4, 40);
	uint8_t *outer;

	(void)state;
	outer = written(&t, &inner, 0xbeef, 0);
	assert_int_equal(be16(outer + 4), 0);
	assert_int_equal(be16(outer + 6), 0x4000);
	free(outer);
	inner.dont_fragment = false;
	outer = written(&t, &inner, 0xbeef, 0);
	assert_int_equal(be16(outer + 4), 0xbeef);
	assert_int_equal(be16(outer + 6), 0);
	free(outer);
}

static void dscp_and_ecn_are_copied(void **state)
{
	(void)state;
	for (uint32_t class = 0; class < 256; class++) {
		struct encap_template four = template_of(4), six = template_of(6);
		struct packet_view inner = inner_of(class % 2 ? 4 : 6, 40);
		uint8_t *outer;

		inner.traffic_class = (uint8_t)class;
		outer = written(&four, &inner, 0, 0xfffff);
		assert_int_equal(outer[1], class);
		free(outer);
		outer = written(&six, &inner, 0, 0xfffff);
		assert_int_equal(be16(outer) >> 4, 0x600 | class);
		free(outer);
	}
}

static void the_flow_label_is_twenty_bits(void **state)
{
	static const uint32_t labels[][2] = {{0, 0}, {1, 1}, {0xfffff, 0xfffff}, {0x12345678, 0x45678}, {0xfff00000, 0}};

	(void)state;
	for (size_t i = 0; i < COUNT(labels); i++) {
		struct encap_template t = template_of(6);
		struct packet_view inner = inner_of(6, 40);
		uint8_t *outer = written(&t, &inner, 0, labels[i][0]);

		assert_int_equal((uint32_t)(outer[1] & 15) << 16 | be16(outer + 2), labels[i][1]);
		assert_int_equal(outer[0], 0x6b);
		assert_int_equal(outer[1] >> 4, 8);
		free(outer);
	}
}

static void the_outer_ipv6_length_covers_gre_and_the_inner_packet(void **state)
{
	static const uint32_t lengths[] = {20, 40, 1280, 1456, 65531};

	(void)state;
	for (size_t i = 0; i < COUNT(lengths); i++) {
		struct encap_template t = template_of(6);
		struct packet_view inner = inner_of(4, lengths[i]);
		uint8_t *outer = written(&t, &inner, 0, 0);

		assert_int_equal(be16(outer + 4), lengths[i] + 4);
		free(outer);
	}
}

static void a_template_is_not_changed_by_use(void **state)
{
	(void)state;
	for (int outer = 4; outer <= 6; outer += 2) {
		struct encap_template t = template_of(outer), before = t;
		struct packet_view inner = inner_of(4, 1000);

		free(written(&t, &inner, 1, 2));
		assert_memory_equal(&t, &before, sizeof(t));
	}
}

// -- the extra hop between nodes of a cluster

static void a_marked_template_differs_in_the_recursion_control_alone(void **state)
{
	(void)state;
	for (int outer = 4; outer <= 6; outer += 2)
		for (uint8_t version = 4; version <= 6; version += 2) {
			struct encap_template plain = template_of(outer), marked = plain;
			struct packet_view inner = inner_of(version, 1400);
			uint8_t *expected = written(&plain, &inner, 1, 2), *found;

			encap_template_mark(&marked);
			found = written(&marked, &inner, 1, 2);
			assert_int_equal(expected[plain.length - 4], 0);
			expected[plain.length - 4] = 0x01; // RFC 1701: bits 5 to 7 of the GRE header
			assert_memory_equal(found, expected, plain.length);
			free(expected);
			free(found);
		}
}

static void the_destination_of_a_template_is_told(void **state)
{
	struct encap_template four = template_of(4), six = template_of(6);

	(void)state;
	assert_memory_equal(encap_destination(&four), BACKEND4, 4);
	assert_memory_equal(encap_destination(&six), BACKEND6, 16);
}

// The outer packet as it came in: `l4` bytes of IP header, then GRE, then the inner packet.
struct arrived {
	const char *what;
	uint8_t gre[4];
	uint8_t version, protocol;
	bool fragment;
	uint16_t l4, ip_length, available;
	uint16_t inner, ethertype; // expected; 0: not marked
};

static uint32_t marked(const struct arrived *row, uint16_t *ethertype)
{
	uint8_t bytes[256], *ip;
	struct packet_view view = {.version = row->version,
				   .protocol = row->protocol,
				   .fragment = row->fragment,
				   .l4 = row->l4,
				   .ip_length = row->ip_length,
				   .available = row->available};
	uint32_t inner;

	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes + row->l4, row->gre, sizeof(row->gre));
	view.ip = ip = at_end_of_block(bytes, row->available);
	inner = encap_marked(&view, ethertype);
	free(ip);
	return inner;
}

static void only_what_is_marked_exactly_so_is_marked(void **state)
{
	static const struct arrived rows[] = {
		{"IPv4 in IPv4", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 100, 24, 0x0800},
		{"IPv6 in IPv4", {1, 0, 0x86, 0xdd}, 4, 47, false, 20, 100, 100, 24, 0x86dd},
		{"IPv4 in IPv6", {1, 0, 0x08, 0x00}, 6, 47, false, 40, 100, 100, 44, 0x0800},
		{"IPv6 in IPv6", {1, 0, 0x86, 0xdd}, 6, 47, false, 40, 100, 100, 44, 0x86dd},
		{"behind IPv4 options", {1, 0, 0x08, 0x00}, 4, 47, false, 60, 100, 100, 64, 0x0800},
		{"behind extension headers", {1, 0, 0x08, 0x00}, 6, 47, false, 56, 100, 100, 60, 0x0800},
		{"with padding behind it", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 40, 60, 24, 0x0800},
		{"in two buffers", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 24, 24, 0x0800},
		{"with nothing inside", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 24, 24, 24, 0x0800},
		{"not marked", {0, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 100, 0, 0},
		{"another recursion", {2, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 100, 0, 0},
		{"recursion 7", {7, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 100, 0, 0},
		{"ARP inside", {1, 0, 0x08, 0x06}, 4, 47, false, 20, 100, 100, 0, 0},
		{"a VLAN tag inside", {1, 0, 0x81, 0x00}, 4, 47, false, 20, 100, 100, 0, 0},
		{"nothing known inside", {1, 0, 0x00, 0x00}, 4, 47, false, 20, 100, 100, 0, 0},
		{"not GRE", {1, 0, 0x08, 0x00}, 4, 4, false, 20, 100, 100, 0, 0},
		{"a fragment itself", {1, 0, 0x08, 0x00}, 4, 47, true, 20, 100, 100, 0, 0},
		{"GRE cut by the IP length", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 23, 100, 0, 0},
		{"GRE cut by the buffer", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 23, 0, 0},
		{"no GRE at all", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 20, 20, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint16_t ethertype = 0;
		uint32_t inner = marked(&rows[i], &ethertype);

		check_row(rows[i].what, inner == rows[i].inner);
		check_row(rows[i].what, inner == 0 || ethertype == rows[i].ethertype);
	}
}

// Checksum, key, sequence number, routing, any other recursion, reserved bits, any version.
static void one_other_bit_and_it_is_not_marked(void **state)
{
	(void)state;
	for (int bit = 0; bit < 16; bit++) {
		struct arrived row = {"", {1, 0, 0x08, 0x00}, 4, 47, false, 20, 100, 100, 0, 0};
		uint16_t ethertype;

		row.gre[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		assert_int_equal(marked(&row, &ethertype), 0);
	}
}

// RFC 6040, figure 4, as far as the outer packet is CE; else nothing changes.
static void congestion_between_nodes_reaches_the_inner_packet(void **state)
{
	(void)state;
	for (uint32_t outer = 0; outer < 256; outer++)
		for (uint32_t inner = 0; inner < 256; inner++)
			for (uint8_t version = 4; version <= 6; version += 2) {
				uint8_t ip[40] = {version == 4 ? 0x45 : 0x60 | (uint8_t)(inner >> 4),
						  (uint8_t)(version == 4 ? inner : inner << 4), 0x12, 0x34, 0x56, 0x78};
				uint8_t before[40];
				bool marked = (outer & 3) == 3, kept;
				uint32_t expected = marked ? inner | 3 : inner, found;

				put_be16(ip + 10, 0);
				put_be16(ip + 10, internet_checksum(ip, 20));
				memcpy(before, ip, sizeof(ip));
				kept = encap_carry_congestion((uint8_t)outer, ip);
				assert_int_equal(kept, !marked || (inner & 3) != 0);
				if (!kept) {
					assert_memory_equal(ip, before, sizeof(ip));
					continue;
				}
				found = version == 4 ? ip[1] : (uint32_t)(ip[0] << 4 | ip[1] >> 4) & 0xff;
				assert_int_equal(found, expected);
				assert_true(version == 6 || internet_checksum(ip, 20) == 0);
				ip[1] = before[1];
				memcpy(ip + 10, before + 10, 2);
				assert_memory_equal(ip, before, sizeof(ip));
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_of_the_four_combinations),
		cmocka_unit_test(the_outer_checksum_is_right_for_every_class_and_length),
		cmocka_unit_test(the_outer_checksum_is_right_for_all_addresses),
		cmocka_unit_test(the_outer_checksum_is_right_for_every_carry),
		cmocka_unit_test(the_id_is_used_only_where_fragmentation_is_allowed),
		cmocka_unit_test(dscp_and_ecn_are_copied),
		cmocka_unit_test(the_flow_label_is_twenty_bits),
		cmocka_unit_test(the_outer_ipv6_length_covers_gre_and_the_inner_packet),
		cmocka_unit_test(a_template_is_not_changed_by_use),
		cmocka_unit_test(a_marked_template_differs_in_the_recursion_control_alone),
		cmocka_unit_test(the_destination_of_a_template_is_told),
		cmocka_unit_test(only_what_is_marked_exactly_so_is_marked),
		cmocka_unit_test(one_other_bit_and_it_is_not_marked),
		cmocka_unit_test(congestion_between_nodes_reaches_the_inner_packet),
	};

	return cmocka_run_group_tests_name("encap", tests, NULL, NULL);
}
