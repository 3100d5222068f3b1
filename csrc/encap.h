// The outer headers: IPv4 or IPv6, then GRE without key (RFC 2784). The inner packet is never touched.
// [pure] A template per backend is built with the state; per packet only length, id, class and checksum change.

#ifndef MAGLEV_ENCAP_H
#define MAGLEV_ENCAP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "parse.h"
#include "wire.h"

enum { ENCAP_IPV4 = 24, ENCAP_IPV6 = 44, ENCAP_TTL = 64, ENCAP_GRE = 4 };

struct encap_template {
	uint8_t header[ENCAP_IPV6]; // outer IP and GRE
	uint8_t length;             // ENCAP_IPV4 or ENCAP_IPV6
	uint8_t unused;
	uint16_t partial_sum; // IPv4: one's complement sum of the constant fields
};

// Addresses in network order, 4 bytes each or 16 bytes each.
void encap_template_ipv4(struct encap_template *t, const uint8_t *source, const uint8_t *destination);
void encap_template_ipv6(struct encap_template *t, const uint8_t *source, const uint8_t *destination);

// Mark all packets of this template as on their one extra hop, between nodes of a cluster: recursion control (RFC 1701) 1.
void encap_template_mark(struct encap_template *t);

// Whom packets of this template are sent to: 4 or 16 bytes.
static inline const uint8_t *encap_destination(const struct encap_template *t)
{
	return t->header + (t->length == ENCAP_IPV4 ? 16 : 24);
}

// Of a packet that is on its extra hop: the offset of the inner packet from outer->ip, and its ethertype. 0: it is not.
uint32_t encap_marked(const struct packet_view *outer, uint16_t *ethertype);

static inline const uint8_t *encap_source(const struct encap_template *t)
{
	return t->header + (t->length == ENCAP_IPV4 ? 12 : 8);
}

// Unwrapped: what a router noted on the outer packet (CE in its traffic class) goes into the inner one at `ip`, whose header
// is complete, as RFC 6040 4.2 has it. Returns false when the packet must be dropped, since its sender knows no ECN.
bool encap_carry_congestion(uint8_t outer_class, uint8_t *ip);

// What an inner packet puts into the outer IPv4 header, its id and checksum left out: in a word as the machine has it to
// be laid over the first eight bytes, and as a summand of the checksum. plain.c does this for many packets side by side.
static inline uint64_t encap_ipv4_word(uint64_t traffic_class, uint64_t inner_length, uint64_t dont_fragment)
{
	uint64_t length = ENCAP_IPV4 + inner_length;

	// DSCP, and ECN as RFC 6040 normal mode.
	return traffic_class << 8 | (length & 0xff) << 24 | (length >> 8 & 0xff) << 16 | dont_fragment << 54;
}

static inline uint64_t encap_ipv4_sum(uint64_t traffic_class, uint64_t inner_length, uint64_t dont_fragment)
{
	return traffic_class + ENCAP_IPV4 + inner_length + (dont_fragment << 14);
}

// The header is put together in registers and written at once. An `id` only where the packet may be fragmented, else 0:
// it has no meaning then (RFC 6864).
static inline void encap_write_ipv4(const struct encap_template *t, uint8_t *outer, uint64_t word, uint32_t sum,
				    uint16_t id, uint8_t inner_version)
{
	uint64_t first, second, third;

	memcpy(&first, t->header, 8);
	memcpy(&second, t->header + 8, 8);
	memcpy(&third, t->header + 16, 8);
	first |= word | (uint64_t)htons(id) << 32;
	second |= (uint32_t)htons((uint16_t)~fold(t->partial_sum + sum + id)) << 16;
	third |= (uint64_t)htons(inner_version == 4 ? 0x0800 : 0x86dd) << 48;
	memcpy(outer, &first, 8);
	memcpy(outer + 8, &second, 8);
	memcpy(outer + 16, &third, 8);
}

void encap_write_ipv6(const struct encap_template *t, uint8_t *outer, const struct packet_view *inner,
		      uint32_t flow_label);

// Write the outer headers at `outer`, which has t->length bytes, for the packet `inner`. `id` goes into the outer
// IPv4 header when the inner packet may be fragmented, `flow_label` (20 bits) into the outer IPv6 header.
static inline void encap_write(const struct encap_template *t, uint8_t *outer, const struct packet_view *inner,
			       uint16_t id, uint32_t flow_label)
{
	uint64_t word, sum;

	if (t->length != ENCAP_IPV4) {
		encap_write_ipv6(t, outer, inner, flow_label);
		return;
	}
	word = encap_ipv4_word(inner->traffic_class, inner->ip_length, inner->dont_fragment);
	sum = encap_ipv4_sum(inner->traffic_class, inner->ip_length, inner->dont_fragment);
	encap_write_ipv4(t, outer, word, (uint32_t)sum, inner->dont_fragment ? 0 : id, inner->version);
}

#endif
