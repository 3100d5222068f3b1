// Forwarding state: the immutable snapshot that workers read, its publication and its reclaim.
//
// The control thread builds a state aside and publishes it; steering and workers acquire the pointer once per burst. A
// state that was replaced may be freed when state_publish() returns: by then each has passed a quiescent point.

#ifndef MAGLEV_STATE_H
#define MAGLEV_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_rcu_qsbr.h>

#include "conn_table.h"
#include "dataplane.h"
#include "encap.h"
#include "load_bound.h"
#include "vip_table.h"

// What a worker needs to send to a backend: one cache line.
struct backend {
	struct encap_template outer;
	uint16_t generation; // 0 = no such backend
	uint16_t next_hop;   // index into the next-hop array
} __attribute__((aligned(64)));
static_assert(sizeof(struct backend) == 64, "a backend is one cache line");

struct vip {
	uint16_t id; // stable index
	bool client_affinity;
	bool bounded;            // it has a load bound; its bits of that stand behind `usable`, see vip_over()
	uint32_t table_size;     // 0 = nobody takes new flows
	const uint16_t *slots;   // backend indices; memory of the caller, shared by vips with equal tables
	const uint64_t *usable;  // bit per backend index: its old flows of this vip may go on
};
static_assert(sizeof(struct vip) == 24, "what a vip costs beside its slots and bits; perf/tables.py says it");

// Which node of the cluster has the fragments between two hosts.
struct cluster {
	struct backend *nodes; // [node_count], templates marked for the extra hop
	uint32_t node_count;
	uint16_t self;
	uint32_t table_size; // 0 = this node is alone
	const uint16_t *slots;
};

// A vip with a load bound, for the control thread.
struct bounded_vip {
	uint16_t vip; // its id
	struct load_bound bound;
};

// Whose a backend address is, for errors that quote a packet to it.
struct backend_address {
	uint8_t address[16]; // IPv4 in the first four bytes, zeros behind
	uint8_t length;
	uint16_t index;
};

struct state {
	struct vip_table vip_table;
	struct vip *vips;
	uint32_t vip_count;
	struct backend *backends; // [backend_count], by stable index
	uint16_t *generations;    // theirs, side by side: read for every packet
	uint32_t backend_count;
	struct backend_address *addresses; // [address_count], sorted
	uint32_t address_count;
	uint64_t *usable; // backing memory of all vips' bits
	struct bounded_vip *bounded; // [bounded_count]
	uint32_t bounded_count;
	uint64_t *live; // [backend_count] flows when they were counted last; of the control thread
	struct cluster cluster;
};

static inline bool vip_may_use(const struct vip *vip, const struct state *s, uint16_t backend, uint16_t generation)
{
	return backend < s->backend_count && (vip->usable[backend / 64] >> (backend % 64) & 1) != 0 &&
	       s->generations[backend] == generation;
}

// Words of one kind of bits of a vip.
static inline uint32_t state_words(const struct state *s)
{
	return s->backend_count / 64 + 1;
}

// Of a bounded vip: bit per backend index that is over (load_bound.h).
static inline const uint64_t *vip_over(const struct vip *vip, const struct state *s)
{
	return vip->usable + state_words(s);
}

// The backends of an address; they stand together from *first on. Returns how many.
uint32_t state_backends_at(const struct state *s, const uint8_t *address, uint8_t length,
			   const struct backend_address **first);

// The pointer that workers follow.
struct state_slot {
	struct state *current;
	struct rte_rcu_qsbr *readers;
};

static inline const struct state *state_acquire(const struct state_slot *slot)
{
	// Pairs with the release in state_publish(): a worker that sees the pointer sees what it points to.
	return __atomic_load_n(&slot->current, __ATOMIC_ACQUIRE);
}

// `readers`: lcores that acquire it, numbered from 0.
int state_slot_create(struct state_slot *slot, uint32_t readers);
void state_slot_free(struct state_slot *slot);

// Make `next` (may be NULL) the state of all readers; waits until none reads the former one.
void state_publish(struct state_slot *slot, struct state *next);

#endif
