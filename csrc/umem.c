#include "umem.h"

#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>

#include "packet_pool.h"

static void free_zone(struct rte_mempool_memhdr *chunk, void *zone)
{
	(void)chunk;
	rte_memzone_free(zone);
}

// One piece of memory for all of them. Returns 0 or a negative errno.
static int populate(struct rte_mempool *pool)
{
	const struct rte_memzone *zone;
	size_t least, align;
	ssize_t bytes = rte_mempool_op_calc_mem_size_default(pool, pool->size, 0, &least, &align);
	char name[RTE_MEMZONE_NAMESIZE];
	int n;

	if (bytes < 0)
		return (int)bytes;
	snprintf(name, sizeof(name), "%.20s_umem", pool->name);
	zone = rte_memzone_reserve_aligned(name, (size_t)bytes, pool->socket_id, 0, (unsigned int)align);
	if (zone == NULL)
		return -rte_errno;
	// A packet may lie across two pages: only by virtual addresses a device could be told where.
	n = rte_mempool_populate_iova(pool, zone->addr, rte_eal_iova_mode() == RTE_IOVA_VA ? zone->iova : RTE_BAD_IOVA,
				      zone->len, free_zone, (void *)(uintptr_t)zone);
	if (n <= 0)
		rte_memzone_free(zone);
	return n == (int)pool->size ? 0 : n < 0 ? n : -ENOBUFS;
}

struct rte_mempool *umem_pool_create(const char *name, uint32_t size, uint32_t cache, int socket)
{
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = RTE_MBUF_DEFAULT_BUF_SIZE +
									  UMEM_KERNEL_HEADROOM};
	struct rte_mempool *pool =
		rte_mempool_create_empty(name, size, sizeof(struct rte_mbuf) + private.mbuf_data_room_size, cache,
					 sizeof(private), socket, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	int rc;

	if (pool == NULL)
		return NULL;
	rc = rte_mempool_set_ops_byname(pool, "ring_mp_mc", NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		rc = populate(pool);
	}
	if (rc < 0) {
		rte_mempool_free(pool);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

static int by_address(const void *a, const void *b)
{
	uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;

	return first < second ? -1 : first > second;
}

struct search {
	void **free; // sorted
	uint32_t free_count;
	struct rte_mbuf **missing;
	uint32_t missing_count;
};

static void note_missing(struct rte_mempool *pool, void *opaque, void *object, unsigned int index)
{
	struct search *search = opaque;

	(void)pool;
	(void)index;
	if (bsearch(&object, search->free, search->free_count, sizeof(void *), by_address) == NULL)
		search->missing[search->missing_count++] = object;
}

void umem_take_back(struct rte_mempool *pool, uint32_t held)
{
	struct search search = {.free_count = pool->size - held};

	if (held == 0 || rte_mempool_in_use_count(pool) != held)
		return;
	for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE && pool->cache_size > 0; lcore++)
		rte_mempool_cache_flush(&pool->local_cache[lcore], pool);
	search.free = malloc(pool->size * sizeof(void *));
	search.missing = malloc(held * sizeof(void *));
	if (search.free != NULL && search.missing != NULL &&
	    rte_mempool_get_bulk(pool, search.free, search.free_count) == 0) {
		qsort(search.free, search.free_count, sizeof(void *), by_address);
		rte_mempool_obj_iter(pool, note_missing, &search);
		rte_mempool_put_bulk(pool, search.free, search.free_count);
		for (uint32_t i = 0; i < search.missing_count; i++)
			packet_free(search.missing[i]);
	}
	free(search.free);
	free(search.missing);
}
