#include "packet_pool.h"

#include <rte_errno.h>
#include <rte_lcore.h>

#include "umem.h"

// Ethernet header with tags, outer IPv6 header, fragment header; behind the headroom, where a driver may put a tag.
enum { PIECE_HEADERS = RTE_PKTMBUF_HEADROOM + 64 };

// Without caches: few packets are cut, and what an lcore kept to itself would be missing where the next one is.
static struct rte_mempool *side_pool(const char *name, const char *what, uint32_t size, uint16_t room,
				     int socket)
{
	char full[RTE_MEMPOOL_NAMESIZE];

	if (snprintf(full, sizeof(full), "%s_%s", name, what) >= (int)sizeof(full)) {
		rte_errno = ENAMETOOLONG;
		return NULL;
	}
	return rte_pktmbuf_pool_create(full, size, 0, 0, room, socket);
}

int packet_pool_create(struct packet_pool *pool, const char *name, uint32_t size, int socket, bool umem)
{
	uint32_t pieces = size / PACKETS_PER_PIECE + 1; // the library makes no pool of nothing
	int rc;

	// A cache larger than size / 1.5 is refused by the library.
	*pool = (struct packet_pool){.size = size, .cache = size >= POOL_WITH_CACHE ? POOL_CACHE : 0};
	pool->mempool = umem ? umem_pool_create(name, size, pool->cache, socket)
			     : rte_pktmbuf_pool_create(name, size, pool->cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, socket);
	if (pool->mempool != NULL)
		pool->piece_headers = side_pool(name, "heads", pieces, PIECE_HEADERS, socket);
	if (pool->piece_headers != NULL)
		pool->piece_references = side_pool(name, "refs", pieces * REFERENCES_PER_PIECE, 0, socket);
	if (pool->piece_references != NULL)
		return 0;
	rc = -rte_errno;
	packet_pool_free(pool);
	return rc;
}

void packet_pool_free(struct packet_pool *pool)
{
	rte_mempool_free(pool->piece_references); // nothing happens for NULL
	rte_mempool_free(pool->piece_headers);
	rte_mempool_free(pool->mempool);
	*pool = (struct packet_pool){0};
}

uint32_t packet_pool_available(const struct packet_pool *pool)
{
	return rte_mempool_avail_count(pool->mempool);
}

uint32_t packet_pool_missing(const struct packet_pool *pool)
{
	return rte_mempool_in_use_count(pool->mempool) + rte_mempool_in_use_count(pool->piece_headers) +
	       rte_mempool_in_use_count(pool->piece_references);
}

void packet_ring_drain(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (ring != NULL && rte_ring_dequeue(ring, (void **)&m) == 0)
		packet_free(m);
	rte_ring_free(ring);
}

void packet_cut_off(struct rte_mbuf *m, uint32_t bytes)
{
	struct rte_mbuf *last = m;
	uint32_t left = bytes;

	m->pkt_len = bytes;
	for (m->nb_segs = 1; left > last->data_len; m->nb_segs++) {
		left -= last->data_len;
		last = last->next;
	}
	last->data_len = (uint16_t)left;
	packet_free(last->next);
	last->next = NULL;
	packet_poison(last);
}
