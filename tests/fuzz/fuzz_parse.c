// Any frame: what the view says lies within the frame and agrees with its bytes.

#include "fuzz.h"

#include "parse.h"
#include "plain.h"

enum { TCP = 6, UDP = 17 };

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void check_ip(const struct frame *f, const struct packet_view *v)
{
	uint32_t header = v->version == 4 ? (v->ip[0] & 15u) * 4 : 40;

	must(v->l3 == 14 || v->l3 == 18 || v->l3 == 22);
	must(v->ip == f->bytes + v->l3);
	must(v->available == f->available - v->l3);
	must(v->ip_length <= f->length - v->l3);
	must(v->version == v->ip[0] >> 4);
	must(be16(v->ip - 2) == (v->version == 4 ? 0x0800 : 0x86dd));
	must(v->ip_length == (v->version == 4 ? be16(v->ip + 2) : 40u + be16(v->ip + 4)));
	must(v->l4 >= header);
	must(v->l4 <= v->ip_length && v->l4 <= v->available);
	must(!v->has_ports);
	if (v->version == 4) {
		must(internet_checksum(v->ip, header) == 0);
		must(v->l4 == header && v->protocol == v->ip[9] && v->ttl == v->ip[8]);
		must(v->fragment == ((be16(v->ip + 6) & 0x3fff) != 0));
		must(v->fragment_offset == (be16(v->ip + 6) & 0x1fff) && v->fragment_id == be16(v->ip + 4));
	} else {
		must(v->ttl == v->ip[7]);
		must(v->l4 == 40 || ipv6_is_extension(v->ip[6]));
		must(v->l4 % 8 == 0);
	}
	must(v->fragment || v->fragment_offset == 0);
}

static void check_ports(const struct packet_view *v)
{
	uint8_t length = view_address_length(v);
	const uint8_t *l4 = v->ip + v->l4;

	must(v->fragment_offset == 0);
	must(v->protocol == TCP || v->protocol == UDP);
	must(v->flow_protocol == v->protocol);
	must(v->l4 + 4u <= smaller(v->ip_length, v->available));
	must(v->destination_port == be16(l4 + 2));
	must(v->key.length == 2 * length + 5);
	must(memcmp(v->key.bytes, v->ip + (v->version == 4 ? 12 : 8), 2u * length) == 0);
	must(memcmp(v->key.bytes + 2 * length, l4, 4) == 0);
	must(v->key.bytes[2 * length + 4] == v->protocol);
}

static void check_transport(const struct packet_view *v)
{
	const uint8_t *l4 = v->ip + v->l4;
	bool with_ports = v->fragment_offset == 0 && (v->protocol == TCP || v->protocol == UDP);

	must(v->has_ports == with_ports);
	if (!with_ports) {
		must(v->destination_port == 0);
		return;
	}
	must(v->l4 + (v->protocol == TCP ? 20u : 8u) <= smaller(v->ip_length, v->available));
	if (v->protocol == TCP) {
		must(l4[12] >> 4 >= 5 && v->l4 + (l4[12] >> 4) * 4u <= v->ip_length);
		must(v->tcp_flags == l4[13]);
	} else {
		must(be16(l4 + 4) >= 8 && (v->fragment || v->l4 + be16(l4 + 4) <= v->ip_length));
		must(v->tcp_flags == 0);
	}
}

static bool same_view(const struct packet_view *a, const struct packet_view *b)
{
	return a->ip == b->ip && a->ip_length == b->ip_length && a->available == b->available && a->l3 == b->l3 &&
	       a->l4 == b->l4 && a->version == b->version && a->protocol == b->protocol &&
	       a->flow_protocol == b->flow_protocol && a->traffic_class == b->traffic_class && a->ttl == b->ttl &&
	       a->tcp_flags == b->tcp_flags && a->dont_fragment == b->dont_fragment && a->fragment == b->fragment &&
	       a->fragment_offset == b->fragment_offset && a->has_ports == b->has_ports &&
	       a->destination_port == b->destination_port && a->key.length == b->key.length &&
	       memcmp(a->key.bytes, b->key.bytes, a->key.length) == 0;
}

// Every frame that could be plain, and nothing else, is; and all ways say the same of it.
static bool take_plain(const struct frame *f, struct packet_view *view)
{
	plain_way *ways[] = {plain_scalar(), plain_avx2(), plain_avx512()};
	const struct hash_key key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
	struct plain lanes[2], first;

	for (size_t i = 0; i < COUNT(ways); i++) {
		const struct plain *p;

		if (ways[i] == NULL)
			continue;
		memset(lanes, 0, sizeof(lanes)); // so that all of it can be compared
		plain_begin(&lanes[0], 4);
		plain_begin(&lanes[1], 6);
		if (!plain_take(&lanes[0], &lanes[1], f->bytes, f->available, f->length, 3))
			return false;
		p = &lanes[lanes[0].count == 0];
		ways[i](&lanes[lanes[0].count == 0], &key);
		must(i == 0 || memcmp(p, &first, sizeof(first)) == 0);
		first = *p;
	}
	must(first.position[0] == 3);
	if (!first.good[0])
		return false;
	plain_view(&first, 0, first.version, view);
	must(first.hash[0] == flow_hash(&key, &view->key));
	must(first.vip_key[0] == vip_table_key(view_destination(view), view_address_length(view), view->protocol,
					       view->destination_port).key);
	return true;
}

static bool may_be_plain(const struct frame *f, const struct packet_view *v)
{
	uint32_t least = v->version == 4 ? PLAIN_LEAST4 : PLAIN_LEAST6;

	return v->has_ports && v->l3 == PLAIN_L3 && v->l4 == (v->version == 4 ? 20 : 40) && !v->fragment && v->ttl != 0 &&
	       f->available >= least;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct frame f = take_frame(&in);
	struct packet_view v, p;
	bool plain = take_plain(&f, &p), good = false;

	memset(&v, 0xa5, sizeof(v)); // as a stage finds it: whatever a former packet left
	if (parse_ip(f.bytes, f.available, f.length, &v) == PARSE_OK) {
		enum parse_result transport;

		check_ip(&f, &v);
		transport = parse_transport(&v);
		must(transport == PARSE_OK || transport == PARSE_MALFORMED);
		if (v.has_ports)
			check_ports(&v);
		if (transport == PARSE_OK)
			check_transport(&v);
		good = transport == PARSE_OK;
	}
	must(plain == (good && may_be_plain(&f, &v)));
	must(!plain || same_view(&v, &p));
	free(f.bytes);
	return 0;
}
