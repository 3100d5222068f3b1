#include "harness.h"

#include "flow.h"

#include <arpa/inet.h>


// Key and messages of the reference vectors: key bytes 00 .. 0f, message i is the bytes 00 .. i-1.
static const uint64_t K0 = 0x0706050403020100, K1 = 0x0f0e0d0c0b0a0908;

// The vectors that SipHash's authors publish with their reference code, read little-endian.
static const uint64_t SIPHASH_2_4[64] = {
	0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
	0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
	0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
	0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
	0x3f2acc7f57c29bdb, 0x699ae9f52cbe4794, 0x4bc1b3f0968dd39c, 0xbb6dc91da77961bd,
	0xbed65cf21aa2ee98, 0xd0f2cbb02e3b67c7, 0x93536795e3a33e88, 0xa80c038ccd5ccec8,
	0xb8ad50c6f649af94, 0xbce192de8a85b8ea, 0x17d835b85bbb15f3, 0x2f2e6163076bcfad,
	0xde4daaaca71dc9a5, 0xa6a2506687956571, 0xad87a3535c49ef28, 0x32d892fad841c342,
	0x7127512f72f27cce, 0xa7f32346f95978e3, 0x12e0b01abb051238, 0x15e034d40fa197ae,
	0x314dffbe0815a3b4, 0x027990f029623981, 0xcadcd4e59ef40c4d, 0x9abfd8766a33735c,
	0x0e3ea96b5304a7d0, 0xad0c42d6fc585992, 0x187306c89bc215a9, 0xd4a60abcf3792b95,
	0xf935451de4f21df2, 0xa9538f0419755787, 0xdb9acddff56ca510, 0xd06c98cd5c0975eb,
	0xe612a3cb9ecba951, 0xc766e62cfcadaf96, 0xee64435a9752fe72, 0xa192d576b245165a,
	0x0a8787bf8ecb74b2, 0x81b3e73d20b49b6f, 0x7fa8220ba3b2ecea, 0x245731c13ca42499,
	0xb78dbfaf3a8d83bd, 0xea1ad565322a1a0b, 0x60e61c23a3795013, 0x6606d7e446282b93,
	0x6ca4ecb15c5f91e1, 0x9f626da15c9625f3, 0xe51b38608ef25f57, 0x958a324ceb064572,
};

// The same for one compression and three finalisation rounds, from an implementation that is not ours.
static const uint64_t SIPHASH_1_3[64] = {
	0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
	0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140,
	0x369095118d299a8e, 0x25a48eb36c063de4, 0x79de85ee92ff097f, 0x70c118c1f94dc352,
	0x78a384b157b4d9a2, 0x306f760c1229ffa7, 0x605aa111c0f95d34, 0xd320d86d2a519956,
	0xcc4fdd1a7d908b66, 0x9cf2689063dbd80c, 0x8ffc389cb473e63e, 0xf21f9de58d297d1c,
	0xc0dc2f46a6cce040, 0xb992abfe2b45f844, 0x7ffe7b9ba320872e, 0x525a0e7fdae6c123,
	0xf464aeb267349c8c, 0x45cd5928705b0979, 0x3a3e35e3ca9913a5, 0xa91dc74e4ade3b35,
	0xfb0bed02ef6cd00d, 0x88d93cb44ab1e1f4, 0x540f11d643c5e663, 0x2370dd1f8c21d1bc,
	0x81157b6c16a7b60d, 0x4d54b9e57a8ff9bf, 0x759f12781f2a753e, 0xcea1a3bebf186b91,
	0x2cf508d3ada26206, 0xb6101c2da3c33057, 0xb3f47496ae3a36a1, 0x626b57547b108392,
	0xc1d2363299e41531, 0x667cc1923f1ad944, 0x65704ffec8138825, 0x24f280d1c28949a6,
	0xc2ca1cedfaf8876b, 0xc2164bfc9f042196, 0xa16e9c9368b1d623, 0x49fb169c8b5114fd,
	0x9f3143f8df074c46, 0xc6fdaf2412cc86b3, 0x7eaf49d10a52098f, 0x1cf313559d292f9a,
	0xc44a30dda2f41f12, 0x36fae98943a71ed0, 0x318fb34c73f0bce6, 0xa27abf3670a7e980,
	0xb4bcc0db243c6d75, 0x23f8d852fdb71513, 0x8f035f4da67d8a08, 0xd89cd0e5b7e8f148,
	0xf6f4e6bcf7a644ee, 0xaec59ad80f1837f2, 0xc3b2f6154b6694e0, 0x9d199062b7bbb3a8,
};

static void siphash_gives_the_reference_vectors(void **state)
{
	uint8_t message[64];

	(void)state;
	for (size_t i = 0; i < COUNT(message); i++)
		message[i] = (uint8_t)i;
	for (size_t i = 0; i < COUNT(SIPHASH_2_4); i++) {
		uint8_t *exact = at_end_of_block(message, i);

		assert_true(siphash(2, 4, K0, K1, exact, i) == SIPHASH_2_4[i]);
		assert_true(siphash(1, 3, K0, K1, exact, i) == SIPHASH_1_3[i]);
		free(exact);
	}
}

static void siphash_takes_data_at_any_alignment(void **state)
{
	uint8_t room[64 + 8], message[63];

	(void)state;
	for (size_t i = 0; i < COUNT(message); i++)
		message[i] = (uint8_t)i;
	for (size_t shift = 0; shift < 8; shift++) {
		memcpy(room + shift, message, sizeof(message));
		assert_true(siphash(2, 4, K0, K1, room + shift, 63) == SIPHASH_2_4[63]);
	}
}

struct flow_row {
	const char *what;
	const char *source, *destination;
	uint16_t source_port, destination_port;
	uint8_t protocol;
	uint64_t hash, client;
};

static const struct flow_row FLOWS[] = {
	{"TCP over IPv4", "198.51.100.7", "192.0.2.1", 40000, 80, 6, 0xb68d8b8b8e177b9c,
	 0x38494f91897ea254},
	{"UDP over IPv4", "198.51.100.7", "192.0.2.1", 40000, 53, 17, 0xf750a33375a4ad55,
	 0x3da5d8f42d280341},
	{"TCP over IPv6", "2001:db8:1::7", "2001:db8::1", 40000, 80, 6, 0x54cafcbb8be1507b,
	 0xe4dc10dc0e7e3cb5},
	{"UDP over IPv6, highest ports", "2001:db8:1::7", "2001:db8::1", 65535, 65535, 17, 0xce4ff36e226ae360,
	 0x41d9e0d069a20f3b},
	{"all zero", "0.0.0.0", "0.0.0.0", 0, 0, 0, 0x23c1a1b1aaa0af63,
	 0x29fef2f5a449fc97},
};

static struct flow_key key_of(const struct flow_row *row)
{
	uint8_t source[16], destination[16], length = strchr(row->source, ':') != NULL ? 16 : 4;
	int family = length == 16 ? AF_INET6 : AF_INET;
	uint8_t *s, *d;
	struct flow_key key;

	assert_int_equal(inet_pton(family, row->source, source), 1);
	assert_int_equal(inet_pton(family, row->destination, destination), 1);
	s = at_end_of_block(source, length);
	d = at_end_of_block(destination, length);
	flow_key_fill(&key, s, d, length, htons(row->source_port), htons(row->destination_port), row->protocol);
	free(s);
	free(d);
	return key;
}

static void known_flows_have_known_hashes(void **state)
{
	static const struct hash_key key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

	(void)state;
	for (size_t i = 0; i < COUNT(FLOWS); i++) {
		struct flow_key flow = key_of(&FLOWS[i]);

		check_row(FLOWS[i].what, flow_hash(&key, &flow) == FLOWS[i].hash);
		check_row(FLOWS[i].what, flow_client_hash(&key, &flow) == FLOWS[i].client);
	}
}

static void a_key_is_laid_out_in_network_order(void **state)
{
	static const struct flow_row row = {"", "198.51.100.7", "192.0.2.1", 0x1234, 80, 6, 0, 0};
	static const uint8_t bytes[] = {198, 51, 100, 7, 192, 0, 2, 1, 0x12, 0x34, 0, 80, 6};
	struct flow_key key = key_of(&row);

	(void)state;
	assert_int_equal(key.length, FLOW_KEY_IPV4);
	assert_memory_equal(key.bytes, bytes, sizeof(bytes));
}

static void every_byte_of_the_tuple_and_of_the_secret_counts(void **state)
{
	static const struct hash_key secret = {1, 2};

	(void)state;
	for (size_t i = 0; i < COUNT(FLOWS); i++) {
		struct flow_key key = key_of(&FLOWS[i]);
		uint64_t hash = flow_hash(&secret, &key), client = flow_client_hash(&secret, &key);
		uint64_t steering = flow_steering_hash(3, &key);

		for (uint8_t at = 0; at < key.length; at++) {
			bool port = at >= key.length - 5 && at < key.length - 1;

			key.bytes[at] ^= 1;
			assert_true(flow_hash(&secret, &key) != hash);
			assert_true(flow_steering_hash(3, &key) != steering);
			assert_int_equal(flow_client_hash(&secret, &key) == client, port);
			key.bytes[at] ^= 1;
		}
		for (int bit = 0; bit < 64; bit++) {
			struct hash_key low = {1 ^ 1ULL << bit, 2}, high = {1, 2 ^ 1ULL << bit};

			assert_true(flow_hash(&low, &key) != hash && flow_hash(&high, &key) != hash);
		}
		assert_true(flow_steering_hash(4, &key) != steering);
	}
}

// What stands in the structure behind a short key must not matter.
static void hashes_read_only_the_length_of_the_key(void **state)
{
	static const struct hash_key secret = {1, 2};

	(void)state;
	for (size_t i = 0; i < COUNT(FLOWS); i++) {
		struct flow_key key = key_of(&FLOWS[i]), clean = {.length = key.length}, dirty = {.length = key.length};

		memset(dirty.bytes, 0xff, sizeof(dirty.bytes));
		memcpy(clean.bytes, key.bytes, key.length);
		memcpy(dirty.bytes, key.bytes, key.length);
		assert_true(flow_hash(&secret, &clean) == flow_hash(&secret, &dirty));
		assert_true(flow_client_hash(&secret, &clean) == flow_client_hash(&secret, &dirty));
		assert_true(flow_steering_hash(9, &clean) == flow_steering_hash(9, &dirty));
	}
}

static void the_slot_comes_from_the_upper_half(void **state)
{
	static const struct {
		uint64_t hash;
		uint32_t size, slot;
	} rows[] = {
		{0, 7, 0},
		{0x00000000ffffffff, 65537, 0},
		{0x0000000100000000, 65537, 1},
		{0x0001000000000000, 65537, 65536},
		{0x0001000100000000, 65537, 0},
		{0xffffffffffffffff, 65537, 0},
		{0xffffffffffffffff, 7, 3},
		{0xfffffffeffffffff, 2, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		assert_int_equal(flow_slot(rows[i].hash, rows[i].size), rows[i].slot);
}

// Ports that count up, as a client's do, spread over slots, and over two workers without regard to the slot.
static void hashes_spread(void **state)
{
	enum { PORTS = 60000, SLOTS = 101 };
	static const struct hash_key secret = {1, 2};
	struct flow_row row = FLOWS[0];
	uint32_t slots[SLOTS] = {0}, first_worker[SLOTS] = {0};

	(void)state;
	for (uint32_t port = 0; port < PORTS; port++) {
		struct flow_key key;
		uint32_t slot;

		row.source_port = (uint16_t)port;
		key = key_of(&row);
		slot = flow_slot(flow_hash(&secret, &key), SLOTS);
		slots[slot]++;
		first_worker[slot] += (flow_steering_hash(5, &key) >> 32) % 2;
	}
	for (int i = 0; i < SLOTS; i++) { // the mean is 594, six standard deviations are 146
		assert_in_range(slots[i], 448, 740);
		assert_in_range(first_worker[i], slots[i] / 2 - 74, slots[i] / 2 + 74);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(siphash_gives_the_reference_vectors),
		cmocka_unit_test(siphash_takes_data_at_any_alignment),
		cmocka_unit_test(known_flows_have_known_hashes),
		cmocka_unit_test(a_key_is_laid_out_in_network_order),
		cmocka_unit_test(every_byte_of_the_tuple_and_of_the_secret_counts),
		cmocka_unit_test(hashes_read_only_the_length_of_the_key),
		cmocka_unit_test(the_slot_comes_from_the_upper_half),
		cmocka_unit_test(hashes_spread),
	};

	return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
