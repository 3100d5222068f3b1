#include "checksum.h"

#include <netinet/in.h>

#include "wire.h"

enum { TCP_CHECKSUM = 16, UDP_CHECKSUM = 6 };

static uint32_t field(const struct packet_view *v)
{
	return v->l4 + (v->protocol == IPPROTO_TCP ? (uint32_t)TCP_CHECKSUM : (uint32_t)UDP_CHECKSUM);
}

static uint32_t pseudo_header(const struct packet_view *v)
{
	return sum_words(view_source(v), 2u * view_address_length(v), v->ip_length - v->l4 + v->protocol);
}

bool checksum_looks_unfinished(const struct packet_view *v)
{
	const uint8_t *at = v->ip + field(v);

	return read16(at) == fold(pseudo_header(v));
}

void checksum_finish(uint8_t *ip, const struct packet_view *v)
{
	uint8_t *at = ip + field(v);
	uint32_t length = v->ip_length - v->l4;
	uint16_t sum;

	if (fold(sum_words(ip + v->l4, length, pseudo_header(v))) == 0xffff)
		return; // it is right as it is
	write16(at, 0);
	sum = (uint16_t)~fold(sum_words(ip + v->l4, length, pseudo_header(v)));
	if (sum == 0 && v->protocol == IPPROTO_UDP)
		sum = 0xffff; // 0 would say that there is none
	write16(at, sum);
}
