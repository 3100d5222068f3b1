// The outer headers: IPv4 or IPv6, then GRE without key (RFC 2784). The inner packet is never touched.
// [pure] A template per backend is built with the state; per packet only length, id, class and checksum change.

#ifndef MAGLEV_ENCAP_H
#define MAGLEV_ENCAP_H

#include <stdint.h>

#include "parse.h"

enum { ENCAP_IPV4 = 24, ENCAP_IPV6 = 44, ENCAP_TTL = 64 };

struct encap_template {
	uint8_t header[ENCAP_IPV6]; // outer IP and GRE
	uint8_t length;             // ENCAP_IPV4 or ENCAP_IPV6
	uint8_t unused;
	uint16_t partial_sum; // IPv4: one's complement sum of the constant fields
};

// Addresses in network order, 4 bytes each or 16 bytes each.
void encap_template_ipv4(struct encap_template *t, const uint8_t *source, const uint8_t *destination);
void encap_template_ipv6(struct encap_template *t, const uint8_t *source, const uint8_t *destination);

// Write the outer headers at `outer`, which has t->length bytes, for the packet `inner`. `id` goes into the outer
// IPv4 header when the inner packet may be fragmented, `flow_label` (20 bits) into the outer IPv6 header.
void encap_write(const struct encap_template *t, uint8_t *outer, const struct packet_view *inner, uint16_t id,
		 uint32_t flow_label);

#endif
