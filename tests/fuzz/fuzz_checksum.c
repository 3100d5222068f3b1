// Any TCP or UDP packet: a checksum that is finished is right afterwards, and nothing else of the packet changes.

#include "fuzz.h"

#include "checksum.h"

static uint16_t whole_sum(const struct packet_view *v, const uint8_t *ip)
{
	uint32_t sum = v->ip_length - v->l4 + v->protocol;
	const uint8_t *addresses = ip + (v->version == 4 ? 12 : 8);

	for (uint32_t i = 0; i < 2u * view_address_length(v); i++)
		sum += i % 2 == 0 ? addresses[i] * 256u : addresses[i];
	for (uint32_t i = v->l4; i < v->ip_length; i++)
		sum += (i - v->l4) % 2 == 0 ? ip[i] * 256u : ip[i];
	while (sum >> 16 != 0)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct frame f = take_frame(&in);
	struct packet_view v;
	uint8_t *before;

	if (parse_ip(f.bytes, f.available, f.length, &v) == PARSE_OK && parse_transport(&v) == PARSE_OK &&
	    v.has_ports && !v.fragment && v.available >= v.ip_length) {
		uint32_t at = v.l4 + (v.protocol == 6 ? 16u : 6u);

		before = at_end_of_block(v.ip, v.ip_length);
		checksum_looks_unfinished(&v);
		checksum_finish(f.bytes + v.l3, &v);
		must(whole_sum(&v, v.ip) == 0xffff);
		memcpy(before + at, v.ip + at, 2);
		must(memcmp(before, v.ip, v.ip_length) == 0);
		free(before);
	}
	free(f.bytes);
	return 0;
}
