#include "icmp.h"

#include <netinet/in.h>

#include "wire.h"

enum {
	ECHO4 = 8,
	ECHO_REPLY4 = 0,
	UNREACHABLE4 = 3,
	TIME_EXCEEDED4 = 11,
	PARAMETER4 = 12,
	FRAGMENTATION_NEEDED = 4, // code of UNREACHABLE4
	UNREACHABLE6 = 1,
	TOO_BIG6 = 2,
	TIME_EXCEEDED6 = 3,
	PARAMETER6 = 4,
	ECHO6 = 128,
	ECHO_REPLY6 = 129,
	TTL = 64,
	PORTS = 4,
	OPTION_END = 0, // of IPv4, as those below
	OPTION_NONE = 1,
	OPTION_LOOSE_ROUTE = 131,
	OPTION_STRICT_ROUTE = 137,
};

static uint16_t checksum(uint32_t sum)
{
	return (uint16_t)~fold(sum);
}

const uint8_t *icmp_message(const struct packet_view *v, uint32_t *bytes)
{
	uint32_t end = v->ip_length < v->available ? v->ip_length : v->available;

	*bytes = end - v->l4;
	return v->ip + v->l4;
}

enum icmp_kind icmp_kind(const struct packet_view *v)
{
	uint32_t bytes;
	const uint8_t *icmp = icmp_message(v, &bytes);

	if (bytes < ICMP_HEADER)
		return ICMP_BROKEN;
	if (v->version == 4) {
		if (icmp[0] == ECHO4)
			return ICMP_ECHO;
		if (icmp[0] == UNREACHABLE4 || icmp[0] == TIME_EXCEEDED4 || icmp[0] == PARAMETER4)
			return ICMP_ERROR;
		return ICMP_OTHER;
	}
	if (icmp[0] == ECHO6)
		return ICMP_ECHO;
	return icmp[0] >= UNREACHABLE6 && icmp[0] <= PARAMETER6 ? ICMP_ERROR : ICMP_OTHER;
}

bool icmp_is_too_big(const struct packet_view *v)
{
	uint32_t bytes;
	const uint8_t *icmp = icmp_message(v, &bytes);

	if (bytes < ICMP_HEADER)
		return false;
	if (v->version == 4)
		return icmp[0] == UNREACHABLE4 && icmp[1] == FRAGMENTATION_NEEDED;
	return icmp[0] == TOO_BIG6;
}

bool icmp_checksum_ok(const struct packet_view *v)
{
	uint32_t bytes, length = v->ip_length - v->l4, sum = 0;
	const uint8_t *icmp = icmp_message(v, &bytes);

	if (bytes < length)
		return false;
	if (v->version == 6)
		sum = sum_words(view_source(v), 32, length + IPPROTO_ICMPV6);
	return checksum(sum_words(icmp, length, sum)) == 0;
}

// Bytes of the quoted IPv6 header and its extension headers, or 0; `protocol` is what follows them.
static uint32_t quoted_ipv6_header(const uint8_t *quote, uint32_t bytes, uint8_t *protocol)
{
	uint32_t header = 40, length;

	if (bytes < header || quote[0] >> 4 != 6)
		return 0;
	*protocol = quote[6];
	for (int i = 0; i < MAX_EXTENSION_HEADERS && ipv6_is_extension(*protocol); i++) {
		if (header + 8 > bytes)
			return 0;
		if (*protocol == IPPROTO_FRAGMENT && (quote[header + 2] | (quote[header + 3] & 0xf8)) != 0)
			return 0; // a later fragment has no ports
		length = *protocol == IPPROTO_FRAGMENT ? 8 : (quote[header + 1] + 1u) * 8;
		*protocol = quote[header];
		header += length;
	}
	return header;
}

// Where the quoted packet's ports stand, or NULL. Its total length is not looked at: a quote is cut short by nature.
static const uint8_t *quoted_ports(const uint8_t *quote, uint32_t bytes, uint8_t version, uint8_t *protocol)
{
	uint32_t header;

	if (version == 4) {
		if (bytes < 20 || quote[0] >> 4 != 4)
			return NULL;
		header = (quote[0] & 0x0fu) * 4;
		*protocol = quote[9];
		if (header < 20 || ((quote[6] & 0x1f) | quote[7]) != 0)
			return NULL; // a later fragment has no ports
	} else {
		header = quoted_ipv6_header(quote, bytes, protocol);
		if (header == 0)
			return NULL;
	}
	if (*protocol != IPPROTO_TCP && *protocol != IPPROTO_UDP)
		return NULL;
	return header + PORTS <= bytes ? quote + header : NULL;
}

bool icmp_quoted_flow(struct packet_view *v)
{
	uint32_t bytes;
	const uint8_t *quote = icmp_message(v, &bytes) + ICMP_HEADER;
	uint8_t length = view_address_length(v), protocol;
	uint32_t addresses = v->version == 4 ? 12 : 8;
	const uint8_t *ports = quoted_ports(quote, bytes - ICMP_HEADER, v->version, &protocol);
	uint16_t source, destination;

	if (ports == NULL || memcmp(quote + addresses, view_destination(v), length) != 0)
		return false;
	memcpy(&source, ports, 2);
	memcpy(&destination, ports + 2, 2);
	flow_key_fill(&v->key, quote + addresses + length, quote + addresses, length, destination, source, protocol);
	v->flow_protocol = protocol;
	v->destination_port = ntohs(source);
	return true;
}

static bool unicast4(const uint8_t *a)
{
	return a[0] != 0 && a[0] != 127 && a[0] < 224;
}

static bool unicast6(const uint8_t *a)
{
	static const uint8_t unspecified_or_loopback[15] = {0};

	return a[0] != 0xff && !(memcmp(a, unspecified_or_loopback, 15) == 0 && a[15] <= 1);
}

bool icmp_may_answer(const struct packet_view *v)
{
	const uint8_t *source = view_source(v);

	if (memcmp(source, view_destination(v), view_address_length(v)) == 0)
		return false;
	return v->version == 4 ? unicast4(source) : unicast6(source);
}

static bool source_routed4(const uint8_t *option, const uint8_t *end)
{
	while (option < end && *option != OPTION_END) {
		if (*option == OPTION_LOOSE_ROUTE || *option == OPTION_STRICT_ROUTE)
			return true;
		if (*option == OPTION_NONE)
			option++;
		else if (end - option >= 2 && option[1] >= 2)
			option += option[1];
		else
			return false; // no sense can be made of what follows
	}
	return false;
}

// parse_ip() has seen that the headers are within the packet.
static bool source_routed6(const uint8_t *ip, uint32_t end)
{
	uint8_t type = ip[6];
	uint32_t at = 40;

	while (at < end) {
		uint32_t length = type == IPPROTO_FRAGMENT ? 8 : (ip[at + 1] + 1u) * 8;

		if (type == IPPROTO_ROUTING)
			return true;
		type = ip[at];
		at += length;
	}
	return false;
}

bool icmp_is_source_routed(const struct packet_view *v)
{
	return v->version == 4 ? source_routed4(v->ip + 20, v->ip + v->l4) : source_routed6(v->ip, v->l4);
}

void icmp_echo_reply(uint8_t *ip, const struct packet_view *v)
{
	uint8_t source[16];
	uint8_t length = view_address_length(v);
	uint8_t *from = ip + (v->version == 4 ? 12 : 8), *icmp = ip + v->l4;
	uint32_t sum = (uint16_t)~read16(icmp + 2);
	uint8_t type = v->version == 4 ? ECHO_REPLY4 : ECHO_REPLY6;

	memcpy(source, from, length);
	memcpy(from, from + length, length);
	memcpy(from + length, source, length);
	// RFC 1624: the checksum changes by what the type's word changes; addresses in the pseudo header only swap.
	sum += (uint16_t)~read16(icmp);
	icmp[0] = type;
	sum += read16(icmp);
	sum = checksum(sum);
	// 0xffff says the same as 0, and is right also when all else is 0 and no pseudo header is added (RFC 1624 3).
	write16(icmp + 2, sum == 0 && v->version == 4 ? 0xffff : sum);
	if (v->version == 6) {
		ip[7] = TTL;
		return;
	}
	ip[8] = TTL;
	write16(ip + 10, 0);
	write16(ip + 10, checksum(sum_words(ip, v->l4, 0)));
}

uint32_t icmp_quote_length(const struct packet_view *v)
{
	uint32_t most = (v->version == 4 ? ICMP_ERROR_IPV4 : ICMP_ERROR_IPV6) - icmp_too_big_headers(v);
	uint32_t bytes = v->ip_length < v->available ? v->ip_length : v->available;

	return bytes < most ? bytes : most;
}

static void too_big_ipv4(uint8_t *ip, const uint8_t *addresses, uint32_t quoted, uint32_t mtu, uint16_t id)
{
	uint8_t *icmp = ip + 20;

	memset(ip, 0, 20 + ICMP_HEADER);
	ip[0] = 0x45;
	write16(ip + 2, 20 + ICMP_HEADER + quoted);
	write16(ip + 4, id);
	ip[8] = TTL;
	ip[9] = IPPROTO_ICMP;
	memcpy(ip + 12, addresses + 4, 4);
	memcpy(ip + 16, addresses, 4);
	write16(ip + 10, checksum(sum_words(ip, 20, 0)));
	icmp[0] = UNREACHABLE4;
	icmp[1] = FRAGMENTATION_NEEDED;
	write16(icmp + 6, mtu);
	write16(icmp + 2, checksum(sum_words(icmp, ICMP_HEADER + quoted, 0)));
}

static void too_big_ipv6(uint8_t *ip, const uint8_t *addresses, uint32_t quoted, uint32_t mtu)
{
	uint8_t *icmp = ip + 40;
	uint32_t length = ICMP_HEADER + quoted;

	memset(ip, 0, 40 + ICMP_HEADER);
	ip[0] = 0x60;
	write16(ip + 4, length);
	ip[6] = IPPROTO_ICMPV6;
	ip[7] = TTL;
	memcpy(ip + 8, addresses + 16, 16);
	memcpy(ip + 24, addresses, 16);
	icmp[0] = TOO_BIG6;
	write16(icmp + 4, mtu >> 16);
	write16(icmp + 6, mtu);
	write16(icmp + 2, checksum(sum_words(icmp, length, sum_words(ip + 8, 32, length + IPPROTO_ICMPV6))));
}

void icmp_too_big_write(uint8_t *ip, uint8_t version, const uint8_t *addresses, uint32_t quoted, uint32_t mtu,
			uint16_t id)
{
	if (version == 4)
		too_big_ipv4(ip, addresses, quoted, mtu, id);
	else
		too_big_ipv6(ip, addresses, quoted, mtu);
}
