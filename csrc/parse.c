#include "parse.h"

#include <netinet/in.h>

#include "wire.h"

enum {
	ETHERNET_HEADER = 14,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_QINQ = 0x88a8,
	VLAN_TAG = 4,
	MAX_TAGS = 2,
	IPV4_HEADER = 20,
	IPV6_HEADER = 40,
	TCP_HEADER = 20,
	UDP_HEADER = 8,
};

static enum parse_result malformed(struct packet_view *v, enum reason fault)
{
	v->fault = (uint8_t)fault;
	return PARSE_MALFORMED;
}

static enum parse_result parse_ipv4(struct packet_view *v)
{
	const uint8_t *ip = v->ip;
	uint32_t header, frame_bytes = v->ip_length;
	uint16_t fragment;

	if (v->available < IPV4_HEADER)
		return malformed(v, REASON_ipv4_cut);
	if (ip[0] >> 4 != 4)
		return malformed(v, REASON_ipv4_version);
	header = (ip[0] & 0x0fu) * 4;
	v->ip_length = read16(ip + 2);
	if (header < IPV4_HEADER || header > v->available)
		return malformed(v, REASON_ipv4_header_length);
	if (v->ip_length < header || v->ip_length > frame_bytes)
		return malformed(v, REASON_ipv4_total_length);
	if (fold(sum_words(ip, header, 0)) != 0xffff)
		return malformed(v, REASON_ipv4_checksum);
	fragment = read16(ip + 6);
	v->version = 4;
	v->traffic_class = ip[1];
	v->ttl = ip[8];
	v->protocol = ip[9];
	v->dont_fragment = (fragment & 0x4000) != 0;
	v->fragment = (fragment & 0x3fff) != 0;
	v->fragment_offset = fragment & 0x1fff;
	v->fragment_id = read16(ip + 4);
	v->l4 = (uint16_t)header;
	return PARSE_OK;
}

// An atomic fragment (offset 0, no more to come) is a whole packet, RFC 6946.
static void read_fragment_header(struct packet_view *v, const uint8_t *header)
{
	uint16_t word = read16(header + 2);

	v->fragment = (word & 0xfff9) != 0;
	v->fragment_offset = word >> 3;
	v->fragment_id = read32(header + 4);
}

// Walk to the transport header. An unknown header ends the walk as a protocol without ports; so does the fragment
// header of a later fragment, behind which the middle of the datagram stands, whatever it says comes next.
static enum parse_result skip_extension_headers(struct packet_view *v, uint8_t next)
{
	uint32_t at = IPV6_HEADER;
	uint32_t end = v->ip_length < v->available ? v->ip_length : v->available;
	bool met_fragment = false;

	for (int i = 0; i <= MAX_EXTENSION_HEADERS; i++) {
		if (v->fragment_offset != 0 || !ipv6_is_extension(next)) {
			v->protocol = next;
			v->l4 = (uint16_t)at;
			return PARSE_OK;
		}
		if (at + 8 > end)
			return malformed(v, REASON_ipv6_extension_cut);
		if (next == IPPROTO_FRAGMENT) {
			if (met_fragment)
				return malformed(v, REASON_ipv6_fragments);
			met_fragment = true;
			read_fragment_header(v, v->ip + at);
			next = v->ip[at];
			at += 8;
		} else {
			uint32_t length = (v->ip[at + 1] + 1u) * 8;

			next = v->ip[at];
			at += length;
		}
		if (at > end)
			return malformed(v, REASON_ipv6_extension_cut);
	}
	return malformed(v, REASON_ipv6_extensions);
}

static enum parse_result parse_ipv6(struct packet_view *v)
{
	const uint8_t *ip = v->ip;
	uint32_t frame_bytes = v->ip_length;

	if (v->available < IPV6_HEADER)
		return malformed(v, REASON_ipv6_cut);
	if (ip[0] >> 4 != 6)
		return malformed(v, REASON_ipv6_version);
	v->ip_length = IPV6_HEADER + read16(ip + 4);
	if (v->ip_length > frame_bytes)
		return malformed(v, REASON_ipv6_payload_length);
	v->version = 6;
	v->traffic_class = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
	v->ttl = ip[7];
	v->dont_fragment = true;
	v->fragment = false;
	v->fragment_offset = 0;
	return skip_extension_headers(v, ip[6]);
}

static bool is_tag(uint16_t ethertype)
{
	return ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_QINQ;
}

enum parse_result parse_ip(const uint8_t *frame, uint32_t available, uint32_t length, struct packet_view *view)
{
	uint16_t l3 = ETHERNET_HEADER;

	if (available < ETHERNET_HEADER)
		return malformed(view, REASON_ethernet_cut);
	for (int tags = 0; tags < MAX_TAGS && is_tag(read16(frame + l3 - 2)); tags++) {
		l3 += VLAN_TAG;
		if (available < l3)
			return malformed(view, REASON_ethernet_cut);
	}
	view->l3 = l3;
	view->ip = frame + l3;
	view->ip_length = length - l3;
	view->available = available - l3;
	view->has_ports = false;
	view->tcp_flags = 0;
	view->destination_port = 0;
	switch (read16(frame + l3 - 2)) {
	case ETHERTYPE_IPV4:
		return parse_ipv4(view);
	case ETHERTYPE_IPV6:
		return parse_ipv6(view);
	default:
		return PARSE_NOT_IP;
	}
}

static bool tcp_fits(struct packet_view *v, const uint8_t *l4, uint32_t bytes)
{
	uint32_t header;

	if (bytes < TCP_HEADER)
		return false;
	header = (l4[12] >> 4) * 4u;
	v->tcp_flags = l4[13];
	return header >= TCP_HEADER && header <= v->ip_length - v->l4;
}

// A first fragment has less than its datagram's length.
static bool udp_fits(const struct packet_view *v, const uint8_t *l4, uint32_t bytes)
{
	return bytes >= UDP_HEADER && read16(l4 + 4) >= UDP_HEADER &&
	       (v->fragment || read16(l4 + 4) <= v->ip_length - v->l4);
}

static void set_flow(struct packet_view *v, uint16_t source_port, uint16_t destination_port)
{
	flow_key_fill(&v->key, view_source(v), view_destination(v), view_address_length(v), source_port, destination_port,
		      v->protocol);
	v->flow_protocol = v->protocol;
	v->destination_port = ntohs(destination_port);
	v->has_ports = true;
}

void parse_later_fragment(struct packet_view *v, uint16_t source_port, uint16_t destination_port, uint8_t protocol)
{
	v->protocol = protocol;
	set_flow(v, source_port, destination_port);
}

enum parse_result parse_transport(struct packet_view *v)
{
	const uint8_t *l4 = v->ip + v->l4;
	uint32_t end = v->ip_length < v->available ? v->ip_length : v->available;
	uint32_t bytes = end - v->l4;
	uint16_t ports[2];

	if (v->fragment && v->fragment_offset != 0)
		return PARSE_OK; // the middle of a datagram: no ports stand here
	if (v->protocol != IPPROTO_TCP && v->protocol != IPPROTO_UDP)
		return PARSE_OK;
	if (bytes < sizeof(ports))
		return malformed(v, REASON_ports_cut);
	memcpy(ports, l4, sizeof(ports));
	set_flow(v, ports[0], ports[1]);
	if (v->protocol == IPPROTO_TCP)
		return tcp_fits(v, l4, bytes) ? PARSE_OK : malformed(v, REASON_tcp_header);
	return udp_fits(v, l4, bytes) ? PARSE_OK : malformed(v, REASON_udp_header);
}
