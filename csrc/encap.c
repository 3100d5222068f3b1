#include "encap.h"

enum { RECURSION_ONE = 0x01 }; // first byte of the GRE header
enum { CE = 3 };               // of the two ECN bits: congestion experienced

void encap_template_ipv4(struct encap_template *t, const uint8_t *source, const uint8_t *destination)
{
	memset(t, 0, sizeof(*t));
	t->length = ENCAP_IPV4;
	t->header[0] = 0x45;
	t->header[8] = ENCAP_TTL;
	t->header[9] = IPPROTO_GRE;
	memcpy(t->header + 12, source, 4);
	memcpy(t->header + 16, destination, 4);
	t->partial_sum = fold(sum_words(t->header, 20, 0));
}

void encap_template_ipv6(struct encap_template *t, const uint8_t *source, const uint8_t *destination)
{
	memset(t, 0, sizeof(*t));
	t->length = ENCAP_IPV6;
	t->header[0] = 0x60;
	t->header[6] = IPPROTO_GRE;
	t->header[7] = ENCAP_TTL;
	memcpy(t->header + 8, source, 16);
	memcpy(t->header + 24, destination, 16);
}

void encap_template_mark(struct encap_template *t)
{
	t->header[t->length - ENCAP_GRE] = RECURSION_ONE;
}

uint32_t encap_marked(const struct packet_view *outer, uint16_t *ethertype)
{
	const uint8_t *gre = outer->ip + outer->l4;
	uint32_t end = outer->ip_length < outer->available ? outer->ip_length : outer->available;

	if (outer->fragment || outer->protocol != IPPROTO_GRE || outer->l4 + (uint32_t)ENCAP_GRE > end)
		return 0;
	*ethertype = read16(gre + 2);
	if (gre[0] != RECURSION_ONE || gre[1] != 0 || (*ethertype != 0x0800 && *ethertype != 0x86dd))
		return 0;
	return outer->l4 + (uint32_t)ENCAP_GRE;
}

bool encap_carry_congestion(uint8_t outer_class, uint8_t *ip)
{
	bool four = ip[0] >> 4 == 4;
	uint8_t inner = four ? ip[1] & CE : ip[1] >> 4 & CE;

	if ((outer_class & CE) != CE || inner == CE)
		return true;
	if (inner == 0)
		return false;
	ip[1] |= four ? CE : CE << 4;
	if (four) { // RFC 1624: the word has grown by what is set
		uint16_t sum = (uint16_t)~read16(ip + 10);

		write16(ip + 10, (uint16_t)~fold(sum + (uint32_t)(CE - inner)));
	}
	return true;
}

void encap_write_ipv6(const struct encap_template *t, uint8_t *outer, const struct packet_view *inner,
		      uint32_t flow_label)
{
	memcpy(outer, t->header, ENCAP_IPV6);
	outer[0] = (uint8_t)(0x60 | inner->traffic_class >> 4);
	outer[1] = (uint8_t)(inner->traffic_class << 4 | (flow_label >> 16 & 0x0f));
	write16(outer + 2, flow_label & 0xffff);
	write16(outer + 4, ENCAP_IPV6 - 40u + inner->ip_length);
	write16(outer + ENCAP_IPV6 - 2, inner->version == 4 ? 0x0800 : 0x86dd);
}
