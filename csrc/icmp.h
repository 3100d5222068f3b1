// ICMP and ICMPv6 to a vip: errors about a flow, echo requests, and the too-big errors of our own.
// [pure] Works on a packet view whose parse_transport() has found protocol ICMP or ICMPv6 and no fragment.

#ifndef MAGLEV_ICMP_H
#define MAGLEV_ICMP_H

#include "parse.h"

enum icmp_kind {
	ICMP_OTHER,
	ICMP_ECHO,  // a request
	ICMP_ERROR, // quotes a packet of the flow that it is about
	ICMP_BROKEN, // shorter than its header
};

enum {
	ICMP_HEADER = 8,
	// Most that an error of ours may have, so that nobody must fragment it (RFC 1812 4.3.2.3, RFC 4443 2.4).
	ICMP_ERROR_IPV4 = 576,
	ICMP_ERROR_IPV6 = 1280,
};

static inline bool icmp_is(const struct packet_view *v)
{
	return !v->fragment && v->protocol == (v->version == 4 ? 1 : 58);
}

enum icmp_kind icmp_kind(const struct packet_view *v);

// The message and how many of its bytes may be read.
const uint8_t *icmp_message(const struct packet_view *v, uint32_t *bytes);

// Whether it says that a packet was too big for some link; then it has at least a whole header.
bool icmp_is_too_big(const struct packet_view *v);

// False also when not all of the message can be read.
bool icmp_checksum_ok(const struct packet_view *v);

// Make the view's flow that of the quoted packet reversed, so that an error meets the flow it is about: the quoted
// source is who the error is sent to. 8 bytes of the quoted layer 4 are enough. Returns false when the quote cannot
// be read, has no ports, or was not sent by the address that the error is sent to.
bool icmp_quoted_flow(struct packet_view *v);

// Whether the sender may be answered: a unicast address of somebody else (RFC 1122 3.2.2, RFC 4443 2.4 e).
bool icmp_may_answer(const struct packet_view *v);

// Whether the sender chose the packet's way, by an option of IPv4 or a routing header of IPv6: a reply would have to go
// the same way back, which nobody wants it to (RFC 1122 3.2.2.6, RFC 8200 8.4).
bool icmp_is_source_routed(const struct packet_view *v);

// Turn an echo request into its reply, where it stands.
void icmp_echo_reply(uint8_t *ip, const struct packet_view *v);

// Bytes that a too-big error quotes of the packet.
uint32_t icmp_quote_length(const struct packet_view *v);

// Bytes of the headers of a too-big error, before its quote.
static inline uint32_t icmp_too_big_headers(const struct packet_view *v)
{
	return (v->version == 4 ? 20u : 40u) + ICMP_HEADER;
}

// Write the headers of the error "too big, `mtu` would fit" at `ip`, from the vip to the packet's sender. Its quote,
// `quoted` bytes of the packet, stands behind them already. `addresses` are the packet's source and destination.
void icmp_too_big_write(uint8_t *ip, uint8_t version, const uint8_t *addresses, uint32_t quoted, uint32_t mtu,
			uint16_t id);

#endif
