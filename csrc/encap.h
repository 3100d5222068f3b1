// The outer headers: IPv4 or IPv6, then GRE without key (RFC 2784). The inner packet is never touched.
// [pure] A template per backend is built with the state; per packet only length, id, class and checksum change.

#ifndef MAGLEV_ENCAP_H
#define MAGLEV_ENCAP_H

#include <stdbool.h>
#include <stdint.h>

#include "parse.h"

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

// Write the outer headers at `outer`, which has t->length bytes, for the packet `inner`. `id` goes into the outer
// IPv4 header when the inner packet may be fragmented, `flow_label` (20 bits) into the outer IPv6 header.
void encap_write(const struct encap_template *t, uint8_t *outer, const struct packet_view *inner, uint16_t id,
		 uint32_t flow_label);

#endif
