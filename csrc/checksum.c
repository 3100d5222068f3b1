#include "checksum.h"

#include <netinet/in.h>

enum { TCP_CHECKSUM = 16, UDP_CHECKSUM = 6 };

static uint32_t add(const uint8_t *p, uint32_t length, uint32_t sum)
{
	for (; length > 1; p += 2, length -= 2)
		sum += (uint32_t)(p[0] << 8 | p[1]);
	return length > 0 ? sum + (uint32_t)(p[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)(sum + (sum >> 16));
}

static uint32_t field(const struct packet_view *v)
{
	return v->l4 + (v->protocol == IPPROTO_TCP ? (uint32_t)TCP_CHECKSUM : (uint32_t)UDP_CHECKSUM);
}

static uint32_t pseudo_header(const struct packet_view *v)
{
	return add(view_source(v), 2u * view_address_length(v), v->ip_length - v->l4 + v->protocol);
}

bool checksum_looks_unfinished(const struct packet_view *v)
{
	const uint8_t *at = v->ip + field(v);

	return (at[0] << 8 | at[1]) == fold(pseudo_header(v));
}

void checksum_finish(uint8_t *ip, const struct packet_view *v)
{
	uint8_t *at = ip + field(v);
	uint32_t length = v->ip_length - v->l4;
	uint16_t sum;

	if (fold(add(ip + v->l4, length, pseudo_header(v))) == 0xffff)
		return; // it is right as it is
	at[0] = at[1] = 0;
	sum = (uint16_t)~fold(add(ip + v->l4, length, pseudo_header(v)));
	if (sum == 0 && v->protocol == IPPROTO_UDP)
		sum = 0xffff; // 0 would say that there is none
	at[0] = (uint8_t)(sum >> 8);
	at[1] = (uint8_t)sum;
}
