// Generated traffic: frames of numbered flows to the vips, laid into packet buffers. One generator, one thread.

#ifndef MAGLEV_GENERATOR_H
#define MAGLEV_GENERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

enum traffic_kind {
	TRAFFIC_HIT,     // packets of flows that the connection table knows, in random order
	TRAFFIC_STALE,   // likewise, but each flow once a second: every packet finds an entry of an earlier second
	TRAFFIC_NEW,     // the first packet of a flow each, on a table that has room
	TRAFFIC_FLOOD,   // SYNs of flows that are never seen again, on a table full of such
	TRAFFIC_NOT_VIP, // to the vips' addresses, another port
};

enum { MIXED_SIZES = 0 }; // frame length: 64, 594 and 1518 bytes on the wire as 7 : 4 : 1

struct generator_config {
	enum traffic_kind traffic;
	uint32_t flows; // a power of two
	uint32_t vips;
	uint8_t version;      // inner IP: 4 or 6
	uint16_t bytes;       // frame length without its check sequence, or MIXED_SIZES
	uint32_t new_permille; // of TRAFFIC_HIT: packets that begin a new flow
};

struct generator {
	struct generator_config config;
	uint8_t frame[128];      // headers of a packet, its varying fields zero
	uint32_t frame_sum;      // of the IPv4 header
	uint64_t seed;
	uint64_t next;           // flow that comes next, where each comes once
	uint64_t next_new;       // likewise, of those that begin among others
	uint8_t opening;         // TCP flags of the packets that open the flows; 0: they are open
};

void generator_init(struct generator *g, const struct generator_config *config, uint64_t seed);

// Until generator_opened(): every flow once, in order, with these flags.
void generator_open(struct generator *g, uint8_t tcp_flags);
void generator_opened(struct generator *g);

// Replace what `m` holds by the next packet of the traffic.
void generator_lay(struct generator *g, struct rte_mbuf *m);

// The address of a vip, 4 or 16 bytes.
void generator_vip(uint8_t version, uint32_t number, uint8_t *address);

#endif
