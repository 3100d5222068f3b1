// Frame -> packet view: where the headers are and what they say, every access bounds-checked.
// [pure] Two steps, because a packet that is not for a vip must not be judged by its layer 4 (DESIGN 4, precedence).

#ifndef MAGLEV_PARSE_H
#define MAGLEV_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "fate.h"
#include "flow.h"

enum parse_result {
	PARSE_OK,
	PARSE_NOT_IP,    // some other protocol's frame
	PARSE_MALFORMED, // a header contradicts itself or the frame; `fault` of the view says how
};

enum { MAX_EXTENSION_HEADERS = 8 }; // of IPv6: more than any honest packet has

enum { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10 };

// Filled by parse_ip() and then parse_transport(); plain values, valid as long as the frame is not moved.
// In words of eight bytes, so that plain.h can write several fields at once.
struct packet_view {
	const uint8_t *ip;    // first byte of the IP header

	uint32_t ip_length;   // of the whole IP packet, Ethernet padding excluded
	uint32_t available;   // bytes from `ip` that may be read

	uint16_t l3;          // offset of `ip` in the frame: the Ethernet header and at most two VLAN tags
	uint16_t l4;          // offset of the transport header from `ip`
	uint16_t destination_port; // host order
	uint16_t fragment_offset;  // in units of 8 bytes; 0 for a first fragment

	uint8_t version;       // 4 or 6
	uint8_t protocol;      // of the transport header, behind IPv6 extension headers
	uint8_t flow_protocol; // of the flow that the packet belongs to; another one only for ICMP errors (icmp.h)
	uint8_t traffic_class; // DSCP and ECN
	uint8_t ttl;           // TTL or hop limit
	uint8_t tcp_flags;
	bool dont_fragment;    // IPv4 DF; true for IPv6
	bool has_ports;        // TCP or UDP with its ports at hand: never a later fragment

	bool fragment;         // part of a fragmented datagram, first or later
	uint8_t fault;         // enum reason of what is malformed
	uint32_t fragment_id;  // of the datagram that a fragment is part of
	struct flow_key key;   // complete when has_ports
};

// `available` of the `length` bytes of the frame are contiguous at `frame`.
enum parse_result parse_ip(const uint8_t *frame, uint32_t available, uint32_t length, struct packet_view *view);

// After parse_ip() said PARSE_OK. Later fragments and protocols without ports are PARSE_OK with has_ports false; a broken
// header is PARSE_MALFORMED, with has_ports true when at least the ports could be read.
enum parse_result parse_transport(struct packet_view *view);

// Make a later fragment's view that of the flow of its first one; ports in network order.
void parse_later_fragment(struct packet_view *view, uint16_t source_port, uint16_t destination_port, uint8_t protocol);

// Whether an IPv6 header of this type is followed by another: hop-by-hop, routing, fragment, destination options.
static inline bool ipv6_is_extension(uint8_t type)
{
	return type == 0 || type == 43 || type == 44 || type == 60;
}

static inline const uint8_t *view_source(const struct packet_view *v)
{
	return v->ip + (v->version == 4 ? 12 : 8);
}

static inline const uint8_t *view_destination(const struct packet_view *v)
{
	return v->ip + (v->version == 4 ? 16 : 24);
}

static inline uint8_t view_address_length(const struct packet_view *v)
{
	return v->version == 4 ? 4 : 16;
}

#endif
