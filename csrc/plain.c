#include "plain.h"

#include <netinet/in.h>
#include <stddef.h>

enum { LANES_TOGETHER = 8 }; // the widest vector of 64-bit words

#define INLINED static inline __attribute__((always_inline))

INLINED uint64_t swap16(uint64_t word)
{
	return (word << 8 & 0xff00) | (word >> 8 & 0xff);
}

// The sum of a header's words is a multiple of 0xffff, in whatever order their bytes are, when its checksum is right.
INLINED uint64_t sum_is_right(uint64_t first, uint64_t second, uint64_t third)
{
	uint64_t sum = (first & 0xffffffff) + (first >> 32) + (second & 0xffffffff) + (second >> 32) + third;

	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

// TCP's header, or a whole UDP datagram, fits into what its packet has behind the IP header.
INLINED uint64_t transport_fits(uint64_t transport, uint64_t tcp, uint64_t room)
{
	uint64_t header = tcp ? transport >> 34 & 0x3c : swap16(transport >> 48);
	uint64_t least = tcp ? 20 : 8;

	return (header >= least) & (header <= room);
}

// The words of the view, in the order of its fields (parse.h).
static_assert(offsetof(struct packet_view, available) == offsetof(struct packet_view, ip_length) + 4, "");
static_assert(offsetof(struct packet_view, fragment_offset) == offsetof(struct packet_view, l3) + 6, "");
static_assert(offsetof(struct packet_view, has_ports) == offsetof(struct packet_view, version) + 7, "");

INLINED void write_view(struct plain *p, uint32_t i, uint64_t version, uint64_t length, uint64_t protocol,
			uint64_t traffic_class, uint64_t ttl, uint64_t tcp_flags, uint64_t dont_fragment)
{
	uint64_t port = swap16(p->transport[i] >> 16);

	p->lengths[i] = length | p->room[i] << 32;
	p->offsets[i] = PLAIN_L3 | (version == 4 ? 20 : 40) << 16 | port << 32;
	p->summary[i] = version | protocol << 8 | protocol << 16 | traffic_class << 24 | ttl << 32 | tcp_flags << 40 |
			dont_fragment << 48 | 1ULL << 56;
	p->outer_word[i] = encap_ipv4_word(traffic_class, length, dont_fragment);
	p->outer_sum[i] = encap_ipv4_sum(traffic_class, length, dont_fragment);
	p->vip_key[i] = vip_key(p->key[version == 4 ? 0 : 2][i] >> (version == 4 ? 32 : 0) & 0xffffffff,
				version == 4 ? 4 : 16, protocol, port);
}

INLINED void check4(struct plain *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t first = p->first[i], second = p->second[i], transport = p->transport[i];
		uint64_t length = swap16(first >> 16), protocol = second >> 8 & 0xff, tcp = protocol == IPPROTO_TCP;
		uint64_t ttl = second & 0xff;
		// Version and length of the header, no more fragments and no offset.
		uint64_t good = (first & 0xff3f0000000000ff) == 0x45;

		good &= (length >= 28) & (length <= p->room[i] >> 32) & (ttl != 0);
		good &= tcp | (protocol == IPPROTO_UDP);
		good &= sum_is_right(first, second, p->key[0][i] >> 32);
		good &= transport_fits(transport, tcp, length - 20);
		p->good[i] = good;
		p->key[1][i] = (transport & 0xffffffff) | protocol << 32;
		write_view(p, i, 4, length, protocol, first >> 8 & 0xff, ttl, tcp ? transport >> 40 & 0xff : 0,
			   first >> 54 & 1);
	}
}

INLINED void check6(struct plain *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t first = p->first[i], transport = p->transport[i];
		uint64_t payload = swap16(first >> 32), protocol = first >> 48 & 0xff, tcp = protocol == IPPROTO_TCP;
		uint64_t good = (first & 0xf0) == 0x60;

		good &= (payload + 40 <= p->room[i] >> 32) & (first >> 56 != 0);
		good &= tcp | (protocol == IPPROTO_UDP);
		good &= transport_fits(transport, tcp, payload);
		p->good[i] = good;
		p->key[4][i] = (transport & 0xffffffff) | protocol << 32;
		write_view(p, i, 6, payload + 40, protocol, (first << 4 & 0xf0) | (first >> 12 & 0x0f), first >> 56,
			   tcp ? transport >> 40 & 0xff : 0, 1);
	}
}

// flow_hash() of each: the last five bytes of a key stand behind whole words.
INLINED void hash(struct plain *p, const struct hash_key *key, uint32_t words, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t v[4] = {
			key->k0 ^ 0x736f6d6570736575ULL,
			key->k1 ^ 0x646f72616e646f6dULL,
			key->k0 ^ 0x6c7967656e657261ULL,
			key->k1 ^ 0x7465646279746573ULL,
		};

		for (uint32_t w = 0; w < words; w++) {
			uint64_t word = p->key[w][i];

			if (w == words - 1)
				word |= (8ULL * words - 3) << 56;
			v[3] ^= word;
			siphash_rounds(v, 1);
			v[0] ^= word;
		}
		v[2] ^= 0xff;
		siphash_rounds(v, 3);
		p->hash[i] = v[0] ^ v[1] ^ v[2] ^ v[3];
	}
}

INLINED void finish(struct plain *p, const struct hash_key *key)
{
	uint32_t n = (p->count + LANES_TOGETHER - 1) & ~(LANES_TOGETHER - 1u);

	if (p->version == 4) {
		check4(p, n);
		hash(p, key, 2, n);
	} else {
		check6(p, n);
		hash(p, key, 5, n);
	}
}

static void finish_scalar(struct plain *p, const struct hash_key *key)
{
	finish(p, key);
}

plain_way *plain_scalar(void)
{
	return finish_scalar;
}

#ifdef __x86_64__

static __attribute__((target("avx2"))) void finish_avx2(struct plain *p, const struct hash_key *key)
{
	finish(p, key);
}

plain_way *plain_avx2(void)
{
	return __builtin_cpu_supports("avx2") ? finish_avx2 : NULL;
}

#ifdef __clang__ // has no such word, and chooses the width by itself
#define WHOLE_VECTORS ""
#else
#define WHOLE_VECTORS ",prefer-vector-width=512"
#endif

static __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw" WHOLE_VECTORS))) void
finish_avx512(struct plain *p, const struct hash_key *key)
{
	finish(p, key);
}

plain_way *plain_avx512(void)
{
	return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") ? finish_avx512 : NULL;
}

#else

plain_way *plain_avx2(void)
{
	return NULL;
}

plain_way *plain_avx512(void)
{
	return NULL;
}

#endif

static plain_way *best_way(void)
{
	if (plain_avx512() != NULL)
		return plain_avx512();
	return plain_avx2() != NULL ? plain_avx2() : plain_scalar();
}

void plain_finish(struct plain *p, const struct hash_key *key)
{
	static plain_way *chosen; // every thread would choose the same
	plain_way *way = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

	if (p->count == 0)
		return;
	if (way == NULL) {
		way = best_way();
		__atomic_store_n(&chosen, way, __ATOMIC_RELAXED);
	}
	way(p, key);
}
