// Fragment table: which flow a datagram's fragments belong to, once its first fragment was seen; early ones wait here.
// [pure] Fixed size. Packets are opaque pointers: the table keeps those that it holds until they are taken from it.
//
// One owner, which calls everything (steering, or in layout `rss` the worker of the datagram).

#ifndef MAGLEV_FRAGMENT_H
#define MAGLEV_FRAGMENT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "flow.h"
#include "parse.h"

enum {
	FRAGMENT_WAYS = 4,
	FRAGMENT_BUCKETS = 1024,
	FRAGMENT_HELD = 1024,       // early fragments at once, at most
	FRAGMENT_HELD_EACH = 64,    // of one datagram: 64 KB in pieces of 1 KB
	FRAGMENT_KNOWN_SECONDS = 5, // after a datagram's last fragment: then its id may be another datagram's
	FRAGMENT_HELD_SECONDS = 2,  // an early fragment waits until its second tick of the clock: 1 to 2 seconds
};

// What only a first fragment tells. Ports in network order.
struct fragment_flow {
	uint16_t source_port;
	uint16_t destination_port;
	uint8_t protocol;
};

struct fragment_entry {
	uint64_t datagram; // hash of the datagram's identity; 0 = a free entry
	uint32_t seen;     // clock of the last fragment, in seconds; of the first one that waits while the flow is not known
	struct fragment_flow flow;
	bool known;     // the first fragment was seen
	uint16_t held;  // index + 1 of the newest packet that waits, 0 = none
	uint16_t count; // packets that wait
} __attribute__((aligned(8)));

struct fragment_wait {
	void *packet;
	uint16_t next; // index + 1 of the packet that waits with it, or of the next free place
};

struct fragment_table {
	struct fragment_entry entries[FRAGMENT_BUCKETS][FRAGMENT_WAYS];
	struct fragment_wait waiting[FRAGMENT_HELD];
	uint16_t free;  // index + 1 of the first free place
	uint16_t limit; // packets that may wait
	uint16_t held;  // packets that wait
};

enum fragment_verdict { FRAGMENT_KNOWN, FRAGMENT_WAITS, FRAGMENT_NO_ROOM };

// `limit`: packets that may wait at once, at most FRAGMENT_HELD.
void fragment_table_init(struct fragment_table *t, uint16_t limit);

// The hash that identifies the datagram of a fragment (RFC 791, RFC 8200 4.5), never 0; keyed, so that nobody can aim at
// another's.
uint64_t fragment_datagram(const struct hash_key *key, const struct packet_view *v);

// The hash that picks the node of a cluster: addresses and protocol, the same for all fragments between two hosts.
uint64_t fragment_node_hash(const struct hash_key *key, const struct packet_view *v);

// A first fragment tells the flow of its datagram. Those that came before it are then to be taken out by fragment_take().
void fragment_first(struct fragment_table *t, uint64_t datagram, const struct fragment_flow *flow, uint32_t now);

// A later fragment: FRAGMENT_KNOWN fills `flow`; FRAGMENT_WAITS: the table has the packet now; FRAGMENT_NO_ROOM: the
// caller still has it.
enum fragment_verdict fragment_later(struct fragment_table *t, uint64_t datagram, void *packet, uint32_t now,
				     struct fragment_flow *flow);

// A packet that waits for this datagram's first fragment, no longer the table's; NULL when there is none.
void *fragment_take(struct fragment_table *t, uint64_t datagram);

// The next packet that has waited for `seconds` at `now`, NULL when there is none. A round through the whole table, for
// once a second: begins at *at = 0, which moves on.
void *fragment_take_late(struct fragment_table *t, uint32_t *at, uint32_t now, uint32_t seconds);

#endif
