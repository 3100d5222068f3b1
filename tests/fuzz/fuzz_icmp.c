// Any packet as an ICMP message: what is it, whose flow is it about, its echo reply; and the too-big error about it.

#include "fuzz.h"

#include "icmp.h"

// The message behind the IP header, as far as it is in the first buffer.
static uint32_t message_bytes(const struct packet_view *v)
{
	return (v->ip_length < v->available ? v->ip_length : v->available) - v->l4;
}

// The flow of an error is the quoted packet's reversed, and the error is sent to whoever sent that.
static void check_quoted_flow(const struct packet_view *v)
{
	const uint8_t *quote = v->ip + v->l4 + ICMP_HEADER;
	uint8_t length = view_address_length(v);
	uint32_t addresses = v->version == 4 ? 12 : 8, bytes = message_bytes(v) - ICMP_HEADER;
	struct packet_view q = *v;
	const uint8_t *key = q.key.bytes;

	if (!icmp_quoted_flow(&q))
		return;
	must(bytes >= (v->version == 4 ? 24u : 44u));
	must(quote[0] >> 4 == v->version);
	must(q.key.length == 2 * length + 5);
	must(q.flow_protocol == 6 || q.flow_protocol == 17);
	must(key[2 * length + 4] == q.flow_protocol);
	must(memcmp(key, quote + addresses + length, length) == 0);
	must(memcmp(key + length, quote + addresses, length) == 0);
	must(memcmp(key + length, view_destination(v), length) == 0);
	must(q.destination_port == be16(key + 2 * length + 2));
	if (v->version == 4) {
		const uint8_t *ports = quote + (quote[0] & 15) * 4;

		must(ports + 4 <= quote + bytes);
		must(be16(ports) == q.destination_port && be16(ports + 2) == be16(key + 2 * length));
	}
}

static void check_reply(const uint8_t *asked, const uint8_t *ip, const struct packet_view *v)
{
	uint32_t length = view_address_length(v), at = v->version == 4 ? 12 : 8, n = message_bytes(v);
	const uint8_t *icmp = ip + v->l4;

	must(memcmp(ip + at, asked + at + length, length) == 0);
	must(memcmp(ip + at + length, asked + at, length) == 0);
	must(ip[v->version == 4 ? 8 : 7] == 64);
	must(v->version == 6 || internet_checksum(ip, v->l4) == 0);
	must(icmp[0] == (v->version == 4 ? 0 : 129));
	must(memcmp(icmp + 4, asked + v->l4 + 4, n - 4) == 0);
	if (n == v->ip_length - v->l4) {
		uint16_t before = icmp_checksum(asked, asked + v->l4, n), after = icmp_checksum(ip, icmp, n);

		// 0 and 0xffff are one number; but what was right must be right for the strictest receiver.
		must(before % 0xffff == after % 0xffff);
		must(before != 0 || after == 0);
	}
}

static void check_echo(uint8_t *ip, const struct packet_view *v, bool mend)
{
	uint32_t bytes = v->l4 + message_bytes(v);
	uint8_t *asked;

	if (mend && bytes == v->ip_length) {
		put_be16(ip + v->l4 + 2, 0);
		put_be16(ip + v->l4 + 2, icmp_checksum(ip, ip + v->l4, bytes - v->l4));
	}
	asked = at_end_of_block(ip, bytes);
	icmp_may_answer(v);
	icmp_is_source_routed(v);
	icmp_echo_reply(ip, v);
	check_reply(asked, ip, v);
	free(asked);
}

static void check_too_big(const struct packet_view *v, uint32_t mtu, uint16_t id)
{
	uint32_t quoted = icmp_quote_length(v), headers = icmp_too_big_headers(v), length = view_address_length(v);
	uint32_t most = v->version == 4 ? 576 : 1280;
	uint8_t *ip = malloc(headers + quoted), *icmp = ip + headers - ICMP_HEADER;

	must(headers + quoted <= most);
	must(quoted <= v->ip_length && quoted <= v->available);
	must(quoted == v->ip_length || quoted == v->available || headers + quoted == most);
	memcpy(ip + headers, v->ip, quoted);
	icmp_too_big_write(ip, v->version, view_source(v), quoted, mtu, id);
	must(memcmp(ip + headers, v->ip, quoted) == 0);
	must(memcmp(icmp - length, view_source(v), length) == 0);
	must(memcmp(icmp - 2 * length, view_destination(v), length) == 0);
	must(icmp_checksum(ip, icmp, ICMP_HEADER + quoted) == 0);
	must(be16(icmp + 6) == mtu);
	if (v->version == 4) {
		must(internet_checksum(ip, 20) == 0 && be16(ip + 2) == headers + quoted && be16(ip + 4) == id);
		must(ip[0] == 0x45 && be16(ip + 6) == 0 && be16(icmp) == 0x0304);
	} else {
		must(ip[0] == 0x60 && ip[6] == 58 && be16(ip + 4) == ICMP_HEADER + quoted && be16(icmp) == 0x0200);
	}
	free(ip);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint32_t mtu = (uint32_t)take(&in, 2);
	uint16_t id = (uint16_t)take(&in, 2);
	bool mend = take(&in, 1) & 1;
	struct frame f = take_frame(&in);
	struct packet_view v;

	if (parse_ip(f.bytes, f.available, f.length, &v) == PARSE_OK && parse_transport(&v) == PARSE_OK) {
		enum icmp_kind kind = icmp_is(&v) ? icmp_kind(&v) : ICMP_OTHER;

		must((kind == ICMP_BROKEN) == (icmp_is(&v) && message_bytes(&v) < ICMP_HEADER));
		check_too_big(&v, mtu, id);
		if (kind == ICMP_ERROR)
			check_quoted_flow(&v);
		if (kind == ICMP_ECHO)
			check_echo(f.bytes + v.l3, &v, mend);
	}
	free(f.bytes);
	return 0;
}
