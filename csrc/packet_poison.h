// What lies around a packet's bytes in its buffers, told to AddressSanitizer where a build has it: code of ours that
// touches it is stopped on the spot. In other builds all of this is nothing.
//
// Only packets on the road are poisoned. DPDK's code is not instrumented, but its memcpy is checked all the same, so
// a buffer is clean again before a device or the pool has it.

#ifndef MAGLEV_PACKET_POISON_H
#define MAGLEV_PACKET_POISON_H

#include <rte_mbuf.h>
#include <sanitizer/asan_interface.h>

#ifdef __SANITIZE_ADDRESS__
enum { POISON = 1 };
#else
enum { POISON = 0 }; // a constant, so that the loops below are compiled in every build and cost nothing in most
#endif

// Headroom and tailroom of all of the packet's buffers.
static inline void packet_poison(const struct rte_mbuf *m)
{
	for (; POISON && m != NULL; m = m->next) {
		const uint8_t *buffer = m->buf_addr;
		uint32_t end = (uint32_t)m->data_off + m->data_len;

		ASAN_POISON_MEMORY_REGION(buffer, m->data_off);
		ASAN_POISON_MEMORY_REGION(buffer + end, m->buf_len - end);
	}
}

static inline void packet_unpoison(const struct rte_mbuf *m)
{
	for (; POISON && m != NULL; m = m->next)
		ASAN_UNPOISON_MEMORY_REGION(m->buf_addr, m->buf_len);
}

#endif
