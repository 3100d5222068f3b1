#include "packet_pool.h"

#include <rte_errno.h>
#include <rte_lcore.h>

int packet_pool_create(struct packet_pool *pool, const char *name, uint32_t size)
{
	// A cache larger than size / 1.5 is refused by the library.
	pool->cache = size >= POOL_WITH_CACHE ? POOL_CACHE : 0;
	pool->size = size;
	pool->mempool = rte_pktmbuf_pool_create(name, size, pool->cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
	return pool->mempool != NULL ? 0 : -rte_errno;
}

void packet_pool_free(struct packet_pool *pool)
{
	rte_mempool_free(pool->mempool);
	pool->mempool = NULL;
}

uint32_t packet_pool_available(const struct packet_pool *pool)
{
	return rte_mempool_avail_count(pool->mempool);
}

void packet_ring_drain(struct rte_ring *ring)
{
	struct rte_mbuf *m;

	while (ring != NULL && rte_ring_dequeue(ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(ring);
}
