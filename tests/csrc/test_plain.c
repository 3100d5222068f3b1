#include "harness.h"

#include "plain.h"
#include "wire.h"

enum { TCP = 6, UDP = 17, ROUNDS = 20000, FRAME = 14 + 40 + 24 };

// A frame that is plain, with everything that may vary drawn at random.
static void lay(uint64_t *seed, uint8_t *frame, uint8_t version)
{
	uint8_t *ip = frame + 14, *l4 = ip + (version == 4 ? 20 : 40);
	uint8_t protocol = random_below(seed, 2) ? TCP : UDP;
	uint32_t payload = 20 + random_below(seed, 5);

	for (int i = 0; i < FRAME; i++)
		frame[i] = (uint8_t)next_random(seed);
	write16(frame + 12, version == 4 ? 0x0800 : 0x86dd);
	if (version == 4) {
		ip[0] = 0x45;
		write16(ip + 2, 20 + payload);
		ip[6] &= 0x40;
		ip[7] = 0;
		ip[8] |= 1;
		ip[9] = protocol;
		write16(ip + 10, 0);
		write16(ip + 10, (uint16_t)~fold(sum_words(ip, 20, 0)));
	} else {
		ip[0] = (uint8_t)(0x60 | (ip[0] & 0x0f));
		write16(ip + 4, payload);
		ip[6] = protocol;
		ip[7] |= 1;
	}
	if (protocol == TCP)
		l4[12] = (uint8_t)(5 << 4 | (l4[12] & 0x0f));
	else
		write16(l4 + 4, 8 + random_below(seed, payload - 7));
}

static void check_lane(const struct plain *p, uint32_t lane, const uint8_t *frame, const struct hash_key *key)
{
	struct packet_view parsed, v;

	assert_int_equal(parse_ip(frame, FRAME, FRAME, &parsed), PARSE_OK);
	assert_int_equal(parse_transport(&parsed), PARSE_OK);
	assert_int_equal(p->good[lane], 1);
	assert_ptr_equal(p->ip[lane], frame + 14);
	plain_view(p, lane, p->version, &v);
	assert_true(v.ip_length == parsed.ip_length && v.available == parsed.available);
	assert_true(v.protocol == parsed.protocol && v.destination_port == parsed.destination_port);
	assert_true(v.traffic_class == parsed.traffic_class && v.ttl == parsed.ttl && v.tcp_flags == parsed.tcp_flags);
	assert_int_equal(v.dont_fragment, parsed.dont_fragment);
	assert_memory_equal(v.key.bytes, parsed.key.bytes, parsed.key.length);
	assert_int_equal(p->hash[lane], flow_hash(key, &parsed.key));
	assert_int_equal(p->outer_word[lane], encap_ipv4_word(v.traffic_class, v.ip_length, v.dont_fragment));
	assert_int_equal(p->outer_sum[lane], encap_ipv4_sum(v.traffic_class, v.ip_length, v.dont_fragment));
}

static void all_ways_read_a_burst_as_each_packet_by_itself(void **state)
{
	plain_way *ways[] = {plain_finish, plain_scalar(), plain_avx2(), plain_avx512()};
	static uint8_t frames[PLAIN_LANES][FRAME];
	uint64_t seed = 17;

	(void)state;
	for (int round = 0; round < ROUNDS / PLAIN_LANES; round++) {
		struct hash_key key = {next_random(&seed), next_random(&seed)};
		uint32_t n = random_below(&seed, PLAIN_LANES + 1);

		for (uint32_t i = 0; i < n; i++)
			lay(&seed, frames[i], random_below(&seed, 3) ? 4 : 6);
		for (size_t k = 0; k < COUNT(ways); k++) {
			struct plain lanes[2] = {0};

			if (ways[k] == NULL)
				continue;
			plain_begin(&lanes[0], 4);
			plain_begin(&lanes[1], 6);
			for (uint32_t i = 0; i < n; i++)
				assert_true(plain_take(&lanes[0], &lanes[1], frames[i], FRAME, FRAME, (uint8_t)i));
			assert_int_equal(lanes[0].count + lanes[1].count, n);
			for (int family = 0; family < 2; family++) {
				ways[k](&lanes[family], &key);
				for (uint32_t lane = 0; lane < lanes[family].count; lane++)
					check_lane(&lanes[family], lane, frames[lanes[family].position[lane]], &key);
			}
		}
	}
}

// Of a frame with one byte changed, or shorter than it says, the same is said as by the two steps.
static void what_is_not_plain_is_left_to_the_two_steps(void **state)
{
	const struct hash_key key = {1, 2};
	uint64_t seed = 23;
	uint32_t plain = 0;

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		uint8_t frame[FRAME], version = round % 2 ? 4 : 6;
		uint32_t length = random_below(&seed, 4) ? FRAME : 14 + random_below(&seed, FRAME - 13);
		struct plain lanes[2] = {0};
		struct packet_view v;
		bool good;

		lay(&seed, frame, version);
		frame[12 + random_below(&seed, FRAME - 12)] ^= (uint8_t)next_random(&seed);
		plain_begin(&lanes[0], 4);
		plain_begin(&lanes[1], 6);
		good = plain_take(&lanes[0], &lanes[1], frame, length, length, 0);
		plain_finish(&lanes[0], &key);
		plain_finish(&lanes[1], &key);
		good = good && lanes[lanes[0].count == 0].good[0] != 0;
		plain += good;
		if (parse_ip(frame, length, length, &v) != PARSE_OK || parse_transport(&v) != PARSE_OK || !v.has_ports ||
		    v.fragment || v.ttl == 0 || v.l4 != (v.version == 4 ? 20 : 40) ||
		    length < (v.version == 4 ? PLAIN_LEAST4 : PLAIN_LEAST6))
			assert_false(good);
		else
			assert_true(good);
	}
	assert_in_range(plain, ROUNDS / 10, ROUNDS * 9 / 10);
}

// What has run out of hops is not plain: it has a fate of its own.
static void a_ttl_of_zero_is_not_plain(void **state)
{
	const struct hash_key key = {1, 2};
	uint64_t seed = 29;

	(void)state;
	for (int round = 0; round < 64; round++) {
		uint8_t frame[FRAME], *ip = frame + 14, version = round % 2 ? 4 : 6;
		struct plain lanes[2] = {0};

		lay(&seed, frame, version);
		ip[version == 4 ? 8 : 7] = 0;
		if (version == 4) {
			write16(ip + 10, 0);
			write16(ip + 10, (uint16_t)~fold(sum_words(ip, 20, 0)));
		}
		plain_begin(&lanes[0], 4);
		plain_begin(&lanes[1], 6);
		assert_true(plain_take(&lanes[0], &lanes[1], frame, FRAME, FRAME, 0));
		plain_finish(&lanes[version == 6], &key);
		assert_int_equal(lanes[version == 6].good[0], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ways_read_a_burst_as_each_packet_by_itself),
		cmocka_unit_test(what_is_not_plain_is_left_to_the_two_steps),
		cmocka_unit_test(a_ttl_of_zero_is_not_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
