// The packet pool: the one shared DPDK mbuf pool of the forwarder, and the note every packet in it carries.
//
// A packet is owned by the ring or stage that holds its pointer; whoever takes it off the road gives it back with
// packet_free() and counts it as released.

#ifndef MAGLEV_PACKET_POOL_H
#define MAGLEV_PACKET_POOL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "packet_poison.h"

// A burst is what stages take at once, at most (lanes take less); by measurement (perf/README.md).
enum { BURST = 64, MAX_PORTS = 16, MAX_WORKERS = 32 };

// Pools below the second size have no caches: they are for tests and prompts.
enum { POOL_CACHE = 256, POOL_WITH_CACHE = 4 * POOL_CACHE };

// There are buffers for a quarter as many pieces (pieces.h) as there are packets: a piece on the road takes receive
// credit as a packet does, and a flood of packets to be cut must not take all of it. Two references to a piece, since
// the bytes of one seldom lie in more than two buffers.
enum { PACKETS_PER_PIECE = 4, REFERENCES_PER_PIECE = 2 };

enum packet_flags {
	PACKET_OWN = 1,     // of our own making (a canary): never sent, never tracked, counted apart
	PACKET_SPILLED = 2, // its worker was full: another worker has it and must not track its flow
	PACKET_ASIDE = 4,   // an answer, or from or to the kernel: no vip's or backend's traffic
	PACKET_MATCHED = 8, // a later fragment whose flow is known: the note says which
	PACKET_TO_NODE = 16, // a fragment for another node of the cluster: no vip's or backend's traffic
	PACKET_UNWRAPPED = 32, // a fragment from another node of the cluster: never sent on once more
	PACKET_PIECE = 64,     // of a packet that was cut, not the last one: no fate of its own, counted apart
	PACKET_TO_MATCH = 128, // a fragment on its way to the worker that matches it, in layout `rss`
};

// Lives in the mbuf's hash field, which no stage behind the NIC needs. Written by the stage that owns the packet.
// The egress port is the mbuf's own `port`.
struct packet_note {
	uint8_t reason; // enum reason, once it is decided
	uint8_t flags;
	union {
		struct {
			uint16_t vip;     // stable index, valid for forwarded packets; while tracing also for others, or NO_VIP
			uint16_t backend; // likewise, or NO_BACKEND; PACKET_TO_NODE: position of the node in the state
		};
		struct { // PACKET_MATCHED, until its worker has read them; network order
			uint16_t source_port;
			uint16_t destination_port;
		};
	};
	union {
		uint16_t bytes;   // of the inner packet, valid for forwarded packets
		uint8_t worker;   // PACKET_OWN: the worker it must pass
		uint8_t protocol; // PACKET_MATCHED: of the flow, until its worker has read it
	};
};
static_assert(sizeof(struct packet_note) == sizeof(((struct rte_mbuf *)0)->hash), "the note fills the hash field");

static inline struct packet_note *packet_note(struct rte_mbuf *m)
{
	return (struct packet_note *)&m->hash;
}

// The whole note of a forwarded packet without flags, by one store: it is soon read as a whole.
static inline void packet_note_write(struct packet_note *note, uint8_t reason, uint16_t vip, uint16_t backend,
				     uint16_t bytes)
{
	uint64_t word = reason | (uint64_t)vip << 16 | (uint64_t)backend << 32 | (uint64_t)bytes << 48;

	memcpy(note, &word, sizeof(word));
}

static inline void prefetch_to_write(const void *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line)); // the compiler's own way is a prefetch to read
#else
	__builtin_prefetch(line, 1);
#endif
}

// Bring near, to be written, what a worker writes of a packet that has just come: its mbuf, its headers and the headroom
// before them. Where they are is known without asking the mbuf, which may be on its way from another CPU. Ports of
// net_af_xdp have them elsewhere (umem.h), and gain nothing.
static inline void packet_prefetch(const struct rte_mbuf *m)
{
	const char *headers = (const char *)(m + 1) + RTE_PKTMBUF_HEADROOM;

	prefetch_to_write(m);
	prefetch_to_write(headers);
	prefetch_to_write(headers - RTE_CACHE_LINE_SIZE);
}

// Back to the pool; NULL is harmless.
static inline void packet_free(struct rte_mbuf *m)
{
	packet_unpoison(m);
	rte_pktmbuf_free(m);
}

// `bytes` more in front of the packet, to be written by the caller; NULL when its headroom has not so many.
static inline uint8_t *packet_prepend(struct rte_mbuf *m, uint16_t bytes)
{
	uint8_t *start = (uint8_t *)rte_pktmbuf_prepend(m, bytes);

	if (start != NULL)
		ASAN_UNPOISON_MEMORY_REGION(start, bytes);
	return start;
}

void packet_cut_off(struct rte_mbuf *m, uint32_t bytes);

// Keep the first `bytes` of a packet, of at least as many, and the buffers that they are in.
static inline void packet_cut(struct rte_mbuf *m, uint32_t bytes)
{
	if (m->pkt_len != bytes)
		packet_cut_off(m, bytes);
}

struct packet_pool {
	struct rte_mempool *mempool;
	uint32_t size;
	uint32_t cache; // packets an lcore may keep to itself
	struct rte_mempool *piece_headers;    // a buffer for the headers of each piece
	struct rte_mempool *piece_references; // to the bytes of the packet that was cut, one per buffer that they are in
};

// `size` packets of 2 KB in the memory of a NUMA node, SOCKET_ID_ANY: of any; `umem`: as ports of net_af_xdp need them, see
// umem.h. Returns 0 or a negative errno.
int packet_pool_create(struct packet_pool *pool, const char *name, uint32_t size, int socket, bool umem);
void packet_pool_free(struct packet_pool *pool);

// Free the packets in a ring between stages, and the ring; NULL is harmless. Nobody may use the ring any more.
void packet_ring_drain(struct rte_ring *ring);

// Packets that are in nobody's hands. Counts across all caches: for control threads, not for the road.
uint32_t packet_pool_available(const struct packet_pool *pool);

// Buffers that are in somebody's hands, those of pieces included; likewise.
uint32_t packet_pool_missing(const struct packet_pool *pool);

#endif
