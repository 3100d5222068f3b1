// Ports: a DPDK device, memory (frames from a capture or a test, taken and given by the control thread), or the kernel's
// side of another port (kernel_side.h).
//
// A port has as many receive as transmit queues: one, or in layout `rss` one of each for every worker. Receive and
// transmit of one queue are called by one stage each. Packets given to port_transmit() and accepted belong to the port.

#ifndef MAGLEV_PORT_H
#define MAGLEV_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "kernel_side.h"
#include "packet_pool.h"

enum { PORT_DESCRIPTORS = 512, MEMORY_PORT_FRAMES = 4096, MEMORY_PORT_BUCKETS = 128, MAX_QUEUES = MAX_WORKERS };

enum port_kind { PORT_CLOSED, PORT_DEVICE, PORT_MEMORY, PORT_KERNEL_SIDE };

struct port {
	enum port_kind kind;
	bool copies;     // the driver copies on transmit, so a sent packet is back in the pool at once
	bool gathers;    // the driver sends a packet that lies in several buffers
	uint16_t id;     // DPDK's port number, for a device
	uint16_t index;  // position among the forwarder's ports; the egress port in a packet's mbuf
	uint16_t queues;   // of each kind
	uint16_t buckets;  // of its RSS table: the hash of a packet picks a bucket, that its queue; a power of two
	const char *lacks; // why it has one queue where more were asked for, the rest of a sentence; NULL: it has them
	uint32_t held;                 // packets that the device has all the time, for what may come
	uint32_t transmit_descriptors; // packets that it may have besides, in all queues
	struct rte_mempool *flat; // a device that does not gather: of the packet that it is given then
	uint8_t mac[6];
	char name[64];
	struct rte_ring *arriving[MAX_QUEUES]; // memory port: frames to be received
	struct rte_ring *leaving[MAX_QUEUES];  // memory port: frames that were sent
	uint8_t queue_of[MEMORY_PORT_BUCKETS]; // memory port: its RSS table
	struct kernel_side kernel_side;        // of a port that is one
	uint16_t nic;                          // likewise: the port that it is beside
	uint16_t mtu;                          // that a device was told; 0: none
};

// Create and start the device `devargs` ("net_af_packet0,iface=eth1,...", "0000:3b:00.0"): `queues` each way, packets from
// `pool`. More than one only if it spreads flows over them as rss.h says; else it has one, and `lacks` tells. `mtu` is
// for a NIC that nobody else sets up: it takes frames of that size, and all multicast; 0 leaves it as it is. Returns 0 or
// a negative errno, -EMSGSIZE when it takes no such frames; on failure nothing is left behind.
int port_open_device(struct port *port, const char *devargs, uint16_t index, struct packet_pool *pool, uint16_t queues,
		     uint16_t mtu);

// A port without a NIC, that spreads what it is given as a NIC does. Returns 0 or a negative errno.
int port_open_memory(struct port *port, const char *name, uint16_t index, uint16_t queues);

// The kernel's side of port `nic`, a file for each queue; see kernel_side.h for whose they are.
void port_open_kernel_side(struct port *port, const char *name, uint16_t index, uint16_t nic, const int *files,
			   uint16_t queues, struct packet_pool *pool);

// Go on with one queue. Nothing may use the port meanwhile. Returns 0 or a negative errno.
int port_use_one_queue(struct port *port, struct packet_pool *pool);

// Let the hash of a packet pick its queue as rss_bucket_queue() says, by `buckets` of the port's own or fewer, a power of
// two. Returns 0 or a negative errno.
int port_share_out(struct port *port, uint16_t buckets);

// Stop and remove the device; packets it held return to the pool. Harmless on a closed port.
void port_close(struct port *port);

bool port_link_up(const struct port *port);

// Packets the device itself dropped because nobody took them in time; of a kernel's side those that the kernel
// refused, and those of the kernel's that are too long.
uint64_t port_missed(const struct port *port);

// Whether it can be known which transmitted packets are back in the pool.
static inline bool port_knows_recycled(const struct port *port)
{
	return port->kind != PORT_DEVICE || port->copies;
}

// How many packets that were sent by a queue are not back in the pool. Where that cannot be known it is 0, nobody is told a
// `recycled` pointer, and the pool is sized so that the device may keep all its descriptors.
static inline uint64_t port_unrecycled(const struct port *port, uint16_t queue)
{
	return port->kind == PORT_MEMORY ? rte_ring_count(port->leaving[queue]) : 0;
}

static inline uint16_t port_receive(struct port *port, uint16_t queue, struct rte_mbuf **burst, uint16_t n)
{
	if (port->kind == PORT_DEVICE) {
		uint16_t received = rte_eth_rx_burst(port->id, queue, burst, n);

		for (uint16_t i = 0; POISON && i < received; i++)
			packet_poison(burst[i]);
		return received;
	}
	if (port->kind == PORT_KERNEL_SIDE)
		return kernel_side_receive(&port->kernel_side, queue, burst, n);
	return (uint16_t)rte_ring_sc_dequeue_burst(port->arriving[queue], (void **)burst, n, NULL);
}

// For a device that does not gather: what lies in several buffers is copied into one of `pool` first.
uint16_t port_transmit_flat(const struct port *port, uint16_t queue, struct rte_mbuf **burst, uint16_t n);

// Returns how many were accepted, from the front; `n` is at most a burst.
static inline uint16_t port_transmit(struct port *port, uint16_t queue, struct rte_mbuf **burst, uint16_t n)
{
	if (port->kind == PORT_DEVICE) {
		for (uint16_t i = 0; POISON && i < n; i++)
			packet_unpoison(burst[i]);
		if (unlikely(!port->gathers))
			return port_transmit_flat(port, queue, burst, n);
		return rte_eth_tx_burst(port->id, queue, burst, n);
	}
	if (port->kind == PORT_KERNEL_SIDE) {
		kernel_side_transmit(&port->kernel_side, queue, burst, n);
		return n;
	}
	return (uint16_t)rte_ring_sp_enqueue_burst(port->leaving[queue], (void *const *)burst, n, NULL);
}

#endif
