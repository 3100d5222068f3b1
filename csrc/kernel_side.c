#include "kernel_side.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ether.h>

#include "stats.h"

enum { MOST_BUFFERS = 16 }; // of one packet: more than any NIC takes for a frame

void kernel_side_open(struct kernel_side *k, const int *files, uint16_t queues, struct packet_pool *pool)
{
	*k = (struct kernel_side){.pool = pool};
	k->look_cycles = rte_get_tsc_hz() / 1000000 * KERNEL_LOOK_MICROSECONDS;
	memcpy(k->files, files, queues * sizeof(*files));
}

static struct rte_mbuf *read_frame(struct kernel_side *k, uint16_t queue)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(k->pool->mempool);
	ssize_t length;

	if (m == NULL)
		return NULL;
	length = read(k->files[queue], rte_pktmbuf_mtod(m, void *), rte_pktmbuf_tailroom(m));
	if (length == rte_pktmbuf_tailroom(m)) { // and the rest of it was thrown away
		count(&k->too_long[queue], 1);
		length = 0;
	}
	if (length <= 0) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	m->data_len = (uint16_t)length;
	m->pkt_len = (uint32_t)length;
	packet_poison(m);
	return m;
}

uint16_t kernel_side_receive(struct kernel_side *k, uint16_t queue, struct rte_mbuf **burst, uint16_t n)
{
	uint64_t now = rte_rdtsc();
	uint16_t received = 0;

	if (now < k->next_look[queue])
		return 0;
	while (received < n && (burst[received] = read_frame(k, queue)) != NULL)
		received++;
	if (received < n) // else there may be more at once
		k->next_look[queue] = now + k->look_cycles;
	return received;
}

static bool write_frame(int file, struct rte_mbuf **frame)
{
	struct iovec buffers[MOST_BUFFERS];
	int used = 0;

	if (((*frame)->ol_flags & RTE_MBUF_F_TX_VLAN) && rte_vlan_insert(frame) != 0) // there is no NIC to put it back
		return false;
	for (const struct rte_mbuf *m = *frame; m != NULL; m = m->next) {
		if (used == MOST_BUFFERS)
			return false;
		buffers[used++] = (struct iovec){rte_pktmbuf_mtod(m, void *), m->data_len};
	}
	return writev(file, buffers, used) == (ssize_t)(*frame)->pkt_len;
}

void kernel_side_transmit(struct kernel_side *k, uint16_t queue, struct rte_mbuf **burst, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		packet_unpoison(burst[i]); // for the tag
		if (!write_frame(k->files[queue], &burst[i]))
			count(&k->refused[queue], 1);
		packet_free(burst[i]);
	}
}
