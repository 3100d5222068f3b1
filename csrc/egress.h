// What stages must know of the ports that packets leave by, and may have come by.

#ifndef MAGLEV_EGRESS_H
#define MAGLEV_EGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_mbuf.h>

// Of one port. Written before the data plane starts.
struct egress {
	uint8_t mac[6];
	uint16_t mtu; // of the outer IP packet
	bool punts;   // a kernel sees by itself the packets that are not for a vip
	bool unfinished; // what comes in by it may have checksums left to a NIC (checksum.h)
	bool only_own;   // frames to another MAC may come by it, and are not for us
	uint16_t kernel_side; // the port by which the kernel gets them (punt.h); 0: none, it sees them by itself
} __attribute__((aligned(16)));

// Whether a frame is for another station, or for many, and its port looks at that. A switch floods what it does not know, and
// a NIC that takes everything has it too: each node that sent it on would make one packet many. `egress`: [MAX_PORTS].
static inline bool is_for_others(const struct egress *egress, const struct rte_mbuf *m)
{
	const struct egress *port = &egress[m->port];

	return port->only_own && m->data_len >= sizeof(port->mac) &&
	       memcmp(rte_pktmbuf_mtod(m, const void *), port->mac, sizeof(port->mac)) != 0;
}

#endif
