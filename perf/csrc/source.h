// Our own traffic source and sink, on one lcore: sends at a given rate, takes back what the node sends on.
//
// At the other end of a memory port it also measures: the time of sending is left in the last bytes of the buffer,
// which no node touches, and read when the packet comes back.

#ifndef MAGLEV_SOURCE_H
#define MAGLEV_SOURCE_H

#include "generator.h"
#include "histogram.h"
#include "node.h"

struct source {
	struct node *node;
	struct port *port; // NULL: the far end of the node's memory port
	struct generator generator;
	unsigned int lcore;
	double gap;    // TSC cycles from packet to packet; 0: none
	uint32_t most; // packets to send; 0: until told to stop
	bool wait;     // offer again what was refused
	bool stop;     // set by the main thread
	uint64_t sent, refused, returned;
	uint64_t began, ended; // TSC, of sending
	struct histogram delays;
};

// A source for a node that lives longer. `devargs`: of the device at the other end of the node's; NULL: memory port.
struct source *source_new(struct node *n, const char *devargs, unsigned int lcore, int *error); // source_delete
void source_delete(struct source *s);

// Every flow of the traffic once, none left out; returns when all are on their way. The node runs. Twice, with a
// second of the node's clock between, makes them known and established.
void source_open_flows(struct source *s, double packets_per_second, bool first);

void source_start(struct source *s, double packets_per_second); // 0: as many as it can

struct source_round {
	double seconds;
	uint64_t sent;     // offered to the port
	uint64_t refused;  // of those, by a port that was full
	uint64_t returned; // from the node
	double median_ns, p99_ns, p999_ns, longest_ns; // delays, on a memory port
};
// Stop sending, wait for what still comes back, and tell.
void source_stop(struct source *s, struct source_round *round);

#endif
