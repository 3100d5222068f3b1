// Any packet in the outer headers of either family: lengths, checksum, what is copied; the inner packet is untouched.

#include "fuzz.h"

#include "encap.h"

static void check_ipv4(const uint8_t *outer, const struct packet_view *inner, uint16_t id)
{
	must(outer[0] == 0x45);
	must(outer[1] == inner->traffic_class);
	must(be16(outer + 2) == ENCAP_IPV4 + inner->ip_length);
	must(be16(outer + 4) == (inner->dont_fragment ? 0 : id));
	must(be16(outer + 6) == (inner->dont_fragment ? 0x4000 : 0));
	must(outer[8] == ENCAP_TTL && outer[9] == 47);
	must(internet_checksum(outer, 20) == 0);
}

static void check_ipv6(const uint8_t *outer, const struct packet_view *inner, uint32_t label)
{
	uint32_t first = (uint32_t)be16(outer) << 16 | be16(outer + 2);

	must(first == (6u << 28 | (uint32_t)inner->traffic_class << 20 | label));
	must(be16(outer + 4) == ENCAP_IPV6 - 40 + inner->ip_length);
	must(outer[6] == 47 && outer[7] == ENCAP_TTL);
}

// `addresses`: source and destination of the tunnel. Returns the checksum of an outer IPv4 header.
static uint16_t check(const struct packet_view *inner, bool six, const uint8_t *addresses, uint16_t id,
		      uint32_t label)
{
	uint32_t header = six ? ENCAP_IPV6 : ENCAP_IPV4, length = six ? 16 : 4;
	uint8_t *outer = malloc(header + inner->available);
	struct packet_view moved = *inner;
	struct encap_template t;
	uint16_t checksum;

	memset(outer, 0xa5, header);
	memcpy(outer + header, inner->ip, inner->available);
	moved.ip = outer + header;
	if (six)
		encap_template_ipv6(&t, addresses, addresses + length);
	else
		encap_template_ipv4(&t, addresses, addresses + length);
	must(t.length == header);
	encap_write(&t, outer, &moved, id, label);
	if (six)
		check_ipv6(outer, inner, label);
	else
		check_ipv4(outer, inner, id);
	must(memcmp(outer + header - 4 - 2 * length, addresses, 2 * length) == 0);
	must(be16(outer + header - 4) == 0); // GRE without options, version 0
	must(be16(outer + header - 2) == (inner->version == 4 ? 0x0800 : 0x86dd));
	must(memcmp(outer + header, inner->ip, inner->available) == 0);
	checksum = be16(outer + 10);
	free(outer);
	return checksum;
}

// Once as the input says, and with the few ids at which the sum's carries meet, which no random change would find.
static void check_with_ids(const struct packet_view *inner, bool six, const uint8_t *addresses, uint16_t id,
			   uint32_t label)
{
	uint16_t checksum = check(inner, six, addresses, id, label);

	for (uint32_t more = 0; !six && more < 4; more++)
		check(inner, six, addresses, (uint16_t)(id + checksum + more), label);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	bool six = take(&in, 1) & 1;
	uint16_t id = (uint16_t)take(&in, 2);
	uint32_t label = (uint32_t)take(&in, 3) & 0xfffff;
	uint8_t addresses[32];
	struct packet_view v;
	struct frame f;

	take_bytes(&in, addresses, sizeof(addresses));
	f = take_frame(&in);
	// What would be longer than a length field can say is refused by the port's MTU, before.
	if (parse_ip(f.bytes, f.available, f.length, &v) == PARSE_OK && v.ip_length + ENCAP_IPV6 <= UINT16_MAX)
		check_with_ids(&v, six, addresses, id, label);
	free(f.bytes);
	return 0;
}
