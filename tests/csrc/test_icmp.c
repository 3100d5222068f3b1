#include "harness.h"

#include "icmp.h"

// A frame is an Ethernet header, an IP header and what is given behind it.
enum { ETH = 14, IPV4 = 20, IPV6 = 40, MAX_FRAME = 2048, TCP = 6, UDP = 17, ICMP = 1, ICMP6 = 58 };

struct frame {
	uint8_t bytes[MAX_FRAME];
	uint32_t length;
};

static const uint8_t CLIENT4[4] = {198, 51, 100, 7}, VIP4[4] = {192, 0, 2, 1}, ROUTER4[4] = {203, 0, 113, 1};
static const uint8_t CLIENT6[16] = {0x20, 0x01, 0x0d, 0xb8, 1, [15] = 7}, VIP6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};
static const uint8_t ROUTER6[16] = {0x20, 0x01, 0x0d, 0xb8, 0xf, [15] = 1};

static uint8_t header_length(uint8_t version)
{
	return version == 4 ? IPV4 : IPV6;
}

static void append(struct frame *f, const void *bytes, uint32_t n)
{
	if (n > 0)
		memcpy(f->bytes + f->length, bytes, n);
	f->length += n;
}

// Make the IP header say that the packet ends with the frame.
static void fix_header(struct frame *f)
{
	uint8_t *ip = f->bytes + ETH;

	if (ip[0] >> 4 == 6) {
		put_be16(ip + 4, f->length - ETH - IPV6);
		return;
	}
	put_be16(ip + 2, f->length - ETH);
	put_be16(ip + 10, 0);
	put_be16(ip + 10, internet_checksum(ip, (ip[0] & 15u) * 4));
}

// `options`: words of IPv4 options, or units of 8 bytes of IPv6 destination options.
static struct frame packet(uint8_t version, const uint8_t *source, const uint8_t *destination, uint8_t protocol,
			   uint8_t options, const void *payload, uint32_t n)
{
	struct frame f = {.bytes = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, version == 4 ? 0x08 : 0x86,
				    version == 4 ? 0x00 : 0xdd},
			  .length = ETH};
	uint8_t four[IPV4] = {0x45, 0x2e, 0, 0, 0x12, 0x34, 0x40, 0, 61, protocol};
	uint8_t six[IPV6] = {0x62, 0xe1, 0x23, 0x45, 0, 0, protocol, 61};
	uint8_t nothing[60] = {0};

	memset(nothing, 1, sizeof(nothing)); // no operation
	if (version == 4) {
		four[0] = (uint8_t)(four[0] + options);
		memcpy(four + 12, source, 4);
		memcpy(four + 16, destination, 4);
		append(&f, four, IPV4);
		append(&f, nothing, options * 4u);
	} else {
		memcpy(six + 8, source, 16);
		memcpy(six + 24, destination, 16);
		if (options > 0)
			six[6] = 60;
		append(&f, six, IPV6);
		for (uint8_t i = 0; i < options; i++) {
			uint8_t option[8] = {i + 1 < options ? 60 : protocol, 0, 1, 4};

			append(&f, option, 8);
		}
	}
	append(&f, payload, n);
	fix_header(&f);
	return f;
}

static struct frame to_vip(uint8_t version, uint8_t options, const void *icmp, uint32_t n)
{
	return packet(version, version == 4 ? ROUTER4 : ROUTER6, version == 4 ? VIP4 : VIP6,
		      version == 4 ? ICMP : ICMP6, options, icmp, n);
}

// What the vip's backend has sent to the client: `ports` are 80 and 40000 in front of more of the transport header.
static struct frame sent_by_vip(uint8_t version, uint8_t protocol, uint8_t options)
{
	static const uint8_t transport[20] = {0, 80, 0x9c, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x10};

	return packet(version, version == 4 ? VIP4 : VIP6, version == 4 ? CLIENT4 : CLIENT6, protocol, options, transport,
		      sizeof(transport));
}

static struct frame error_about(uint8_t version, const struct frame *quoted, uint8_t options)
{
	uint8_t icmp[MAX_FRAME] = {version == 4 ? 3 : 1, 1};

	memcpy(icmp + ICMP_HEADER, quoted->bytes + ETH, quoted->length - ETH);
	return to_vip(version, options, icmp, ICMP_HEADER + quoted->length - ETH);
}

static struct flow_key flow_of_client(uint8_t version, uint8_t protocol)
{
	struct flow_key key;
	uint16_t source, destination;
	uint8_t ports[4] = {0x9c, 0x40, 0, 80};

	memcpy(&source, ports, 2);
	memcpy(&destination, ports + 2, 2);
	flow_key_fill(&key, version == 4 ? CLIENT4 : CLIENT6, version == 4 ? VIP4 : VIP6, version == 4 ? 4 : 16, source,
		      destination, protocol);
	return key;
}

// The view of a frame of which only `available` bytes may be read; `block` is freed by the caller.
static enum parse_result view_of(const struct frame *f, uint32_t available, uint8_t **block, struct packet_view *v)
{
	enum parse_result result;

	memset(v, 0xa5, sizeof(*v));
	*block = at_end_of_block(f->bytes, available);
	result = parse_ip(*block, available, f->length, v);
	return result == PARSE_OK ? parse_transport(v) : result;
}

static enum icmp_kind kind_of(const struct frame *f)
{
	struct packet_view v;
	enum icmp_kind kind;
	uint8_t *block;

	assert_int_equal(view_of(f, f->length, &block, &v), PARSE_OK);
	assert_true(icmp_is(&v));
	kind = icmp_kind(&v);
	free(block);
	return kind;
}

// -- kinds

static void every_type_has_its_kind(void **state)
{
	(void)state;
	for (uint32_t type = 0; type < 256; type++) {
		uint8_t icmp[ICMP_HEADER] = {(uint8_t)type};
		struct frame four = to_vip(4, type % 3, icmp, sizeof(icmp)), six = to_vip(6, type % 3, icmp, sizeof(icmp));
		bool error4 = type == 3 || type == 11 || type == 12, error6 = type >= 1 && type <= 4;

		assert_int_equal(kind_of(&four), type == 8 ? ICMP_ECHO : error4 ? ICMP_ERROR : ICMP_OTHER);
		assert_int_equal(kind_of(&six), type == 128 ? ICMP_ECHO : error6 ? ICMP_ERROR : ICMP_OTHER);
	}
}

static void less_than_a_header_is_broken(void **state)
{
	static const uint8_t types[] = {0, 1, 3, 8, 128};

	(void)state;
	for (size_t i = 0; i < COUNT(types); i++)
		for (uint32_t n = 0; n < ICMP_HEADER; n++)
			for (uint8_t version = 4; version <= 6; version += 2) {
				uint8_t icmp[ICMP_HEADER] = {types[i]};
				struct frame f = to_vip(version, n % 2, icmp, n);

				assert_int_equal(kind_of(&f), ICMP_BROKEN);
			}
}

// The packet is whole, but its first buffer is not: what cannot be read is broken, never read.
static void a_header_in_the_next_buffer_is_broken(void **state)
{
	uint8_t icmp[64] = {8};

	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2) {
		struct frame f = to_vip(version, 2, icmp, sizeof(icmp));
		uint32_t l4 = f.length - sizeof(icmp);

		f.bytes[l4] = version == 4 ? 8 : 128;
		for (uint32_t n = l4; n <= f.length; n++) {
			struct packet_view v;
			uint8_t *block;

			assert_int_equal(view_of(&f, n, &block, &v), PARSE_OK);
			assert_int_equal(icmp_kind(&v), n < l4 + ICMP_HEADER ? ICMP_BROKEN : ICMP_ECHO);
			free(block);
		}
	}
}

static void icmp_is_the_version_s_own_and_no_fragment(void **state)
{
	static const struct {
		const char *what;
		uint8_t version, protocol;
		uint16_t fragment;
		bool is;
	} rows[] = {
		{"ICMP", 4, ICMP, 0x4000, true},
		{"ICMP without DF", 4, ICMP, 0, true},
		{"ICMPv6", 6, ICMP6, 0, true},
		{"ICMPv6 in IPv4", 4, ICMP6, 0, false},
		{"ICMP in IPv6", 6, ICMP, 0, false},
		{"GRE", 4, 47, 0, false},
		{"a first fragment", 4, ICMP, 0x2000, false},
		{"a later fragment", 4, ICMP, 0x0001, false},
		{"the last fragment", 4, ICMP, 0x1fff, false},
	};
	uint8_t icmp[ICMP_HEADER] = {8};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint8_t version = rows[i].version;
		struct frame f = packet(version, version == 4 ? CLIENT4 : CLIENT6, version == 4 ? VIP4 : VIP6,
					rows[i].protocol, 0, icmp, sizeof(icmp));
		struct packet_view v;
		uint8_t *block;

		if (version == 4) {
			put_be16(f.bytes + ETH + 6, rows[i].fragment);
			fix_header(&f);
		}
		check_row(rows[i].what, view_of(&f, f.length, &block, &v) == PARSE_OK);
		check_row(rows[i].what, icmp_is(&v) == rows[i].is);
		free(block);
	}
}

// -- the flow that an error is about

static bool flow_is(const struct packet_view *v, uint8_t version, uint8_t protocol)
{
	struct flow_key expected = flow_of_client(version, protocol);

	return v->key.length == expected.length && memcmp(v->key.bytes, expected.bytes, expected.length) == 0 &&
	       v->flow_protocol == protocol && v->destination_port == 80;
}

static void the_quoted_flow_is_the_client_s(void **state)
{
	static const uint8_t protocols[] = {TCP, UDP};

	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2)
		for (size_t i = 0; i < COUNT(protocols); i++)
			for (uint8_t own = 0; own < 3; own++) {
				struct frame quoted = sent_by_vip(version, protocols[i], 0);
				struct frame f = error_about(version, &quoted, own);
				struct packet_view v;
				uint8_t *block;

				assert_int_equal(view_of(&f, f.length, &block, &v), PARSE_OK);
				assert_int_equal(icmp_kind(&v), ICMP_ERROR);
				assert_true(icmp_quoted_flow(&v));
				assert_true(flow_is(&v, version, protocols[i]));
				assert_int_equal(v.protocol, version == 4 ? ICMP : ICMP6);
				assert_false(v.has_ports);
				free(block);
			}
}

// What may be said of an error of which `n` bytes can be read.
static void check_cut_error(const struct frame *whole, uint32_t n, bool honest, uint8_t version, uint32_t quote_header)
{
	struct frame f = *whole;
	uint32_t own = ETH + (version == 4 ? (f.bytes[ETH] & 15u) * 4 : f.bytes[ETH + 6] == ICMP6 ? 40u : 48u);
	struct packet_view v;
	uint8_t *block;
	enum parse_result result;

	if (honest && n >= own) { // the packet says that it ends here
		f.length = n;
		fix_header(&f);
	}
	result = view_of(&f, n, &block, &v);
	if (n < own) {
		assert_int_equal(result, PARSE_MALFORMED);
	} else {
		assert_int_equal(result, PARSE_OK);
		assert_int_equal(icmp_kind(&v), n < own + ICMP_HEADER ? ICMP_BROKEN : ICMP_ERROR);
		if (icmp_kind(&v) == ICMP_ERROR)
			assert_int_equal(icmp_quoted_flow(&v), n >= own + ICMP_HEADER + quote_header + 4);
	}
	free(block);
}

// Cut at every byte, both as a packet that ends there and as a first buffer that does.
static void an_error_is_read_no_further_than_it_goes(void **state)
{
	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2)
		for (uint8_t own = 0; own < 2; own++)
			for (uint8_t options = 0; options <= (version == 4 ? 10 : 0); options += 5) {
				struct frame quoted = sent_by_vip(version, TCP, options);
				struct frame f = error_about(version, &quoted, own);

				for (uint32_t n = 0; n <= f.length; n++)
					for (int honest = 0; honest < 2; honest++)
						check_cut_error(&f, n, honest, version, header_length(version) + options * 4u);
			}
}

// Padding behind the IP packet is no part of the quote.
static void what_follows_the_packet_is_not_quoted(void **state)
{
	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2) {
		struct frame quoted = sent_by_vip(version, TCP, 0);
		struct frame whole = error_about(version, &quoted, 0), f = whole;
		struct packet_view v;
		uint8_t *block;

		f.length = ETH + header_length(version) + ICMP_HEADER + header_length(version) + 3;
		fix_header(&f);
		f.length = whole.length;
		assert_int_equal(view_of(&f, f.length, &block, &v), PARSE_OK);
		assert_int_equal(icmp_kind(&v), ICMP_ERROR);
		assert_false(icmp_quoted_flow(&v));
		free(block);
	}
}

static bool quoted_flow_of(uint8_t version, const struct frame *quoted)
{
	struct frame f = error_about(version, quoted, 0);
	struct packet_view v;
	uint8_t *block;
	bool found;

	assert_int_equal(view_of(&f, f.length, &block, &v), PARSE_OK);
	found = icmp_quoted_flow(&v);
	free(block);
	return found;
}

static void every_protocol_version_and_header_length_of_a_quote(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 256; i++) {
		struct frame four = sent_by_vip(4, (uint8_t)i, 0), six = sent_by_vip(6, (uint8_t)i, 0);
		struct frame first = sent_by_vip(4, TCP, 0);

		assert_int_equal(quoted_flow_of(4, &four), i == TCP || i == UDP);
		assert_int_equal(quoted_flow_of(6, &six), i == TCP || i == UDP);
		first.bytes[ETH] = (uint8_t)i;
		// 20 bytes of transport header follow a header of 20: longer ones up to 36 still find 4 bytes for ports.
		assert_int_equal(quoted_flow_of(4, &first), i >= 0x45 && i <= 0x49);
		first = sent_by_vip(6, TCP, 0);
		first.bytes[ETH] = (uint8_t)i;
		assert_int_equal(quoted_flow_of(6, &first), i >> 4 == 6);
	}
}

static void only_an_offset_makes_a_quote_a_later_fragment(void **state)
{
	(void)state;
	for (uint32_t word = 0; word < 65536; word++) {
		struct frame quoted = sent_by_vip(4, UDP, 0);

		put_be16(quoted.bytes + ETH + 6, word);
		if (quoted_flow_of(4, &quoted) != ((word & 0x1fff) == 0))
			fail_msg("flags and offset %04x", (unsigned int)word);
	}
}

static void every_bit_of_the_quoted_source_counts(void **state)
{
	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2)
		for (uint32_t bit = 0; bit < (version == 4 ? 32u : 128u); bit++) {
			struct frame quoted = sent_by_vip(version, TCP, 0);

			quoted.bytes[ETH + (version == 4 ? 12 : 8) + bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_false(quoted_flow_of(version, &quoted));
		}
}

// Bytes by chance behind the headers, and buffers that end by chance: ASan looks on.
static void no_error_makes_us_read_beyond_its_end(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint8_t version = next_random(&seed) & 1 ? 4 : 6, icmp[128];
		uint32_t n = random_below(&seed, sizeof(icmp) + 1), end;
		struct packet_view v;
		struct frame f;
		uint8_t *block;

		for (uint32_t k = 0; k < n; k++)
			icmp[k] = (uint8_t)next_random(&seed);
		if (n > ICMP_HEADER) { // often enough near to what is right
			icmp[0] = version == 4 ? 3 : 1;
			icmp[ICMP_HEADER] = (uint8_t)(version << 4 | random_below(&seed, 16));
			if (n > ICMP_HEADER + 9)
				icmp[ICMP_HEADER + (version == 4 ? 9 : 6)] = TCP;
			if (n > ICMP_HEADER + 7 && version == 4)
				icmp[ICMP_HEADER + 6] = icmp[ICMP_HEADER + 7] = 0;
		}
		f = to_vip(version, (uint8_t)random_below(&seed, 3), icmp, n);
		end = f.length - random_below(&seed, n + 1);
		if (view_of(&f, end, &block, &v) == PARSE_OK && icmp_kind(&v) == ICMP_ERROR)
			icmp_quoted_flow(&v);
		free(block);
	}
}

// -- who may be answered

static void who_may_be_answered(void **state)
{
	static const struct {
		const char *what;
		uint8_t version;
		uint8_t source[16];
		bool may;
	} rows[] = {
		{"a client", 4, {198, 51, 100, 7}, true},
		{"a private client", 4, {10, 0, 0, 1}, true},
		{"link-local", 4, {169, 254, 1, 1}, true},
		{"this network", 4, {0, 0, 0, 0}, false},
		{"loopback", 4, {127, 0, 0, 1}, false},
		{"broadcast", 4, {255, 255, 255, 255}, false},
		{"the vip", 4, {192, 0, 2, 1}, false},
		{"beside the vip", 4, {192, 0, 2, 2}, true},
		{"a client", 6, {0x20, 0x01, 0x0d, 0xb8, 1, [15] = 7}, true},
		{"link-local", 6, {0xfe, 0x80, [15] = 1}, true},
		{"unspecified", 6, {0}, false},
		{"loopback", 6, {[15] = 1}, false},
		{"::2", 6, {[15] = 2}, true},
		{"::80", 6, {[15] = 0x80}, true},
		{"::100", 6, {[14] = 1}, true},
		{"::1:0:0:1", 6, {[9] = 1, [15] = 1}, true},
		{"100::1", 6, {1, [15] = 1}, true},
		{"all nodes", 6, {0xff, 2, [15] = 1}, false},
		{"a group", 6, {0xff}, false},
		{"the vip", 6, {0x20, 0x01, 0x0d, 0xb8, [15] = 1}, false},
		{"beside the vip", 6, {0x20, 0x01, 0x0d, 0xb8, [15] = 2}, true},
	};
	uint8_t icmp[ICMP_HEADER] = {8};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint8_t version = rows[i].version;
		struct frame f = packet(version, rows[i].source, version == 4 ? VIP4 : VIP6,
					version == 4 ? ICMP : ICMP6, 0, icmp, sizeof(icmp));
		struct packet_view v;
		uint8_t *block;

		check_row(rows[i].what, view_of(&f, f.length, &block, &v) == PARSE_OK);
		check_row(rows[i].what, icmp_may_answer(&v) == rows[i].may);
		free(block);
	}
}

static void every_first_byte_of_a_source(void **state)
{
	uint8_t icmp[ICMP_HEADER] = {8};

	(void)state;
	for (uint32_t first = 0; first < 256; first++) {
		uint8_t four[4] = {(uint8_t)first, 1, 2, 3}, six[16] = {(uint8_t)first, 1, 2, 3};
		struct frame f = packet(4, four, VIP4, ICMP, 0, icmp, sizeof(icmp));
		struct packet_view v;
		uint8_t *block;

		assert_int_equal(view_of(&f, f.length, &block, &v), PARSE_OK);
		assert_int_equal(icmp_may_answer(&v), first != 0 && first != 127 && first < 224);
		free(block);
		f = packet(6, six, VIP6, ICMP6, 0, icmp, sizeof(icmp));
		assert_int_equal(view_of(&f, f.length, &block, &v), PARSE_OK);
		assert_int_equal(icmp_may_answer(&v), first != 255);
		free(block);
	}
}

// -- echo

// The reply to a frame of which only `available` bytes are in the first buffer.
// The view of an echo request whose IP header is followed by these options or extension headers.
static bool source_routed(uint8_t version, uint8_t first, const uint8_t *between, uint32_t n)
{
	uint8_t ip[40 + 40] = {0};
	uint32_t header = version == 4 ? 20 : 40;
	struct packet_view v = {.ip = ip, .version = version, .l4 = (uint16_t)(header + n), .available = header + n};

	ip[6] = first;
	memcpy(ip + header, between, n);
	return icmp_is_source_routed(&v);
}

static void a_chosen_way_is_seen_whatever_stands_before_it(void **state)
{
	static const struct {
		const char *what;
		uint8_t version, first, n, between[40];
		bool routed;
	} rows[] = {
		{"no option", 4, 0, 0, {0}, false},
		{"loose", 4, 0, 4, {131, 3, 4, 0}, true},
		{"strict", 4, 0, 4, {137, 3, 4, 0}, true},
		{"behind no operation", 4, 0, 8, {1, 1, 1, 131, 3, 4, 0, 0}, true},
		{"behind another option", 4, 0, 8, {7, 4, 4, 0, 137, 3, 4, 0}, true},
		{"behind the end", 4, 0, 8, {1, 0, 131, 3, 4, 0, 0, 0}, false},
		{"in another option", 4, 0, 8, {7, 7, 4, 131, 3, 4, 0, 0}, false},
		{"an option of length 0", 4, 0, 8, {7, 0, 131, 3, 4, 0, 0, 0}, false},
		{"an option of length 1", 4, 0, 8, {7, 1, 131, 3, 4, 0, 0, 0}, false},
		{"an option cut before its length", 4, 0, 4, {1, 1, 1, 7}, false},
		{"an option longer than the header", 4, 0, 4, {7, 40, 0, 0}, false},
		{"a full header", 4, 0, 40, {[0 ... 38] = 1, 131}, true},
		{"no header", 6, 58, 0, {0}, false},
		{"a routing header", 6, 43, 8, {58}, true},
		{"behind hop by hop", 6, 0, 16, {43, 0, [8] = 58}, true},
		{"behind options of 16 bytes", 6, 60, 24, {43, 1, [16] = 58}, true},
		{"behind an atomic fragment", 6, 44, 16, {43, 9, [8] = 58}, true},
		{"hop by hop alone", 6, 0, 8, {58}, false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		check_row(rows[i].what, source_routed(rows[i].version, rows[i].first, rows[i].between, rows[i].n) ==
						rows[i].routed);
}

static struct frame reply_to(const struct frame *f, uint32_t available)
{
	struct frame reply = *f;
	struct packet_view v;
	uint8_t *block;

	assert_int_equal(view_of(f, available, &block, &v), PARSE_OK);
	assert_int_equal(icmp_kind(&v), ICMP_ECHO);
	icmp_echo_reply(block + ETH, &v);
	memcpy(reply.bytes, block, available);
	free(block);
	return reply;
}

static struct frame echo(uint8_t version, uint8_t options, const uint8_t *message, uint32_t n)
{
	struct frame f = packet(version, version == 4 ? CLIENT4 : CLIENT6, version == 4 ? VIP4 : VIP6,
				version == 4 ? ICMP : ICMP6, options, message, n);
	uint8_t *icmp = f.bytes + f.length - n;

	icmp[0] = version == 4 ? 8 : 128;
	icmp[2] = icmp[3] = 0;
	put_be16(icmp + 2, icmp_checksum(f.bytes + ETH, icmp, n));
	return f;
}

// Everything of the reply but its checksum, which is compared by the caller.
static void check_reply(const struct frame *question, const struct frame *reply, uint32_t n)
{
	const uint8_t *q = question->bytes + ETH, *r = reply->bytes + ETH;
	uint32_t l4 = question->length - ETH - n, length = q[0] >> 4 == 4 ? 4 : 16, at = length == 4 ? 12 : 8;

	assert_int_equal(reply->length, question->length);
	assert_memory_equal(reply->bytes, question->bytes, ETH);
	assert_memory_equal(r + at, q + at + length, length);
	assert_memory_equal(r + at + length, q + at, length);
	if (length == 4) {
		assert_memory_equal(r, q, 8);
		assert_int_equal(r[8], 64);
		assert_int_equal(r[9], ICMP);
		assert_int_equal(internet_checksum(r, l4), 0);
		assert_memory_equal(r + IPV4, q + IPV4, l4 - IPV4);
	} else {
		assert_memory_equal(r, q, 7);
		assert_int_equal(r[7], 64);
		assert_memory_equal(r + IPV6, q + IPV6, l4 - IPV6);
	}
	assert_int_equal(r[l4], length == 4 ? 0 : 129);
	assert_int_equal(r[l4 + 1], q[l4 + 1]);
	assert_memory_equal(r + l4 + 4, q + l4 + 4, n - 4);
}

// Right stays right, wrong stays wrong, by a sum over the whole message.
static void ten_thousand_echoes(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		uint8_t version = i % 2 ? 4 : 6, options = (uint8_t)random_below(&seed, 4), message[1500];
		uint32_t n = ICMP_HEADER + random_below(&seed, sizeof(message) - ICMP_HEADER + 1), l4;
		uint32_t fill = random_below(&seed, 8);
		struct frame f, reply;

		for (uint32_t k = 0; k < n; k++)
			message[k] = fill == 0 ? 0 : fill == 1 ? 0xff : (uint8_t)next_random(&seed);
		f = echo(version, options, message, n);
		l4 = f.length - n;
		if (i % 4 >= 2) // a checksum by chance: wrong but for one of 65536
			put_be16(f.bytes + l4 + 2, (uint32_t)next_random(&seed) & 0xffff);
		// The first buffer has at least the headers; the rest of the message is in another one and not needed.
		reply = reply_to(&f, i % 3 ? f.length : l4 + ICMP_HEADER + random_below(&seed, n - ICMP_HEADER + 1));
		check_reply(&f, &reply, n);
		assert_int_equal(icmp_checksum(reply.bytes + ETH, reply.bytes + l4, n),
				 icmp_checksum(f.bytes + ETH, f.bytes + l4, n));
	}
}

// The message of zeros, whose sum has no 0xffff in it to stand for 0, among others that come near the fold.
static void echoes_at_the_edge_of_the_sum(void **state)
{
	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2)
		for (uint32_t word = 0; word < 65536; word++) {
			uint8_t message[ICMP_HEADER + 2] = {0};
			struct frame f, reply;
			uint32_t n = word % 2 ? sizeof(message) : ICMP_HEADER, l4;
			bool right;

			put_be16(message + 4, word);
			f = echo(version, 0, message, n);
			l4 = f.length - n;
			reply = reply_to(&f, f.length);
			check_reply(&f, &reply, n);
			right = icmp_checksum(reply.bytes + ETH, reply.bytes + l4, n) == 0;
			if (version == 6) // 0xffff would do as well, but 0 is what everybody else writes
				right = right && be16(reply.bytes + l4 + 2) != 0xffff;
			if (!right)
				fail_msg("IPv%d, id %04x: checksum %04x", version, (unsigned int)word, be16(reply.bytes + l4 + 2));
		}
}

static void every_checksum_of_a_question(void **state)
{
	uint8_t message[ICMP_HEADER + 3] = {0, 7, 0, 0, 0x12, 0x34, 0x56, 0x78, 'a', 'b', 'c'};

	(void)state;
	for (uint8_t version = 4; version <= 6; version += 2)
		for (uint32_t sum = 0; sum < 65536; sum++) {
			struct frame f = echo(version, 0, message, sizeof(message)), reply;
			uint32_t l4 = f.length - sizeof(message);

			put_be16(f.bytes + l4 + 2, sum);
			reply = reply_to(&f, f.length);
			if (icmp_checksum(reply.bytes + ETH, reply.bytes + l4, sizeof(message)) !=
			    icmp_checksum(f.bytes + ETH, f.bytes + l4, sizeof(message)))
				fail_msg("IPv%d, checksum %04x", version, (unsigned int)sum);
		}
}

// -- too big

static void the_quote_is_what_there_is_as_far_as_there_is_room(void **state)
{
	(void)state;
	for (uint32_t ip_length = 20; ip_length < 1600; ip_length++)
		for (uint32_t available = ip_length - 20; available <= ip_length + 20; available += 20) {
			struct packet_view four = {.version = 4, .ip_length = ip_length, .available = available};
			struct packet_view six = {.version = 6, .ip_length = ip_length, .available = available};
			uint32_t all = available < ip_length ? available : ip_length;

			assert_int_equal(icmp_quote_length(&four), all < 548 ? all : 548);
			assert_int_equal(icmp_quote_length(&six), all < 1232 ? all : 1232);
		}
	assert_int_equal(icmp_too_big_headers(&(struct packet_view){.version = 4}), 28);
	assert_int_equal(icmp_too_big_headers(&(struct packet_view){.version = 6}), 48);
}

static void check_too_big(uint8_t version, const uint8_t *quote, uint32_t quoted, uint32_t mtu, uint16_t id)
{
	static const uint8_t zero[4] = {0};
	uint32_t ip_header = header_length(version), headers = ip_header + ICMP_HEADER;
	uint8_t length = version == 4 ? 4 : 16, addresses[32], dirt[MAX_FRAME], *ip, *icmp;

	memcpy(addresses, version == 4 ? CLIENT4 : CLIENT6, length);
	memcpy(addresses + length, version == 4 ? VIP4 : VIP6, length);
	memset(dirt, 0xff, headers);
	memcpy(dirt + headers, quote, quoted);
	ip = at_end_of_block(dirt, headers + quoted);
	icmp = ip + ip_header;
	icmp_too_big_write(ip, version, addresses, quoted, mtu, id);
	assert_memory_equal(icmp + ICMP_HEADER, quote, quoted);
	assert_int_equal(icmp_checksum(ip, icmp, ICMP_HEADER + quoted), 0);
	assert_memory_equal(ip + ip_header - length, addresses, length);
	assert_memory_equal(ip + ip_header - 2 * length, addresses + length, length);
	if (version == 4) {
		assert_int_equal(be16(ip), 0x4500);
		assert_int_equal(be16(ip + 2), headers + quoted);
		assert_int_equal(be16(ip + 4), id);
		assert_int_equal(be16(ip + 6), 0);
		assert_int_equal(be16(ip + 8), 64 << 8 | ICMP);
		assert_int_equal(internet_checksum(ip, IPV4), 0);
		assert_int_equal(be16(icmp), 3 << 8 | 4);
		assert_int_equal(be16(icmp + 4), 0);
	} else {
		assert_int_equal(be16(ip), 0x6000);
		assert_memory_equal(ip + 2, zero, 2);
		assert_int_equal(be16(ip + 4), ICMP_HEADER + quoted);
		assert_int_equal(be16(ip + 6), ICMP6 << 8 | 64);
		assert_int_equal(be16(icmp), 2 << 8);
		assert_int_equal(be16(icmp + 4), mtu >> 16);
	}
	assert_int_equal(be16(icmp + 6), mtu & 0xffff);
	free(ip);
}

static void every_byte_of_a_too_big_error(void **state)
{
	uint8_t quote[1300];
	uint64_t seed = 7;

	(void)state;
	for (uint32_t quoted = 0; quoted <= 1232; quoted++) {
		uint32_t fill = random_below(&seed, 4);

		for (uint32_t k = 0; k < quoted; k++)
			quote[k] = fill == 0 ? 0 : fill == 1 ? 0xff : (uint8_t)next_random(&seed);
		if (quoted <= 548)
			check_too_big(4, quote, quoted, 68 + random_below(&seed, 9000), (uint16_t)next_random(&seed));
		check_too_big(6, quote, quoted, 1280 + random_below(&seed, 9000), 0);
	}
}

static void every_mtu_and_id(void **state)
{
	static const uint8_t quote[29] = {0x45, 1, 2, 3};

	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		check_too_big(4, quote, sizeof(quote), i, (uint16_t)(i * 7));
		check_too_big(6, quote, sizeof(quote), i, (uint16_t)i);
	}
	check_too_big(6, quote, sizeof(quote), 0x12345678, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_has_its_kind),
		cmocka_unit_test(less_than_a_header_is_broken),
		cmocka_unit_test(a_header_in_the_next_buffer_is_broken),
		cmocka_unit_test(icmp_is_the_version_s_own_and_no_fragment),
		cmocka_unit_test(the_quoted_flow_is_the_client_s),
		cmocka_unit_test(an_error_is_read_no_further_than_it_goes),
		cmocka_unit_test(what_follows_the_packet_is_not_quoted),
		cmocka_unit_test(every_protocol_version_and_header_length_of_a_quote),
		cmocka_unit_test(only_an_offset_makes_a_quote_a_later_fragment),
		cmocka_unit_test(every_bit_of_the_quoted_source_counts),
		cmocka_unit_test(no_error_makes_us_read_beyond_its_end),
		cmocka_unit_test(who_may_be_answered),
		cmocka_unit_test(every_first_byte_of_a_source),
		cmocka_unit_test(a_chosen_way_is_seen_whatever_stands_before_it),
		cmocka_unit_test(ten_thousand_echoes),
		cmocka_unit_test(echoes_at_the_edge_of_the_sum),
		cmocka_unit_test(every_checksum_of_a_question),
		cmocka_unit_test(the_quote_is_what_there_is_as_far_as_there_is_room),
		cmocka_unit_test(every_byte_of_a_too_big_error),
		cmocka_unit_test(every_mtu_and_id),
	};

	return cmocka_run_group_tests_name("icmp", tests, NULL, NULL);
}
