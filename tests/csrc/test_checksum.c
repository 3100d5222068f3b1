// Checksums that were left to a NIC: found, finished, and good ones never touched.

#include "checksum.h"

#include <netinet/in.h>

#include "harness.h"

enum { ETH = 14, LONGEST = 1500 };

struct packet {
	uint8_t frame[ETH + LONGEST];
	struct packet_view view;
};

static uint32_t plain_sum(const uint8_t *p, uint32_t length, uint64_t sum)
{
	for (uint32_t i = 0; i < length; i++)
		sum += i % 2 == 0 ? (uint32_t)p[i] << 8 : p[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint32_t)sum;
}

static uint32_t pseudo(const struct packet_view *v)
{
	uint32_t length = v->ip_length - v->l4;

	return plain_sum(view_source(v), 2u * view_address_length(v), (uint64_t)length + v->protocol);
}

static uint8_t *field(struct packet *p)
{
	return p->frame + ETH + p->view.l4 + (p->view.protocol == IPPROTO_TCP ? 16 : 6);
}

// A packet of random bytes with its checksum unfinished.
static void make(struct packet *p, uint8_t version, uint8_t protocol, uint32_t payload, uint64_t *seed)
{
	uint32_t header = version == 4 ? 20 : 40, l4 = protocol == IPPROTO_TCP ? 20 : 8;
	struct packet_view *v = &p->view;

	for (size_t i = 0; i < sizeof(p->frame); i++)
		p->frame[i] = (uint8_t)next_random(seed);
	*v = (struct packet_view){
		.ip = p->frame + ETH,
		.ip_length = header + l4 + payload,
		.available = header + l4 + payload,
		.l3 = ETH,
		.l4 = (uint16_t)header,
		.version = version,
		.protocol = protocol,
		.has_ports = true,
	};
	put_be16(field(p), pseudo(v));
}

static bool is_right(const struct packet *p)
{
	const struct packet_view *v = &p->view;

	return plain_sum(v->ip + v->l4, v->ip_length - v->l4, pseudo(v)) == 0xffff;
}

static void an_unfinished_checksum_is_finished(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct packet p, before;
		uint32_t payload = random_below(&seed, 1400);

		make(&p, i % 2 ? 4 : 6, i % 4 < 2 ? IPPROTO_TCP : IPPROTO_UDP, payload, &seed);
		before = p;
		assert_true(checksum_looks_unfinished(&p.view));
		checksum_finish(p.frame + ETH, &p.view);
		assert_true(is_right(&p));
		assert_true(field(&p)[0] != 0 || field(&p)[1] != 0 || p.view.protocol == IPPROTO_TCP);
		memcpy(field(&before), field(&p), 2); // nothing else was touched
		assert_memory_equal(before.frame, p.frame, sizeof(p.frame));
	}
}

static void a_finished_checksum_does_not_look_unfinished_and_is_never_changed(void **state)
{
	uint64_t seed = 4;
	int looked = 0;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		struct packet p;
		uint8_t was[2];

		make(&p, 4, i % 2 ? IPPROTO_TCP : IPPROTO_UDP, random_below(&seed, 64), &seed);
		checksum_finish(p.frame + ETH, &p.view);
		looked += checksum_looks_unfinished(&p.view);
		memcpy(was, field(&p), 2);
		checksum_finish(p.frame + ETH, &p.view);
		assert_memory_equal(was, field(&p), 2);
	}
	assert_in_range(looked, 0, 20); // once in 65536 by chance
}

// The sum of the whole is 0 where the finished field would be 0; for UDP that says "none".
static void a_udp_checksum_of_zero_is_written_as_ones(void **state)
{
	uint64_t seed = 5;
	struct packet p;
	uint8_t *payload;

	(void)state;
	make(&p, 4, IPPROTO_UDP, 2, &seed);
	payload = p.frame + ETH + 20 + 8;
	put_be16(payload, 0);
	put_be16(payload, 0xffff - plain_sum(p.view.ip + 20, 8 + 2, 0));
	checksum_finish(p.frame + ETH, &p.view);
	assert_int_equal(be16(field(&p)), 0xffff);
	assert_true(is_right(&p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unfinished_checksum_is_finished),
		cmocka_unit_test(a_finished_checksum_does_not_look_unfinished_and_is_never_changed),
		cmocka_unit_test(a_udp_checksum_of_zero_is_written_as_ones),
	};

	return cmocka_run_group_tests_name("checksum", tests, NULL, NULL);
}
