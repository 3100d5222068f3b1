// The packet pool as AF_XDP wants it: its memory is the one piece that the kernel is given for a socket's packets (umem).

#ifndef MAGLEV_UMEM_H
#define MAGLEV_UMEM_H

#include <stdint.h>

#include <rte_mempool.h>

// What the kernel leaves free before a packet, for what XDP programs may put there; linux/bpf.h has it too.
enum { UMEM_KERNEL_HEADROOM = 256 };

// A pool of packets as rte_pktmbuf_pool_create() makes it, but in one piece of memory and without gaps, which net_af_xdp
// takes for granted, and with the kernel's headroom besides the usual one. NULL: rte_errno tells why not.
struct rte_mempool *umem_pool_create(const char *name, uint32_t size, uint32_t cache, int socket);

// Give back the `held` packets that net_af_xdp forgets when it is closed. Nothing happens when another number is missing:
// then somebody else has some. The caller is a control thread, and no lcore runs.
void umem_take_back(struct rte_mempool *pool, uint32_t held);

#endif
