#include "harness.h"

#include "parse.h"
#include "plain.h"

enum { ETH = 14, MAX_FRAME = 512, TCP = 6, UDP = 17, ICMP = 1, ICMP6 = 58, GRE = 47 };
enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, AUTHENTICATION = 51, NO_NEXT = 59, DESTINATION = 60 };

struct frame {
	uint8_t bytes[MAX_FRAME];
	uint32_t length;
};

static const uint8_t CLIENT4[4] = {198, 51, 100, 7}, VIP4[4] = {192, 0, 2, 1};
static const uint8_t CLIENT6[16] = {0x20, 0x01, 0x0d, 0xb8, 1, [15] = 7}, VIP6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};

static void append(struct frame *f, const void *bytes, uint32_t n)
{
	if (n > 0)
		memcpy(f->bytes + f->length, bytes, n);
	f->length += n;
}

static void fix_checksum(struct frame *f)
{
	uint8_t *ip = f->bytes + ETH;
	uint32_t header = (ip[0] & 15u) * 4;

	put_be16(ip + 10, 0);
	put_be16(ip + 10, internet_checksum(ip, header));
}

static struct frame ipv4(uint8_t protocol, const void *payload, uint32_t n)
{
	struct frame f = {.bytes = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00}, .length = ETH};
	uint8_t header[20] = {0x45, 0x2e, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol};

	put_be16(header + 2, 20 + n);
	memcpy(header + 12, CLIENT4, 4);
	memcpy(header + 16, VIP4, 4);
	append(&f, header, 20);
	append(&f, payload, n);
	fix_checksum(&f);
	return f;
}

static struct frame ipv6(uint8_t next, const void *payload, uint32_t n)
{
	struct frame f = {.bytes = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd}, .length = ETH};
	uint8_t header[40] = {0x62, 0xe1, 0x23, 0x45, 0, 0, next, 63};

	put_be16(header + 4, n);
	memcpy(header + 8, CLIENT6, 16);
	memcpy(header + 24, VIP6, 16);
	append(&f, header, 40);
	append(&f, payload, n);
	return f;
}

static const uint8_t ACK[20] = {0x9c, 0x40, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0xff, 0xff};
static const uint8_t DATAGRAM[9] = {0x9c, 0x40, 0x00, 0x35, 0, 9, 0, 0, 'x'};

// The four good frames that the tables below spoil.
enum base { TCP4, UDP4, TCP6, UDP6, BASES };

static struct frame good(enum base base)
{
	switch (base) {
	case TCP4:
		return ipv4(TCP, ACK, sizeof(ACK));
	case UDP4:
		return ipv4(UDP, DATAGRAM, sizeof(DATAGRAM));
	case TCP6:
		return ipv6(TCP, ACK, sizeof(ACK));
	default:
		return ipv6(UDP, DATAGRAM, sizeof(DATAGRAM));
	}
}

struct outcome {
	enum parse_result ip;
	enum parse_result transport;
	struct packet_view view; // its `ip` must not be followed: the frame is gone
};

// The view of a frame that is plain; false: it is not.
static bool plain(const uint8_t *bytes, uint32_t available, uint32_t length, struct packet_view *v)
{
	const struct hash_key key = {1, 2};
	struct plain lanes[2] = {0};
	const struct plain *p;

	plain_begin(&lanes[0], 4);
	plain_begin(&lanes[1], 6);
	if (!plain_take(&lanes[0], &lanes[1], bytes, available, length, 0))
		return false;
	plain_finish(&lanes[0], &key);
	plain_finish(&lanes[1], &key);
	p = &lanes[lanes[0].count == 0];
	if (!p->good[0])
		return false;
	plain_view(p, 0, p->version, v);
	return true;
}

// What is plain, the two steps find good, and read alike.
static void check_plain(const uint8_t *bytes, uint32_t available, uint32_t length, const struct outcome *o)
{
	const struct packet_view *a = &o->view;
	struct packet_view p;

	if (!plain(bytes, available, length, &p))
		return;
	assert_true(o->ip == PARSE_OK && o->transport == PARSE_OK);
	assert_true(p.ip == a->ip && p.ip_length == a->ip_length && p.available == a->available);
	assert_true(p.l3 == a->l3 && p.l4 == a->l4 && p.version == a->version && p.protocol == a->protocol);
	assert_true(p.flow_protocol == a->flow_protocol && p.traffic_class == a->traffic_class && p.ttl == a->ttl);
	assert_true(p.tcp_flags == a->tcp_flags && p.dont_fragment == a->dont_fragment);
	assert_true(!p.fragment && !a->fragment && p.fragment_offset == 0 && p.has_ports && a->has_ports);
	assert_true(p.key.length == a->key.length && p.destination_port == a->destination_port);
	assert_memory_equal(p.key.bytes, a->key.bytes, a->key.length);
}

// `available` bytes of the frame stand at the very end of a block; good IP is found at `l3`, and only behind it a
// transport is looked at.
static struct outcome parse_at(const struct frame *f, uint32_t available, uint32_t l3)
{
	uint8_t *bytes = at_end_of_block(f->bytes, available);
	struct outcome o = {.transport = PARSE_OK};

	o.ip = parse_ip(bytes, available, f->length, &o.view);
	if (o.ip == PARSE_OK) {
		assert_ptr_equal(o.view.ip, bytes + l3);
		o.transport = parse_transport(&o.view);
	}
	check_plain(bytes, available, f->length, &o);
	free(bytes);
	return o;
}

static struct outcome parse_part(const struct frame *f, uint32_t available)
{
	return parse_at(f, available, ETH);
}

// Bytes from the transport header on that belong to the packet and may be read.
static uint32_t l4_bytes(const struct packet_view *v)
{
	uint32_t end = v->ip_length < v->available ? v->ip_length : v->available;

	return end - v->l4;
}

static struct outcome parse(const struct frame *f)
{
	return parse_part(f, f->length);
}

static void good_frames_are_read_field_by_field(void **state)
{
	static const struct {
		const char *what;
		enum base base;
		uint8_t version, protocol, traffic_class, ttl, flags;
		uint16_t l4, port;
		uint32_t length;
	} rows[] = {
		{"TCP over IPv4", TCP4, 4, TCP, 0x2e, 64, 0x10, 20, 80, 40},
		{"UDP over IPv4", UDP4, 4, UDP, 0x2e, 64, 0, 20, 53, 29},
		{"TCP over IPv6", TCP6, 6, TCP, 0x2e, 63, 0x10, 40, 80, 60},
		{"UDP over IPv6", UDP6, 6, UDP, 0x2e, 63, 0, 40, 53, 49},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct frame f = good(rows[i].base);
		struct outcome o = parse(&f);
		const char *what = rows[i].what;

		check_row(what, o.ip == PARSE_OK && o.transport == PARSE_OK);
		check_row(what, o.view.version == rows[i].version && o.view.protocol == rows[i].protocol);
		check_row(what, o.view.traffic_class == rows[i].traffic_class);
		check_row(what, o.view.ttl == rows[i].ttl && o.view.tcp_flags == rows[i].flags);
		check_row(what, o.view.l3 == ETH && o.view.l4 == rows[i].l4);
		check_row(what, o.view.ip_length == rows[i].length);
		check_row(what, o.view.has_ports && !o.view.fragment && o.view.dont_fragment);
		check_row(what, o.view.destination_port == rows[i].port);
	}
}

static void most_frames_are_plain(void **state)
{
	(void)state;
	for (enum base base = TCP4; base <= UDP6; base++) {
		struct frame f = good(base);
		struct packet_view v;

		f.length = f.length < ETH + 60 ? ETH + 60 : f.length; // as an Ethernet pads it
		assert_true(plain(f.bytes, f.length, f.length, &v));
	}
}

static void flow_key_is_addresses_ports_protocol_in_network_order(void **state)
{
	uint8_t four[13], six[37];
	struct frame f = good(TCP4);
	struct outcome o = parse(&f);

	(void)state;
	memcpy(four, CLIENT4, 4);
	memcpy(four + 4, VIP4, 4);
	memcpy(four + 8, ACK, 4);
	four[12] = TCP;
	assert_int_equal(o.view.key.length, 13);
	assert_memory_equal(o.view.key.bytes, four, 13);
	f = good(UDP6);
	o = parse(&f);
	memcpy(six, CLIENT6, 16);
	memcpy(six + 16, VIP6, 16);
	memcpy(six + 32, DATAGRAM, 4);
	six[36] = UDP;
	assert_int_equal(o.view.key.length, 37);
	assert_memory_equal(o.view.key.bytes, six, 37);
}

struct edit {
	uint16_t at; // from the start of the frame; byte 0 is a MAC's and means no edit
	uint8_t value;
};

struct spoiled {
	const char *what;
	enum base base;
	struct edit edits[3];
	uint32_t length; // of the frame; longer ones get zeros behind, 0 leaves it
	bool right_checksum; // computed anew after the edits
	enum parse_result ip;
	enum parse_result transport;
};

static struct frame spoil(const struct spoiled *row)
{
	struct frame f = good(row->base);

	for (size_t i = 0; i < COUNT(row->edits); i++)
		if (row->edits[i].at != 0)
			f.bytes[row->edits[i].at] = row->edits[i].value;
	if (row->right_checksum)
		fix_checksum(&f);
	if (row->length != 0)
		f.length = row->length;
	return f;
}

static void malformed_headers_are_told(void **state)
{
	static const struct spoiled rows[] = {
		{"v4 version 5", TCP4, {{14, 0x55}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 version 6 under the ethertype of 4", TCP4, {{14, 0x65}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 version 0", TCP4, {{14, 0x05}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 IHL 0", TCP4, {{14, 0x40}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 IHL 3", TCP4, {{14, 0x43}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 IHL 4", TCP4, {{14, 0x44}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 10 bytes of header", TCP4, {{0, 0}}, 24, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 19 bytes of header", TCP4, {{0, 0}}, 33, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 IHL 15 on a 40 byte packet", TCP4, {{14, 0x4f}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 IHL 15 on a 40 byte packet, padded", TCP4, {{14, 0x4f}}, 80, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 IHL 11, one word past the end", TCP4, {{14, 0x4b}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 total length 0", TCP4, {{17, 0}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 total length 19", TCP4, {{17, 19}}, 60, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 total length 20 leaves no TCP", TCP4, {{17, 20}}, 60, true, PARSE_OK, PARSE_MALFORMED},
		{"v4 total length 0xffff", TCP4, {{16, 0xff}, {17, 0xff}}, 60, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 total length one beyond the frame", TCP4, {{17, 41}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 total length one below IHL", TCP4, {{14, 0x46}, {17, 23}}, 0, true, PARSE_MALFORMED, PARSE_OK},
		{"v4 checksum off by one", TCP4, {{25, 0x01}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 checksum zero", TCP4, {{24, 0}, {25, 0}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v4 TTL changed without the checksum", TCP4, {{22, 63}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v6 version 5", TCP6, {{14, 0x52}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v6 version 4 under the ethertype of 6", TCP6, {{14, 0x42}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v6 39 bytes of header", TCP6, {{0, 0}}, 53, false, PARSE_MALFORMED, PARSE_OK},
		{"v6 payload length one beyond the frame", TCP6, {{19, 21}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v6 payload length 0xffff", TCP6, {{18, 0xff}, {19, 0xff}}, 0, false, PARSE_MALFORMED, PARSE_OK},
		{"v6 payload length 0 leaves no TCP", TCP6, {{19, 0}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 TCP of 19 bytes", TCP4, {{17, 39}}, 0, true, PARSE_OK, PARSE_MALFORMED},
		{"v4 TCP data offset 0", TCP4, {{46, 0x00}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 TCP data offset 4", TCP4, {{46, 0x40}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 TCP data offset 6 with 20 bytes", TCP4, {{46, 0x60}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 TCP data offset into padding", TCP4, {{46, 0x60}}, 60, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 TCP data offset 15", TCP4, {{46, 0xf0}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v6 TCP data offset 4", TCP6, {{66, 0x40}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v6 TCP data offset 15", TCP6, {{66, 0xf0}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 UDP of 7 bytes", UDP4, {{17, 27}}, 0, true, PARSE_OK, PARSE_MALFORMED},
		{"v4 UDP length 0", UDP4, {{39, 0}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 UDP length 7", UDP4, {{39, 7}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 UDP length one beyond the packet", UDP4, {{39, 10}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v4 UDP length into padding", UDP4, {{39, 20}}, 60, false, PARSE_OK, PARSE_MALFORMED},
		{"v6 UDP length 0", UDP6, {{59, 0}}, 0, false, PARSE_OK, PARSE_MALFORMED},
		{"v6 UDP length 0xffff", UDP6, {{58, 0xff}, {59, 0xff}}, 0, false, PARSE_OK, PARSE_MALFORMED},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct frame f = spoil(&rows[i]);
		struct outcome o = parse(&f);

		check_row(rows[i].what, o.ip == rows[i].ip);
		check_row(rows[i].what, o.transport == rows[i].transport);
		// Ports that can be read are told, so that a packet for no vip is not judged by the rest.
		check_row(rows[i].what, o.view.has_ports == (o.ip == PARSE_OK && l4_bytes(&o.view) >= 4));
	}
}

static void unusual_but_right_headers_are_taken(void **state)
{
	static const struct spoiled rows[] = {
		{"v4 TTL 0 is another stage's business", TCP4, {{22, 0}}, 0, true, PARSE_OK, PARSE_OK},
		{"v4 reserved flag bit", TCP4, {{20, 0x80}}, 0, true, PARSE_OK, PARSE_OK},
		{"v4 padding of 6 bytes", TCP4, {{0, 0}}, 60, false, PARSE_OK, PARSE_OK},
		{"v4 padding of 400 bytes", TCP4, {{0, 0}}, 454, false, PARSE_OK, PARSE_OK},
		{"v4 UDP length 8, shorter than the packet", UDP4, {{39, 8}}, 0, false, PARSE_OK, PARSE_OK},
		{"v4 port 0", TCP4, {{36, 0}, {37, 0}}, 0, false, PARSE_OK, PARSE_OK},
		{"v4 all TCP flags", TCP4, {{47, 0xff}}, 0, false, PARSE_OK, PARSE_OK},
		{"v6 hop limit 0", TCP6, {{21, 0}}, 0, false, PARSE_OK, PARSE_OK},
		{"v6 padding", UDP6, {{0, 0}}, 100, false, PARSE_OK, PARSE_OK},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct frame f = spoil(&rows[i]);
		struct outcome o = parse(&f);

		check_row(rows[i].what, o.ip == rows[i].ip && o.transport == rows[i].transport);
		check_row(rows[i].what, o.view.has_ports);
	}
}

static void padding_is_not_part_of_the_packet(void **state)
{
	struct frame f = good(TCP4);
	struct outcome o;

	(void)state;
	f.length = 60;
	o = parse(&f);
	assert_int_equal(o.view.ip_length, 40);
	f = good(UDP6);
	f.length = 64;
	o = parse(&f);
	assert_int_equal(o.view.ip_length, 49);
}

static void every_truncation_of_a_good_frame_is_malformed(void **state)
{
	(void)state;
	for (int base = 0; base < BASES; base++) {
		struct frame f = good((enum base)base);
		uint32_t whole = f.length;

		for (f.length = 0; f.length < whole; f.length++) {
			struct outcome o = parse(&f);

			assert_int_equal(o.ip, PARSE_MALFORMED);
		}
		assert_int_equal(parse(&f).ip, PARSE_OK);
	}
}

static void only_headers_must_be_in_the_first_buffer(void **state)
{
	static const uint32_t headers[BASES] = {[TCP4] = 54, [UDP4] = 42, [TCP6] = 74, [UDP6] = 62};

	(void)state;
	for (int base = 0; base < BASES; base++) {
		struct frame f = good((enum base)base);

		for (uint32_t available = 0; available <= f.length; available++) {
			struct outcome o = parse_part(&f, available);
			bool good = o.ip == PARSE_OK && o.transport == PARSE_OK && o.view.has_ports;

			assert_int_equal(good, available >= headers[base]);
		}
	}
}

static void ipv4_options_are_skipped_up_to_60_bytes(void **state)
{
	(void)state;
	for (uint8_t words = 6; words <= 15; words++) {
		uint8_t payload[60] = {0};
		uint32_t options = (words - 5u) * 4;
		struct frame f;
		struct outcome o;

		memset(payload, 1, options); // no-operation options
		memcpy(payload + options, ACK, sizeof(ACK));
		f = ipv4(TCP, payload, options + 20);
		f.bytes[ETH] = (uint8_t)(0x40 | words);
		fix_checksum(&f);
		o = parse(&f);
		assert_int_equal(o.ip, PARSE_OK);
		assert_int_equal(o.transport, PARSE_OK);
		assert_int_equal(o.view.l4, words * 4);
		assert_int_equal(o.view.destination_port, 80);
		f.bytes[ETH + words * 4 - 1] ^= 1; // the checksum covers options too
		assert_int_equal(parse(&f).ip, PARSE_MALFORMED);
	}
}

static void other_ethertypes_are_not_ip(void **state)
{
	static const uint16_t types[] = {0x0806, 0x9100, 0x88cc, 0x0000, 0x05dc, 0x0801, 0x86dc, 0xffff};

	(void)state;
	for (size_t i = 0; i < COUNT(types); i++) {
		struct frame f = good(TCP4);

		put_be16(f.bytes + 12, types[i]);
		assert_int_equal(parse(&f).ip, PARSE_NOT_IP);
		f.length = ETH;
		assert_int_equal(parse(&f).ip, PARSE_NOT_IP);
	}
}

// Put a VLAN tag of this type behind the MACs.
static void put_tag(struct frame *f, uint16_t type)
{
	memmove(f->bytes + 16, f->bytes + 12, f->length - 12);
	put_be16(f->bytes + 12, type);
	put_be16(f->bytes + 14, 0xe005);
	f->length += 4;
}

static void packets_are_found_behind_at_most_two_tags(void **state)
{
	static const uint16_t types[] = {0x8100, 0x88a8};

	(void)state;
	for (int base = 0; base < BASES; base++)
		for (size_t i = 0; i < COUNT(types); i++) {
			struct frame f = good((enum base)base);

			for (uint32_t tags = 1; tags <= 2; tags++) {
				struct outcome o;

				put_tag(&f, types[(i + tags) % 2]);
				o = parse_at(&f, f.length, ETH + 4 * tags);
				assert_int_equal(o.ip, PARSE_OK);
				assert_int_equal(o.transport, PARSE_OK);
				assert_true(o.view.has_ports && o.view.l3 == ETH + 4 * tags);
				assert_int_equal(o.view.ip_length, f.length - ETH - 4 * tags);
			}
			put_tag(&f, types[i]);
			assert_int_equal(parse_at(&f, f.length, 0).ip, PARSE_NOT_IP);
		}
}

static void a_frame_cut_inside_its_tags_is_malformed(void **state)
{
	(void)state;
	for (uint32_t tags = 1; tags <= 2; tags++) {
		struct frame f = good(TCP4);

		for (uint32_t i = 0; i < tags; i++)
			put_tag(&f, 0x8100);
		for (f.length = ETH; f.length < ETH + 4 * tags; f.length++)
			assert_int_equal(parse_at(&f, f.length, 0).ip, PARSE_MALFORMED);
	}
}

static void protocols_without_ports_are_good_without_ports(void **state)
{
	static const uint8_t four[] = {ICMP, GRE, 50, 132, 0, 255};
	static const uint8_t six[] = {ICMP6, GRE, 50, AUTHENTICATION, NO_NEXT, 132, 255};

	(void)state;
	for (size_t i = 0; i < COUNT(four); i++) {
		struct frame f = ipv4(four[i], NULL, 0);
		struct outcome o = parse(&f);

		assert_int_equal(o.ip, PARSE_OK);
		assert_int_equal(o.transport, PARSE_OK);
		assert_false(o.view.has_ports);
		assert_int_equal(o.view.protocol, four[i]);
	}
	for (size_t i = 0; i < COUNT(six); i++) {
		struct frame f = ipv6(six[i], NULL, 0);
		struct outcome o = parse(&f);

		assert_int_equal(o.ip, PARSE_OK);
		assert_int_equal(o.transport, PARSE_OK);
		assert_false(o.view.has_ports);
		assert_int_equal(o.view.protocol, six[i]);
	}
}

// One extension header: its kind, its length field, and for a fragment header offset and flags.
struct extension {
	uint8_t kind;
	uint8_t words; // length field: 8-byte units behind the first
	uint16_t fragment;
};

// A frame with these headers before `last`; each names the one behind it.
static struct frame chained(const struct extension *chain, size_t count, uint8_t last, const void *l4, uint32_t n)
{
	struct frame f = ipv6(count > 0 ? chain[0].kind : last, NULL, 0);

	for (size_t i = 0; i < count; i++) {
		uint8_t header[64] = {i + 1 < count ? chain[i + 1].kind : last, chain[i].words};

		if (chain[i].kind == FRAGMENT)
			put_be16(header + 2, chain[i].fragment);
		append(&f, header, 8u + chain[i].words * 8u);
	}
	append(&f, l4, n);
	put_be16(f.bytes + ETH + 4, f.length - ETH - 40);
	return f;
}

static void extension_headers_are_walked_to_the_transport(void **state)
{
	static const struct {
		const char *what;
		struct extension chain[8];
		size_t count;
		uint16_t l4;
	} rows[] = {
		{"hop-by-hop", {{HOP_BY_HOP, 0, 0}}, 1, 48},
		{"long hop-by-hop", {{HOP_BY_HOP, 6, 0}}, 1, 96},
		{"routing", {{ROUTING, 2, 0}}, 1, 64},
		{"destination options", {{DESTINATION, 1, 0}}, 1, 56},
		{"atomic fragment", {{FRAGMENT, 0, 0}}, 1, 48},
		{"atomic fragment with reserved bits", {{FRAGMENT, 0, 0x0006}}, 1, 48},
		{"all in the order of RFC 8200",
		 {{HOP_BY_HOP, 0, 0}, {DESTINATION, 0, 0}, {ROUTING, 0, 0}, {FRAGMENT, 0, 0}, {DESTINATION, 0, 0}},
		 5,
		 80},
		{"eight",
		 {{HOP_BY_HOP, 0, 0},
		  {DESTINATION, 0, 0},
		  {DESTINATION, 0, 0},
		  {DESTINATION, 0, 0},
		  {DESTINATION, 0, 0},
		  {DESTINATION, 0, 0},
		  {DESTINATION, 0, 0},
		  {DESTINATION, 0, 0}},
		 8,
		 104},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct frame f = chained(rows[i].chain, rows[i].count, TCP, ACK, sizeof(ACK));
		struct outcome o = parse(&f);
		uint32_t whole = f.length;

		check_row(rows[i].what, o.ip == PARSE_OK && o.transport == PARSE_OK);
		check_row(rows[i].what, o.view.has_ports && !o.view.fragment);
		check_row(rows[i].what, o.view.protocol == TCP && o.view.l4 == rows[i].l4);
		check_row(rows[i].what, o.view.destination_port == 80);
		for (f.length = 0; f.length < whole; f.length++)
			check_row(rows[i].what, parse(&f).ip == PARSE_MALFORMED);
	}
}

// The packet says that it ends early, the frame does not: no header may be read out of the padding.
static void extension_headers_cut_by_the_payload_length_are_malformed(void **state)
{
	static const struct extension chain[] = {{HOP_BY_HOP, 0, 0}, {ROUTING, 1, 0}, {FRAGMENT, 0, 0}};
	struct frame f = chained(chain, COUNT(chain), TCP, ACK, sizeof(ACK));

	(void)state;
	for (uint32_t payload = 0; payload < 52; payload++) {
		struct outcome o;

		put_be16(f.bytes + ETH + 4, payload);
		o = parse(&f);
		assert_int_equal(o.ip, payload < 32 ? PARSE_MALFORMED : PARSE_OK);
		if (o.ip == PARSE_OK)
			assert_int_equal(o.transport, PARSE_MALFORMED);
	}
}

static void endless_extension_chains_are_malformed(void **state)
{
	uint8_t zeros[400] = {0}, ones[400];
	struct frame f = ipv6(HOP_BY_HOP, zeros, sizeof(zeros)); // each names a hop-by-hop header behind it

	(void)state;
	assert_int_equal(parse(&f).ip, PARSE_MALFORMED);
	memset(ones, DESTINATION, sizeof(ones)); // each names itself and is 488 bytes long
	f = ipv6(DESTINATION, ones, sizeof(ones));
	assert_int_equal(parse(&f).ip, PARSE_MALFORMED);
	memset(zeros, FRAGMENT, 1);
	for (size_t i = 0; i < sizeof(zeros); i += 8)
		zeros[i] = FRAGMENT;
	f = ipv6(FRAGMENT, zeros, sizeof(zeros));
	assert_int_equal(parse(&f).ip, PARSE_MALFORMED);
}

static void a_ninth_extension_header_is_malformed(void **state)
{
	struct extension chain[9];

	(void)state;
	for (size_t i = 0; i < COUNT(chain); i++)
		chain[i] = (struct extension){DESTINATION, 0, 0};
	for (size_t n = 0; n <= COUNT(chain); n++) {
		struct frame f = chained(chain, n, TCP, ACK, sizeof(ACK));

		assert_int_equal(parse(&f).ip, n <= 8 ? PARSE_OK : PARSE_MALFORMED);
	}
}

static void an_extension_length_beyond_the_packet_is_malformed(void **state)
{
	static const uint8_t kinds[] = {HOP_BY_HOP, ROUTING, DESTINATION};

	(void)state;
	for (size_t i = 0; i < COUNT(kinds); i++)
		for (int words = 0; words < 256; words++) {
			struct extension one = {kinds[i], 0, 0};
			struct frame f = chained(&one, 1, NO_NEXT, NULL, 0);

			f.bytes[ETH + 41] = (uint8_t)words;
			assert_int_equal(parse(&f).ip, words == 0 ? PARSE_OK : PARSE_MALFORMED);
		}
}

static void only_first_fragments_have_ports(void **state)
{
	static const struct {
		const char *what;
		uint16_t four, six;
	} rows[] = {
		{"first", 0x2000, 0x0001},
		{"middle", 0x20b9, 0x05c9},
		{"last", 0x00b9, 0x05c8},
		{"largest offset", 0x1fff, 0xfff8},
		{"smallest offset", 0x0001, 0x0008},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct extension header = {FRAGMENT, 0, rows[i].six};
		struct frame f = good(UDP4);
		struct outcome o;

		put_be16(f.bytes + ETH + 6, rows[i].four);
		fix_checksum(&f);
		o = parse(&f);
		check_row(rows[i].what, o.ip == PARSE_OK && o.transport == PARSE_OK);
		check_row(rows[i].what, o.view.fragment && o.view.has_ports == (i == 0) && !o.view.dont_fragment);
		check_row(rows[i].what, o.view.fragment_offset == (rows[i].four & 0x1fff));
		f = chained(&header, 1, UDP, DATAGRAM, sizeof(DATAGRAM));
		o = parse(&f);
		check_row(rows[i].what, o.ip == PARSE_OK && o.transport == PARSE_OK);
		check_row(rows[i].what, o.view.fragment && o.view.has_ports == (i == 0));
		check_row(rows[i].what, o.view.fragment_offset == rows[i].six >> 3);
		check_row(rows[i].what, o.view.protocol == UDP);
	}
}

static void the_id_of_a_fragment_is_read(void **state)
{
	static const uint32_t ids[] = {0, 1, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 0x12345678, 0xffffffff};

	(void)state;
	for (size_t i = 0; i < COUNT(ids); i++)
		for (uint16_t offset = 0; offset < 2; offset++) {
			struct extension header = {FRAGMENT, 0, (uint16_t)(offset << 3 | 1)};
			struct frame f = good(UDP4);

			put_be16(f.bytes + ETH + 4, ids[i] & 0xffff);
			put_be16(f.bytes + ETH + 6, 0x2000u | offset);
			fix_checksum(&f);
			assert_int_equal(parse(&f).view.fragment_id, ids[i] & 0xffff);
			f = chained(&header, 1, UDP, DATAGRAM, sizeof(DATAGRAM));
			put_be16(f.bytes + ETH + 44, ids[i] >> 16);
			put_be16(f.bytes + ETH + 46, ids[i] & 0xffff);
			assert_int_equal(parse(&f).view.fragment_id, ids[i]);
		}
}

// Nobody sends a fragment of a fragment; ports behind the second header are not those of the datagram (RFC 8200 4.5).
static void two_fragment_headers_are_malformed(void **state)
{
	static const struct {
		const char *what;
		struct extension chain[3];
		size_t count;
		bool good;
		uint16_t offset; // where it is good
	} rows[] = {
		{"one behind the other", {{FRAGMENT, 0, 1}, {FRAGMENT, 0, 1}}, 2, false, 0},
		{"the second a later fragment's", {{FRAGMENT, 0, 1}, {FRAGMENT, 0, 8}}, 2, false, 0},
		{"two atomic ones", {{FRAGMENT, 0, 0}, {FRAGMENT, 0, 0}}, 2, false, 0},
		{"an atomic one and a first one", {{FRAGMENT, 0, 0}, {FRAGMENT, 0, 1}}, 2, false, 0},
		{"with options between", {{FRAGMENT, 0, 1}, {DESTINATION, 0, 0}, {FRAGMENT, 0, 1}}, 3, false, 0},
		{"in the middle of a datagram", {{FRAGMENT, 0, 8}, {FRAGMENT, 0, 1}}, 2, true, 1},
		{"one between options", {{DESTINATION, 0, 0}, {FRAGMENT, 0, 1}, {DESTINATION, 0, 0}}, 3, true, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct frame f = chained(rows[i].chain, rows[i].count, UDP, DATAGRAM, sizeof(DATAGRAM));
		struct outcome o = parse(&f);

		check_row(rows[i].what, o.ip == (rows[i].good ? PARSE_OK : PARSE_MALFORMED));
		check_row(rows[i].what, o.ip == PARSE_OK || o.view.fault == REASON_ipv6_fragments);
		check_row(rows[i].what, o.ip != PARSE_OK || o.view.fragment);
		check_row(rows[i].what, o.ip != PARSE_OK || o.view.fragment_offset == rows[i].offset);
	}
}

// Its UDP length is that of the datagram. Of TCP the whole header must be there (RFC 1858), of UDP too.
static void a_first_fragment_has_its_whole_transport_header(void **state)
{
	static const struct {
		const char *what;
		enum base base;
		uint16_t udp_length;
		uint32_t l4_bytes;
		bool good;
	} rows[] = {
		{"UDP as long as it says", UDP4, 9, 9, true},
		{"UDP longer than the fragment", UDP4, 3000, 9, true},
		{"UDP of the largest length", UDP4, 0xffff, 9, true},
		{"UDP header alone", UDP4, 3000, 8, true},
		{"UDP shorter than its header", UDP4, 7, 9, false},
		{"UDP length 0", UDP4, 0, 9, false},
		{"7 bytes of UDP", UDP4, 3000, 7, false},
		{"3 bytes of UDP", UDP4, 3000, 3, false},
		{"TCP header", TCP4, 0, 20, true},
		{"19 bytes of TCP", TCP4, 0, 19, false},
		{"8 bytes of TCP", TCP4, 0, 8, false},
		{"IPv6: UDP longer than the fragment", UDP6, 3000, 9, true},
		{"IPv6: UDP length 7", UDP6, 7, 9, false},
		{"IPv6: 7 bytes of UDP", UDP6, 3000, 7, false},
		{"IPv6: 19 bytes of TCP", TCP6, 0, 19, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		bool tcp = rows[i].base == TCP4 || rows[i].base == TCP6;
		bool v4 = rows[i].base == UDP4 || rows[i].base == TCP4;
		struct extension header = {FRAGMENT, 0, 1};
		uint8_t l4[20];
		struct frame f;
		struct outcome o;

		memcpy(l4, ACK, sizeof(ACK));
		if (!tcp)
			memcpy(l4, DATAGRAM, sizeof(DATAGRAM));
		if (!tcp)
			put_be16(l4 + 4, rows[i].udp_length);
		f = v4 ? ipv4(tcp ? TCP : UDP, l4, rows[i].l4_bytes)
		       : chained(&header, 1, tcp ? TCP : UDP, l4, rows[i].l4_bytes);
		if (v4) {
			put_be16(f.bytes + ETH + 6, 0x2000);
			fix_checksum(&f);
		}
		o = parse(&f);
		check_row(rows[i].what, o.ip == PARSE_OK && o.view.fragment);
		check_row(rows[i].what, (o.transport == PARSE_OK) == rows[i].good);
		check_row(rows[i].what, o.view.has_ports == (rows[i].l4_bytes >= 4));
	}
}

static void a_later_fragment_takes_the_flow_of_its_first(void **state)
{
	static const uint8_t ports[4] = {0x9c, 0x40, 0x00, 0x35};
	struct extension header = {FRAGMENT, 0, 8};
	uint16_t source, destination;

	(void)state;
	memcpy(&source, ports, 2);
	memcpy(&destination, ports + 2, 2);
	for (int version = 4; version <= 6; version += 2) {
		struct frame whole = good(version == 4 ? UDP4 : UDP6), f;
		struct outcome expected = parse(&whole);
		struct packet_view v;
		uint8_t *bytes;

		f = version == 4 ? ipv4(UDP, "middle", 6) : chained(&header, 1, DESTINATION, "middle", 6);
		if (version == 4) {
			put_be16(f.bytes + ETH + 6, 0x0001);
			fix_checksum(&f);
		}
		bytes = at_end_of_block(f.bytes, f.length);
		assert_int_equal(parse_ip(bytes, f.length, f.length, &v), PARSE_OK);
		assert_int_equal(parse_transport(&v), PARSE_OK);
		assert_false(v.has_ports);
		parse_later_fragment(&v, source, destination, UDP);
		assert_true(v.has_ports);
		assert_int_equal(v.destination_port, 0x35);
		assert_int_equal(v.protocol, UDP);
		assert_int_equal(v.flow_protocol, UDP);
		assert_int_equal(v.key.length, expected.view.key.length);
		assert_memory_equal(v.key.bytes, expected.view.key.bytes, v.key.length);
		free(bytes);
	}
}

static void a_later_fragment_of_one_byte_is_good(void **state)
{
	struct extension header = {FRAGMENT, 0, 0x0008};
	struct frame f = ipv4(TCP, "x", 1);
	struct outcome o;

	(void)state;
	put_be16(f.bytes + ETH + 6, 0x0001);
	fix_checksum(&f);
	o = parse(&f);
	assert_int_equal(o.ip, PARSE_OK);
	assert_int_equal(o.transport, PARSE_OK);
	f = chained(&header, 1, TCP, "x", 1);
	o = parse(&f);
	assert_int_equal(o.ip, PARSE_OK);
	assert_int_equal(o.transport, PARSE_OK);
}

// Behind the fragment header of a later fragment stands the middle of the datagram, whatever `next header` says.
static void payload_of_a_later_fragment_is_never_read_as_headers(void **state)
{
	static const uint8_t kinds[] = {HOP_BY_HOP, ROUTING, DESTINATION, FRAGMENT};
	uint8_t payload[24];

	(void)state;
	memset(payload, 0xff, sizeof(payload));
	for (size_t i = 0; i < COUNT(kinds); i++) {
		struct extension header = {FRAGMENT, 0, 0x05c9};
		struct frame f = chained(&header, 1, kinds[i], payload, sizeof(payload));
		struct outcome o = parse(&f);

		assert_int_equal(o.ip, PARSE_OK);
		assert_int_equal(o.transport, PARSE_OK);
		assert_true(o.view.fragment);
		assert_int_equal(o.view.protocol, kinds[i]);
		assert_int_equal(o.view.l4, 48);
	}
}

static void dont_fragment_is_read_from_ipv4_and_given_for_ipv6(void **state)
{
	struct frame f = good(TCP4);

	(void)state;
	assert_true(parse(&f).view.dont_fragment);
	put_be16(f.bytes + ETH + 6, 0);
	fix_checksum(&f);
	assert_false(parse(&f).view.dont_fragment);
	assert_false(parse(&f).view.fragment);
	f = good(TCP6);
	assert_true(parse(&f).view.dont_fragment);
}

static struct frame random_frame(uint64_t *seed)
{
	static const uint8_t nexts[] = {TCP, UDP, HOP_BY_HOP, ROUTING, DESTINATION, FRAGMENT, ICMP6, NO_NEXT};
	struct frame f = good((enum base)random_below(seed, BASES));
	bool v4 = f.bytes[12] == 0x08;

	if (random_below(seed, 2) == 0) {
		uint8_t noise[64];

		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = i % 8 == 0 ? nexts[random_below(seed, COUNT(nexts))] : random_below(seed, 4) ? 0 : 1;
		append(&f, noise, random_below(seed, sizeof(noise)));
	}
	if (!v4 && random_below(seed, 2) == 0)
		f.bytes[ETH + 6] = nexts[random_below(seed, COUNT(nexts))];
	for (uint32_t edits = random_below(seed, 4); edits > 0; edits--)
		f.bytes[ETH + random_below(seed, f.length - ETH)] = (uint8_t)next_random(seed);
	if (random_below(seed, 2) == 0)
		put_be16(f.bytes + ETH + (v4 ? 2 : 4), f.length - ETH - (v4 ? 0 : 40));
	if (v4 && random_below(seed, 8) != 0)
		fix_checksum(&f);
	if (random_below(seed, 4) == 0)
		f.length = random_below(seed, f.length + 1);
	return f;
}

// Whatever comes: nothing is read outside, and what was accepted lies inside.
static void random_frames_never_lead_outside(void **state)
{
	uint64_t seed = 1;
	int good = 0;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		struct frame f = random_frame(&seed);
		uint32_t available = random_below(&seed, 4) ? f.length : random_below(&seed, f.length + 1);
		struct outcome o = parse_part(&f, available);

		if (o.ip != PARSE_OK)
			continue;
		assert_true(o.view.ip_length <= f.length - ETH);
		assert_true(o.view.l4 <= o.view.ip_length && o.view.l4 <= o.view.available);
		assert_true(o.view.available == available - ETH);
		if (o.transport != PARSE_OK || !o.view.has_ports)
			continue;
		assert_true(o.view.l4 + 8u <= available - ETH);
		assert_true(!o.view.fragment || o.view.fragment_offset == 0);
		assert_true(o.view.protocol == TCP || o.view.protocol == UDP);
		good++;
	}
	assert_true(good > 10000); // the noise must leave enough that is whole
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_frames_are_read_field_by_field),
		cmocka_unit_test(most_frames_are_plain),
		cmocka_unit_test(flow_key_is_addresses_ports_protocol_in_network_order),
		cmocka_unit_test(malformed_headers_are_told),
		cmocka_unit_test(unusual_but_right_headers_are_taken),
		cmocka_unit_test(padding_is_not_part_of_the_packet),
		cmocka_unit_test(every_truncation_of_a_good_frame_is_malformed),
		cmocka_unit_test(only_headers_must_be_in_the_first_buffer),
		cmocka_unit_test(ipv4_options_are_skipped_up_to_60_bytes),
		cmocka_unit_test(other_ethertypes_are_not_ip),
		cmocka_unit_test(packets_are_found_behind_at_most_two_tags),
		cmocka_unit_test(a_frame_cut_inside_its_tags_is_malformed),
		cmocka_unit_test(protocols_without_ports_are_good_without_ports),
		cmocka_unit_test(extension_headers_are_walked_to_the_transport),
		cmocka_unit_test(extension_headers_cut_by_the_payload_length_are_malformed),
		cmocka_unit_test(endless_extension_chains_are_malformed),
		cmocka_unit_test(a_ninth_extension_header_is_malformed),
		cmocka_unit_test(an_extension_length_beyond_the_packet_is_malformed),
		cmocka_unit_test(only_first_fragments_have_ports),
		cmocka_unit_test(the_id_of_a_fragment_is_read),
		cmocka_unit_test(two_fragment_headers_are_malformed),
		cmocka_unit_test(a_first_fragment_has_its_whole_transport_header),
		cmocka_unit_test(a_later_fragment_takes_the_flow_of_its_first),
		cmocka_unit_test(a_later_fragment_of_one_byte_is_good),
		cmocka_unit_test(payload_of_a_later_fragment_is_never_read_as_headers),
		cmocka_unit_test(dont_fragment_is_read_from_ipv4_and_given_for_ipv6),
		cmocka_unit_test(random_frames_never_lead_outside),
	};

	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
