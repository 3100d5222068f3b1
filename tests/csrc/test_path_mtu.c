#include "harness.h"

#include "icmp.h"
#include "path_mtu.h"

enum { ETH = 14, IPV4 = 20, IPV6 = 40, FRAGMENT = 8, GRE = 4, MAX_FRAME = 2048 };

static const uint8_t NODE4[4] = {10, 0, 2, 2}, BACKEND4[4] = {10, 0, 3, 2}, ROUTER4[4] = {10, 0, 9, 1};
static const uint8_t NODE6[16] = {0xfd, 0, 0, 2, [15] = 2}, BACKEND6[16] = {0xfd, 0, 0, 3, [15] = 2};
static const uint8_t ROUTER6[16] = {0xfd, 0, 0, 9, [15] = 1};

// A too-big error for a tunnel source. Rows change what they are about, then finish() makes lengths and sums right.
struct report {
	uint8_t version;
	uint32_t quoted; // bytes of the quote that are there
	uint8_t frame[MAX_FRAME];
};

static uint32_t header_of(const struct report *r)
{
	return r->version == 4 ? IPV4 : IPV6;
}

static uint8_t *icmp_of(struct report *r)
{
	return r->frame + ETH + header_of(r);
}

static uint8_t *quote_of(struct report *r)
{
	return icmp_of(r) + ICMP_HEADER;
}

static uint32_t length_of(const struct report *r)
{
	return ETH + header_of(r) + ICMP_HEADER + r->quoted;
}

static void checksums(struct report *r)
{
	uint8_t *ip = r->frame + ETH, *icmp = icmp_of(r);
	uint32_t bytes = ICMP_HEADER + r->quoted;
	uint8_t pseudo[MAX_FRAME] = {0};

	put_be16(icmp + 2, 0);
	if (r->version == 4) {
		put_be16(ip + 2, IPV4 + bytes);
		put_be16(ip + 10, 0);
		put_be16(ip + 10, internet_checksum(ip, IPV4));
		put_be16(icmp + 2, internet_checksum(icmp, bytes));
		return;
	}
	put_be16(ip + 4, bytes);
	memcpy(pseudo, ip + 8, 32);
	put_be16(pseudo + 34, bytes);
	pseudo[39] = 58;
	memcpy(pseudo + 40, icmp, bytes);
	put_be16(icmp + 2, internet_checksum(pseudo, 40 + bytes));
}

// About a packet of 1500 bytes of which the IP header and eight bytes are quoted.
static struct report report4(uint32_t mtu)
{
	struct report r = {.version = 4, .quoted = IPV4 + 8, .frame = {[12] = 0x08, [13] = 0x00}};
	uint8_t *ip = r.frame + ETH, *icmp = icmp_of(&r), *quote = quote_of(&r);

	memcpy(ip, (uint8_t[]){0x45, 0, 0, 0, 0, 0, 0, 0, 61, 1}, 10);
	memcpy(ip + 12, ROUTER4, 4);
	memcpy(ip + 16, NODE4, 4);
	icmp[0] = 3;
	icmp[1] = 4;
	put_be16(icmp + 6, mtu);
	memcpy(quote, (uint8_t[]){0x45, 0xb8, 1500 >> 8, 1500 & 255, 0, 0, 0x40, 0, 63, 47}, 10);
	memcpy(quote + 12, NODE4, 4);
	memcpy(quote + 16, BACKEND4, 4);
	put_be16(quote + IPV4 + 2, 0x0800);
	quote[IPV4 + GRE] = 0x45;
	checksums(&r);
	return r;
}

static struct report report6(uint32_t mtu)
{
	struct report r = {.version = 6, .quoted = IPV6 + 8, .frame = {[12] = 0x86, [13] = 0xdd}};
	uint8_t *ip = r.frame + ETH, *icmp = icmp_of(&r), *quote = quote_of(&r);

	memcpy(ip, (uint8_t[]){0x60, 0, 0, 0, 0, 0, 58, 61}, 8);
	memcpy(ip + 8, ROUTER6, 16);
	memcpy(ip + 24, NODE6, 16);
	icmp[0] = 2;
	put_be16(icmp + 4, mtu >> 16);
	put_be16(icmp + 6, mtu);
	memcpy(quote, (uint8_t[]){0x6b, 0x81, 2, 3, 1460 >> 8, 1460 & 255, 47, 63}, 8);
	memcpy(quote + 8, NODE6, 16);
	memcpy(quote + 24, BACKEND6, 16);
	put_be16(quote + IPV6 + 2, 0x86dd);
	quote[IPV6 + GRE] = 0x60;
	checksums(&r);
	return r;
}

// Put a fragment header of this offset before the quoted GRE header, of which a later fragment has none.
static struct report quoting_a_piece(uint32_t offset, bool gre)
{
	struct report r = report6(1400);
	uint8_t *quote = quote_of(&r), *fragment = quote + IPV6;

	memmove(fragment + FRAGMENT, fragment, 8);
	memset(fragment, 0, FRAGMENT);
	quote[6] = 44;
	fragment[0] = 47;
	put_be16(fragment + 2, offset | 1);
	if (!gre)
		memset(fragment + FRAGMENT, 0xa5, 8);
	r.quoted += FRAGMENT;
	checksums(&r);
	return r;
}

// What is read of a frame that ends where its bytes end; 0: nothing.
static uint16_t read_mtu(const struct report *r)
{
	uint8_t *frame = at_end_of_block(r->frame, length_of(r));
	struct path_mtu_report found = {0};
	struct packet_view view;
	uint16_t mtu = 0;

	if (parse_ip(frame, length_of(r), length_of(r), &view) == PARSE_OK && parse_transport(&view) == PARSE_OK &&
	    path_mtu_read(&view, &found)) {
		bool four = r->version == 4;

		assert_int_equal(found.address_length, four ? 4 : 16);
		assert_memory_equal(found.source, four ? NODE4 : NODE6, found.address_length);
		assert_memory_equal(found.destination, four ? BACKEND4 : BACKEND6, found.address_length);
		mtu = found.mtu;
	}
	free(frame);
	return mtu;
}

static void every_mtu_that_an_ipv4_router_may_say(void **state)
{
	(void)state;
	for (uint32_t said = 1; said < 65536; said++) {
		struct report r = report4(said);

		assert_int_equal(read_mtu(&r), said < 576 ? 576 : said);
	}
}

static void an_old_router_that_says_nothing_means_the_next_plateau(void **state)
{
	static const struct {
		uint16_t quoted_length, mtu;
	} rows[] = {
		{65535, 32000}, {32001, 32000}, {32000, 17914}, {17914, 8166}, {9000, 8166}, {8166, 4352}, {4352, 2002},
		{2002, 1492},   {1500, 1492},   {1493, 1492},   {1492, 1006},  {1007, 1006}, {1006, 576},  {577, 576},
		{576, 576},     {20, 576},      {0, 576},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct report r = report4(0);

		put_be16(quote_of(&r) + 2, rows[i].quoted_length);
		checksums(&r);
		assert_int_equal(read_mtu(&r), rows[i].mtu);
	}
}

static void what_an_ipv6_router_may_say(void **state)
{
	static const struct {
		uint32_t said;
		uint16_t mtu;
	} rows[] = {
		{1280, 1280}, {1281, 1281}, {1400, 1400}, {9000, 9000}, {65535, 65535},
		// Less than every link must carry, or more than any packet has: nothing to be believed.
		{0, UINT16_MAX}, {576, UINT16_MAX}, {1279, UINT16_MAX}, {0x10000 + 1400, UINT16_MAX},
		{0xffffffff, UINT16_MAX},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct report r = report6(rows[i].said);

		assert_int_equal(read_mtu(&r), rows[i].mtu);
	}
}

static void a_piece_of_ours_may_be_quoted_by_an_ipv6_router(void **state)
{
	struct report first = quoting_a_piece(0, true), wrong = quoting_a_piece(0, false);
	struct report later = quoting_a_piece(1448, false), other = quoting_a_piece(1448, false);

	(void)state;
	assert_int_equal(read_mtu(&first), 1400);
	assert_int_equal(read_mtu(&wrong), 0);
	assert_int_equal(read_mtu(&later), 1400);
	quote_of(&other)[IPV6] = 17;
	checksums(&other);
	assert_int_equal(read_mtu(&other), 0);
	later.quoted = IPV6 + FRAGMENT; // as little as it takes
	checksums(&later);
	assert_int_equal(read_mtu(&later), 1400);
}

// One byte of the message or of the quote made another one, sums made right again.
static void every_byte_that_makes_it_something_else(void **state)
{
	static const struct {
		const char *what;
		uint8_t version;
		uint32_t at; // from the ICMP header on
		uint8_t value;
	} rows[] = {
		{"another type", 4, 0, 11},
		{"another code", 4, 1, 3},
		{"a quote of another version", 4, 8, 0x65},
		{"a quote with options", 4, 8, 0x46},
		{"a quote with a short header", 4, 8, 0x44},
		{"a quoted first fragment", 4, 8 + 6, 0x20},
		{"a quoted later fragment", 4, 8 + 7, 1},
		{"a quote of another protocol", 4, 8 + 9, 4},
		{"a quote of another source", 4, 8 + 15, 3},
		{"a quoted GRE with a checksum", 4, 8 + 20, 0x80},
		{"a quoted GRE of version 1", 4, 8 + 21, 1},
		{"a quoted GRE of Ethernet", 4, 8 + 22, 0x65},
		{"another type of ICMPv6", 6, 0, 1},
		{"an ICMPv6 quote of another version", 6, 8, 0x45},
		{"an ICMPv6 quote of another protocol", 6, 8 + 6, 4},
		{"an ICMPv6 quote of options", 6, 8 + 6, 60},
		{"an ICMPv6 quote of another source", 6, 8 + 23, 3},
		{"an ICMPv6 quote of GRE with a key", 6, 8 + 40, 0x20},
		{"an ICMPv6 quote of GRE of something", 6, 8 + 43, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct report r = rows[i].version == 4 ? report4(1400) : report6(1400);

		check_row(rows[i].what, read_mtu(&r) == 1400);
		icmp_of(&r)[rows[i].at] = rows[i].value;
		checksums(&r);
		check_row(rows[i].what, read_mtu(&r) == 0);
	}
}

static void every_bit_of_the_message_is_in_its_checksum(void **state)
{
	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2) {
		struct report r = version == 4 ? report4(1400) : report6(1400);

		for (uint32_t bit = 0; bit < 8 * (ICMP_HEADER + r.quoted); bit++) {
			icmp_of(&r)[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(read_mtu(&r), 0);
			icmp_of(&r)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		assert_int_equal(read_mtu(&r), 1400);
	}
}

static void a_quote_of_the_gre_header_is_enough_and_less_is_not(void **state)
{
	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2) {
		uint32_t least = version == 4 ? IPV4 + GRE : IPV6 + GRE;

		for (uint32_t quoted = 0; quoted < least + 400; quoted++) {
			struct report r = version == 4 ? report4(1400) : report6(1400);

			r.quoted = quoted;
			checksums(&r);
			assert_int_equal(read_mtu(&r), quoted < least ? 0 : 1400);
		}
	}
}

// The rest of the message lies in another buffer: its checksum cannot be known.
static void a_message_that_is_not_all_at_hand_is_not_believed(void **state)
{
	struct report r = report4(1400);
	struct path_mtu_report found;
	struct packet_view view;

	(void)state;
	for (uint32_t available = ETH + IPV4; available <= length_of(&r); available++) {
		uint8_t *frame = at_end_of_block(r.frame, available);

		assert_int_equal(parse_ip(frame, available, length_of(&r), &view), PARSE_OK);
		assert_int_equal(path_mtu_read(&view, &found), available == length_of(&r));
		free(frame);
	}
}

static void a_fragment_of_an_error_is_not_read(void **state)
{
	struct report r = report4(1400);

	(void)state;
	r.frame[ETH + 6] = 0x20;
	checksums(&r);
	assert_int_equal(read_mtu(&r), 0);
}

// -- the memory

static void a_lower_one_is_remembered_for_ten_minutes(void **state)
{
	uint64_t word = 0;

	(void)state;
	assert_int_equal(path_mtu_get(&word, 1, 1000), 0);
	assert_true(path_mtu_lower(&word, 1, 1400, 1000));
	assert_int_equal(path_mtu_get(&word, 1, 1000), 1400);
	assert_int_equal(path_mtu_get(&word, 1, 1599), 1400);
	assert_int_equal(path_mtu_get(&word, 1, 1600), 0);
	assert_int_equal(path_mtu_get(&word, 1, 90000), 0);
}

static void a_higher_or_equal_one_changes_nothing(void **state)
{
	uint64_t word = 0, before;

	(void)state;
	assert_true(path_mtu_lower(&word, 7, 1400, 1000));
	before = word;
	assert_false(path_mtu_lower(&word, 7, 1400, 1100));
	assert_false(path_mtu_lower(&word, 7, 1401, 1100));
	assert_false(path_mtu_lower(&word, 7, 65535, 1100));
	assert_int_equal(word, before);
	assert_true(path_mtu_lower(&word, 7, 1399, 1100));
	assert_int_equal(path_mtu_get(&word, 7, 1699), 1399);
	assert_true(path_mtu_lower(&word, 7, 1450, 1700)); // what was known has expired
	assert_int_equal(path_mtu_get(&word, 7, 1700), 1450);
}

static void another_generation_knows_nothing_of_it(void **state)
{
	uint64_t word = 0;

	(void)state;
	for (uint32_t generation = 1; generation <= 4095; generation++) {
		assert_int_equal(path_mtu_get(&word, (uint16_t)generation, 5), 0);
		assert_true(path_mtu_lower(&word, (uint16_t)generation, (uint16_t)(576 + generation), 5));
		assert_int_equal(path_mtu_get(&word, (uint16_t)generation, 5), 576 + generation);
		assert_int_equal(path_mtu_get(&word, (uint16_t)(generation - 1), 5), 0);
	}
}

static void the_clock_may_come_round(void **state)
{
	uint64_t word = 0;

	(void)state;
	assert_true(path_mtu_lower(&word, 1, 1400, 0xffffff00));
	assert_int_equal(path_mtu_get(&word, 1, 0xffffffff), 1400);
	assert_int_equal(path_mtu_get(&word, 1, 0x100), 1400);
	assert_int_equal(path_mtu_get(&word, 1, 0x158), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mtu_that_an_ipv4_router_may_say),
		cmocka_unit_test(an_old_router_that_says_nothing_means_the_next_plateau),
		cmocka_unit_test(what_an_ipv6_router_may_say),
		cmocka_unit_test(a_piece_of_ours_may_be_quoted_by_an_ipv6_router),
		cmocka_unit_test(every_byte_that_makes_it_something_else),
		cmocka_unit_test(every_bit_of_the_message_is_in_its_checksum),
		cmocka_unit_test(a_quote_of_the_gre_header_is_enough_and_less_is_not),
		cmocka_unit_test(a_message_that_is_not_all_at_hand_is_not_believed),
		cmocka_unit_test(a_fragment_of_an_error_is_not_read),
		cmocka_unit_test(a_lower_one_is_remembered_for_ten_minutes),
		cmocka_unit_test(a_higher_or_equal_one_changes_nothing),
		cmocka_unit_test(another_generation_knows_nothing_of_it),
		cmocka_unit_test(the_clock_may_come_round),
	};

	return cmocka_run_group_tests_name("path_mtu", tests, NULL, NULL);
}
