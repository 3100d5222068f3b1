// Fragment table: which flow a datagram's fragments belong to, once its first one was seen; early ones wait here.
// [pure] Fixed size. Packets are opaque pointers: the table keeps those that it holds until they are taken from it.
//
// Built to be flooded. All that wait stand in one queue, where a newcomer costs the oldest its place, and hardly ever
// itself; and one entry of each bucket is left to those whose first fragment was seen.
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
	FRAGMENT_BUCKETS = 4096,    // 384 KB; a bucket is seldom full of others that wait
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

// Free, or known, or packets wait in it.
struct fragment_entry {
	uint64_t datagram; // hash of the datagram's identity; 0 = a free entry
	uint32_t seen;     // clock of the last fragment since the first one was, in seconds
	struct fragment_flow flow;
	bool known;      // the first fragment was seen
	uint8_t count;   // packets that wait
	uint16_t oldest; // place of the first of them in the queue, and of the last; while there are any
	uint16_t newest;
} __attribute__((aligned(8)));

// A place in the queue of all packets that wait, in the order in which they came.
struct fragment_place {
	void *packet;   // NULL: taken out of turn
	uint32_t since; // clock
	uint16_t entry; // whose packet it is, among all entries of the table
	uint16_t next;  // place of the next packet of the same entry, unless it is the newest
};

struct fragment_table {
	struct fragment_entry entries[FRAGMENT_BUCKETS][FRAGMENT_WAYS];
	struct fragment_place queue[FRAGMENT_HELD + 2]; // a ring: one place for the newcomer, one that is never taken
	uint16_t places; // of `queue` that are in use
	uint16_t first;  // the oldest place with a packet, or `free`
	uint16_t free;   // the next place to be taken
	uint16_t held;   // packets that wait
};

enum fragment_verdict { FRAGMENT_KNOWN, FRAGMENT_WAITS, FRAGMENT_NO_ROOM };

// `limit`: packets that may wait at once, at most FRAGMENT_HELD.
void fragment_table_init(struct fragment_table *t, uint16_t limit);

// The hash that identifies the datagram of a fragment (RFC 791, RFC 8200 4.5), never 0; keyed, so that nobody can aim
// at another's.
uint64_t fragment_datagram(const struct hash_key *key, const struct packet_view *v);

// The hash that picks the node of a cluster: addresses and protocol, the same for all fragments between two hosts.
uint64_t fragment_node_hash(const struct hash_key *key, const struct packet_view *v);

// A first fragment tells the flow of its datagram. Those that came before it are to be taken out by fragment_take().
void fragment_first(struct fragment_table *t, uint64_t datagram, const struct fragment_flow *flow, uint32_t now);

// A later fragment: FRAGMENT_KNOWN fills `flow`; FRAGMENT_WAITS: the table has the packet now, and
// fragment_take_excess() is due; FRAGMENT_NO_ROOM: the caller still has it.
enum fragment_verdict fragment_later(struct fragment_table *t, uint64_t datagram, void *packet, uint32_t now,
				     struct fragment_flow *flow);

// The packet that has waited longest, when more wait than may; else NULL.
void *fragment_take_excess(struct fragment_table *t);

// A packet that waits for this datagram's first fragment, the oldest first, no longer the table's; NULL: none does.
void *fragment_take(struct fragment_table *t, uint64_t datagram);

// The packet that has waited longest, if it has for `seconds` at `now`; else NULL.
void *fragment_take_late(struct fragment_table *t, uint32_t now, uint32_t seconds);

#endif
