// Pools, ports and rings as single things that the binding owns, part of dataplane.h.

#include <errno.h>
#include <stdlib.h>

#include "dataplane.h"
#include "packet_ring.h"
#include "parse.h"
#include "rss.h"
#include "umem.h"

enum { MACS = 12, ETHERTYPE = 2, VLAN_TAG = 4 };

struct packet_pool *pool_new(const char *name, uint32_t size, int socket, bool umem, int *error)
{
	struct packet_pool *pool = calloc(1, sizeof(*pool));

	*error = pool != NULL ? packet_pool_create(pool, name, size, socket, umem) : -ENOMEM;
	if (*error == 0)
		return pool;
	free(pool);
	return NULL;
}

void pool_delete(struct packet_pool *pool)
{
	if (pool != NULL)
		packet_pool_free(pool);
	free(pool);
}

uint32_t pool_size(const struct packet_pool *pool)
{
	return pool->size;
}

uint32_t pool_available(const struct packet_pool *pool)
{
	return packet_pool_available(pool);
}

uint32_t pool_missing(const struct packet_pool *pool)
{
	return packet_pool_missing(pool);
}

void pool_take_back(struct packet_pool *pool, uint32_t held)
{
	umem_take_back(pool->mempool, held);
}

void pool_pieces(const struct packet_pool *pool, uint32_t *size, uint32_t *available)
{
	*size = pool->piece_headers->size;
	*available = rte_mempool_avail_count(pool->piece_headers);
}

struct port *port_new_device(const char *devargs, uint16_t index, struct packet_pool *pool, uint16_t queues,
			     uint16_t mtu, int *error)
{
	struct port *port = calloc(1, sizeof(*port));

	*error = port != NULL ? port_open_device(port, devargs, index, pool, queues, mtu) : -ENOMEM;
	if (*error == 0)
		return port;
	free(port);
	return NULL;
}

struct port *port_new_memory(const char *name, uint16_t index, uint16_t queues, int *error)
{
	struct port *port = calloc(1, sizeof(*port));

	*error = port != NULL ? port_open_memory(port, name, index, queues) : -ENOMEM;
	if (*error == 0)
		return port;
	free(port);
	return NULL;
}

struct port *port_new_kernel_side(const char *name, uint16_t index, uint16_t nic, const int *files, uint16_t queues,
				  struct packet_pool *pool, int *error)
{
	struct port *port = calloc(1, sizeof(*port));

	*error = queues == 0 || queues > MAX_QUEUES ? -EINVAL : port == NULL ? -ENOMEM : 0;
	if (*error == 0) {
		port_open_kernel_side(port, name, index, nic, files, queues, pool);
		return port;
	}
	free(port);
	return NULL;
}

int port_narrow(struct port *port, struct packet_pool *pool)
{
	return port_use_one_queue(port, pool);
}

void port_delete(struct port *port)
{
	if (port != NULL)
		port_close(port);
	free(port);
}

void port_describe(const struct port *port, struct port_facts *facts)
{
	memcpy(facts->mac, port->mac, sizeof(facts->mac));
	facts->link_up = port_link_up(port);
	facts->knows_recycled = port_knows_recycled(port);
	facts->missed = port_missed(port);
	facts->queues = port->queues;
	facts->buckets = port->buckets;
	facts->lacks = port->lacks;
}

static_assert(MOST_HEADROOM == RTE_PKTMBUF_HEADROOM, "what DPDK was built with");

// Stands in the headroom, so that what goes out shows a byte of the outer headers that no stage has written.
enum { UNWRITTEN = 0xa5 };

// A packet with the bytes of `frame`, of as many buffers as it takes; NULL when the pool is empty.
static struct rte_mbuf *packet_of(struct packet_pool *pool, const uint8_t *frame, uint32_t length, uint16_t headroom)
{
	struct rte_mbuf *head = rte_pktmbuf_alloc(pool->mempool), *tail = head;

	if (head != NULL) {
		head->data_off = headroom;
		memset(head->buf_addr, UNWRITTEN, headroom);
	}
	while (head != NULL) {
		uint32_t room = rte_pktmbuf_tailroom(tail);
		uint32_t part = length < room ? length : room;
		struct rte_mbuf *next;

		memcpy(rte_pktmbuf_append(head, (uint16_t)part), frame, part);
		frame += part;
		length -= part;
		if (length == 0) {
			packet_poison(head);
			return head;
		}
		next = rte_pktmbuf_alloc(pool->mempool);
		if (next == NULL || rte_pktmbuf_chain(head, next) != 0) {
			packet_free(next);
			packet_free(head);
			return NULL;
		}
		tail = next;
	}
	return NULL;
}

// What a NIC does with RSS over addresses, and over the ports of TCP and UDP where they stand right behind them. It looks
// through one VLAN tag.
static uint16_t rss_queue(const struct port *port, const struct rte_mbuf *m)
{
	struct packet_view v;

	if (port->queues == 1 || parse_ip(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, m->pkt_len, &v) != PARSE_OK ||
	    v.l3 > MACS + VLAN_TAG + ETHERTYPE)
		return 0;
	parse_transport(&v);
	if (!v.has_ports || v.fragment || v.l4 != (v.version == 4 ? 20 : 40))
		flow_key_fill(&v.key, view_source(&v), view_destination(&v), view_address_length(&v), 0, 0, 0);
	return port->queue_of[rss_hash(&v.key) % MEMORY_PORT_BUCKETS];
}

int port_give(struct port *port, struct packet_pool *pool, const void *frame, uint32_t length, uint16_t headroom,
	      const uint16_t *tag)
{
	struct rte_mbuf *m;

	if (port->kind != PORT_MEMORY)
		return -ENOTSUP;
	if (headroom > MOST_HEADROOM)
		return -EINVAL;
	m = packet_of(pool, frame, length, headroom);
	if (m == NULL)
		return -ENOBUFS;
	if (tag != NULL) {
		m->vlan_tci = *tag;
		m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	}
	if (rte_ring_sp_enqueue(port->arriving[rss_queue(port, m)], m) == 0)
		return 0;
	packet_free(m);
	return -ENOBUFS;
}

// As a NIC does that puts the tag back. `frame` has room for it.
static void put_tag_back(uint8_t *frame, uint32_t length, uint16_t tag)
{
	const uint8_t bytes[] = {0x81, 0x00, (uint8_t)(tag >> 8), (uint8_t)tag};

	memmove(frame + MACS + sizeof(bytes), frame + MACS, length - MACS);
	memcpy(frame + MACS, bytes, sizeof(bytes));
}

static struct rte_mbuf *next_sent(struct port *port)
{
	struct rte_mbuf *m;

	for (uint16_t q = 0; q < port->queues; q++)
		if (rte_ring_sc_dequeue(port->leaving[q], (void **)&m) == 0)
			return m;
	return NULL;
}

int port_take(struct port *port, void *frame, uint32_t room)
{
	struct rte_mbuf *m;
	uint32_t length, tag;

	if (port->kind != PORT_MEMORY)
		return -ENOTSUP;
	m = next_sent(port);
	if (m == NULL)
		return 0;
	length = m->pkt_len;
	tag = m->ol_flags & RTE_MBUF_F_TX_VLAN ? VLAN_TAG : 0;
	if (length + tag <= room) {
		const void *data = rte_pktmbuf_read(m, 0, length, frame);

		if (data != frame)
			memcpy(frame, data, length);
		if (tag > 0)
			put_tag_back(frame, length, m->vlan_tci);
	}
	packet_free(m);
	return length + tag <= room ? (int)(length + tag) : -EMSGSIZE;
}

struct receive_ring *receive_ring_new(uint32_t size, int *error)
{
	struct receive_ring *r = aligned_alloc(64, sizeof(*r));

	*error = r != NULL ? receive_ring_create(r, size) : -ENOMEM;
	if (*error == 0)
		return r;
	free(r);
	return NULL;
}

void receive_ring_delete(struct receive_ring *r)
{
	if (r != NULL)
		receive_ring_free(r);
	free(r);
}

void receive_ring_credit(struct receive_ring *r, uint64_t credit)
{
	receive_ring_reserve(r, credit);
}

uint32_t receive_ring_pull(struct receive_ring *r, struct port *port)
{
	return receive_ring_fill(r, port);
}

uint32_t receive_ring_hand_over(struct receive_ring *r, struct transmit_ring *to, uint32_t n)
{
	uint32_t moved = 0;
	struct rte_mbuf *m;

	while (moved < n && receive_ring_peek(r, &m, 1) == 1 && transmit_ring_put(to, m)) {
		receive_ring_done(r, 1);
		moved++;
	}
	return moved;
}

void receive_ring_indices(const struct receive_ring *r, struct ring_indices *indices)
{
	// In the order of the law, and once more while the last one moves: so that a moving ring never seems to break it.
	do {
		indices->processed = __atomic_load_n(&r->processed, __ATOMIC_ACQUIRE);
		indices->received = __atomic_load_n(&r->received, __ATOMIC_ACQUIRE);
		indices->reserved = __atomic_load_n(&r->reserved, __ATOMIC_ACQUIRE);
	} while (indices->processed != __atomic_load_n(&r->processed, __ATOMIC_RELAXED));
}

struct transmit_ring *transmit_ring_new(uint32_t size, int *error)
{
	struct transmit_ring *r = aligned_alloc(64, sizeof(*r));

	*error = r != NULL ? transmit_ring_create(r, size) : -ENOMEM;
	if (*error == 0)
		return r;
	free(r);
	return NULL;
}

void transmit_ring_delete(struct transmit_ring *r)
{
	if (r != NULL)
		transmit_ring_free(r);
	free(r);
}

uint32_t transmit_ring_push(struct transmit_ring *r, struct port *port)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n = transmit_ring_peek(r, burst, BURST);
	uint16_t sent = n > 0 ? port_transmit(port, 0, burst, n) : 0;

	transmit_ring_sent(r, sent);
	transmit_ring_recycle(r, port, 0);
	return sent;
}

void transmit_ring_indices(const struct transmit_ring *r, struct ring_indices *indices)
{
	do { // as above
		indices->recycled = __atomic_load_n(&r->recycled, __ATOMIC_ACQUIRE);
		indices->sent = __atomic_load_n(&r->sent, __ATOMIC_ACQUIRE);
		indices->ready = __atomic_load_n(&r->ready, __ATOMIC_ACQUIRE);
	} while (indices->recycled != __atomic_load_n(&r->recycled, __ATOMIC_RELAXED));
}
