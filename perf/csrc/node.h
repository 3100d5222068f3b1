// A whole node on a port, from receive to transmit, and beside it the same port with the packets only passed through.
//
// A net_null port makes packets of nothing, a net_ring port gets back what it has sent, and a receive callback lays
// the traffic's next frame into each: no source takes part. On a memory port or any other device one does (source.h).

#ifndef MAGLEV_NODE_H
#define MAGLEV_NODE_H

#include "generator.h"
#include "rig.h"

enum node_mode {
	NODE_PASS,   // what is received is transmitted, unseen: the ceiling of the port, on one lcore
	NODE_PLAIN,  // likewise, the frames' MAC addresses exchanged: the least that a forwarder does
	NODE_TURNS,  // all stages on one lcore, one after the other, each timed; in layout `rss` the lanes
	NODE_STAGES, // the stages as they run in a forwarder, each on its lcore
};

struct node_config {
	struct generator_config generator;
	const char *devargs; // of the DPDK device that is the port; NULL: a memory port; read by node_new()
	uint32_t backends;
	uint32_t table_size; // of the Maglev table; a prime
	uint32_t workers;
	enum layout layout;
	uint32_t packets; // of the pool
	uint32_t ring_size;
	enum idle_policy idle; // NODE_STAGES; the other modes spin
};

struct node {
	struct node_config config;
	char name[16]; // of its pool: the device's
	struct rig rig;
	struct generator generator; // of the receive callback
	enum node_mode mode;
	unsigned int lcore; // of all but NODE_STAGES
	bool lay;           // the receive callback has something to do
	bool stop;          // set by the main thread
	uint64_t began;     // TSC
	uint64_t received;  // at the beginning of the round
	struct rig_fates before;
	uint64_t passed;
	uint64_t refused;   // by the port, NODE_PASS and NODE_PLAIN
	uint64_t cycles[3]; // NODE_TURNS: in steering, workers (or lanes), muxing, of turns that had packets; passing: the first
	uint64_t handled;   // in those
	uint64_t interrupted; // turns that are not in those, see rig.h
};

// Returns NULL and a negative errno in *error.
struct node *node_new(const struct node_config *config, int *error); // node_delete
void node_delete(struct node *n);

// Ports without a source: make all flows of the traffic known and established, on the calling thread.
void node_open_flows(struct node *n);

// Begin a round. NODE_STAGES takes the lcores of dataplane_start(), the others the first one. `lay` false: frames are
// not laid, which only passing through can do without. Returns 0 or a negative errno.
int node_start(struct node *n, enum node_mode mode, const unsigned int *lcores, bool lay);

struct node_round {
	double seconds;
	uint64_t packets; // received
	uint64_t forwarded, dropped, known;
	double stage_ns[3]; // NODE_TURNS: per packet in steering, workers, muxing; passing: the first
	uint64_t interrupted;
};
void node_stop(struct node *n, struct node_round *round);

// So many turns of all stages on the calling thread, which an instruction counter can follow.
void node_step(struct node *n, uint32_t turns, struct node_round *round);

#endif
