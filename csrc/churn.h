// Churn: what another forwarding state would do to the flows of a connection table. It is counted, nothing is changed.
// [pure] Any thread may count while the owner of the table writes: what it changes meanwhile may or may not be seen.
//
// An entry holds the upper half of its flow hash, which is what picks the slot where a vip's affinity is `flow`.

#ifndef MAGLEV_CHURN_H
#define MAGLEV_CHURN_H

#include <stdint.h>

struct conn_table;

enum { CHURN_NO_VIP = 0xffff };

// What one state says of a vip.
struct churn_side {
	const uint16_t *slots; // [size] backend numbers; one that no backend has yet is in no entry
	uint32_t size;         // 0 = nobody takes new flows
	const uint8_t *usable; // bit per backend number: its old flows of this vip go on
};

// A vip of the state in force; the counts grow. Each is part of the one before it.
struct churn_vip {
	struct churn_side now;
	struct churn_side next;
	uint64_t live;    // flows that have not expired and whose backend may be used now
	uint64_t at_risk; // of these, those that the next table would send elsewhere, were their entry not there
	uint64_t moved;   // of these, those that the table in force would not, and those that are lost
	uint64_t lost;    // of these, those whose backend may not be used any more, although their entry is there
};

struct churn {
	const uint16_t *generations; // [backend_count] by backend number; 0 = nobody has it
	uint32_t backend_count;      // usable has a bit for each of them
	const uint16_t *position;    // [CONN_MAX_VIPS] of a vip in `vips` by its number, or CHURN_NO_VIP
	struct churn_vip *vips;
};

// Add the flows of one table, whose owner's clock is `now`.
void churn_count(struct churn *c, const struct conn_table *t, uint32_t now);

#endif
