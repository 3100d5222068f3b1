// The data plane's life cycle and everything that the binding may see: no type of DPDK stands in this header.
//
// All functions are for control threads. Unless said otherwise they return 0 or a negative errno. What a create
// function returned is freed by the function named beside it, once nothing runs that uses it.

#ifndef MAGLEV_DATAPLANE_H
#define MAGLEV_DATAPLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "churn.h"

// -- environment ---------------------------------------------------------------------------------------------------

// Once per process; the arguments are those of EAL.
int dataplane_init(int argc, char **argv);
void dataplane_cleanup(void);

// -- forwarding state: built here, read by workers ------------------------------------------------------------------

enum { NO_BACKEND = 0xffff, NO_VIP = 0xffff };

struct state;

struct backend_spec {
	uint16_t index;      // stable; below backend_count
	uint16_t generation; // 1 .. 4095
	uint16_t next_hop;
	uint8_t address_length; // 4 or 16
	uint8_t address[16];
	uint8_t source[16]; // the node's tunnel source of the same family
};

struct vip_spec {
	uint16_t id; // stable; below 16384
	uint16_t port;
	uint8_t protocol;
	uint8_t address_length;
	uint8_t client_affinity;
	uint8_t address[16];
	uint32_t table_size;       // 0 = no backend takes new flows
	const uint16_t *slots;     // [table_size] backend indices; must outlive the state
	const uint16_t *usable;    // [usable_count] backend indices whose old flows may go on
	uint32_t usable_count;
	double load_bound;         // 0 = none, else above 1: times a backend's share of the live flows (load_bound.h)
	const uint16_t *owners;    // [owner_count] backend indices that own slots; must outlive the state
	const uint32_t *weights;   // [owner_count] theirs, above 0; must outlive the state
	uint32_t owner_count;      // of a vip with a load bound
};

// The nodes that share a datagram's fragments out among themselves; table_size 0: this node is alone.
struct cluster_spec {
	const struct backend_spec *nodes; // in the order of their names; index and generation are not read
	uint32_t node_count;
	uint16_t self;         // position of this node
	uint32_t table_size;
	const uint16_t *slots; // [table_size] positions; must outlive the state
};

// Returns NULL and sets *error to a negative errno: -EINVAL for an index or a load bound out of range, -EEXIST for a vip
// given twice.
struct state *state_build(const struct vip_spec *vips, uint32_t vip_count, const struct backend_spec *backends,
			  uint32_t backend_count, const struct cluster_spec *cluster, int *error);
void state_free(struct state *s);

// -- the data plane ----------------------------------------------------------------------------------------------

enum idle_policy { IDLE_SPIN, IDLE_YIELD, IDLE_SLEEP };

// Software: steering, workers and muxing, joined by rings. RSS: each worker has a queue of every port for itself, and
// carries its packets from NIC to NIC.
enum layout { LAYOUT_SOFTWARE, LAYOUT_RSS };

struct dataplane_config {
	uint64_t hash_key[2];
	uint64_t steering_seed;
	uint32_t workers;
	uint32_t ring_size;            // a power of two
	uint32_t connection_entries;   // per worker
	uint32_t connection_seconds[4]; // half-open, established, closing, datagram
	enum idle_policy idle;
	enum layout layout;
	bool trace; // see dataplane_traced()
	// [workers] zeroed or kept memory of dataplane_table_bytes() for the connection tables, 64-byte aligned, that
	// outlives the data plane; NULL: of its own. Read by dataplane_new().
	void *const *tables;
};

struct dataplane;
struct packet_pool;
struct port;

enum { ANY_SOCKET = -1 };

// `socket`: the NUMA node whose memory it takes, or ANY_SOCKET. `umem`: as ports of net_af_xdp need it.
struct packet_pool *pool_new(const char *name, uint32_t size, int socket, bool umem, int *error); // pool_delete
void pool_delete(struct packet_pool *pool);
uint32_t pool_size(const struct packet_pool *pool);
uint32_t pool_available(const struct packet_pool *pool);
uint32_t pool_missing(const struct packet_pool *pool); // buffers in somebody's hands, those of fragments included
// The packets that closed ports of net_af_xdp have forgotten.
void pool_take_back(struct packet_pool *pool, uint32_t held);
void pool_pieces(const struct packet_pool *pool, uint32_t *size, uint32_t *available); // fragments that may be at once

// With `queues` each way, one for each worker in layout `rss`. A device that cannot spread flows over them by RSS, as we
// set it up, has one, and says what it lacks.
// `mtu`: of a NIC that nobody else sets up (port.h), 0 of others.
struct port *port_new_device(const char *devargs, uint16_t index, struct packet_pool *pool, uint16_t queues, uint16_t mtu,
			     int *error); // port_delete
struct port *port_new_memory(const char *name, uint16_t index, uint16_t queues, int *error);
// The kernel's side of the port of index `nic`, which is lower: a file for each queue, that do not block and are closed
// by the caller after the port.
struct port *port_new_kernel_side(const char *name, uint16_t index, uint16_t nic, const int *files, uint16_t queues,
				  struct packet_pool *pool, int *error);
void port_delete(struct port *port);

// Let a device that no data plane uses go on with one queue.
int port_narrow(struct port *port, struct packet_pool *pool);

struct port_facts {
	uint8_t mac[6];
	bool link_up;
	bool knows_recycled;
	uint64_t missed;
	uint16_t queues;   // each way
	uint16_t buckets;  // of its RSS table, 1 with one queue
	const char *lacks; // why it has not the queues that were asked for: what stands after its name; NULL
};
void port_describe(const struct port *port, struct port_facts *facts);

enum { MOST_HEADROOM = 128 }; // bytes before a frame in its buffer; a driver may leave less free

// Memory port: give it a frame to receive (-ENOBUFS: pool or port is full), take one that was sent.
// `tag` is what a NIC has taken off the frame that strips VLAN tags, NULL for nothing; it puts it back as it sends.
// port_take() returns its length, 0 when there is none, or -EMSGSIZE when `room` is too small (the frame is lost).
int port_give(struct port *port, struct packet_pool *pool, const void *frame, uint32_t length, uint16_t headroom,
	      const uint16_t *tag);
int port_take(struct port *port, void *frame, uint32_t room);

// A data plane over `count` ports, not running. In layout `rss` each must have as many queues as there are workers, else
// one. -ENOSPC: the pool cannot cover what dataplane_pool_need() says.
struct dataplane *dataplane_new(const struct dataplane_config *config, struct packet_pool *pool, struct port **ports,
				uint16_t count, int *error); // dataplane_delete
void dataplane_delete(struct dataplane *d);

// Connection tables that outlive their process: the bytes of one, and the version of what they mean.
size_t dataplane_table_bytes(uint32_t entries);
uint32_t dataplane_table_layout(void);

// Once, before the first turn, with `tables` of the caller: go on with the flows that they hold, but for those that
// have expired by `now`, and those of which `generations` [65536] by backend or `vips` [16384] knows nothing (0), or
// another generation. `now` is the clock from then on, and must go on from that of the former owner. False when one
// of them is no whole table: then all are empty.
bool dataplane_take_over(struct dataplane *d, const uint16_t *generations, const uint8_t *vips, uint32_t now);

// Packets that the pool must have: the devices' descriptors, the lcores' caches, two bursts per stage; in layout `rss` a
// burst per worker, one more for each port and one for each other worker.
uint32_t dataplane_pool_need(const struct dataplane_config *config, const struct packet_pool *pool, struct port **ports,
			     uint16_t count);

// Before the start. `mtu` of one port counts the outer IP packet; `punts` when a kernel sees what is not ours by itself;
// `unfinished` when packets may come in by it whose checksums were left to a NIC; `only_own`: frames to another MAC than
// the port's are not for us.
void dataplane_set_port(struct dataplane *d, uint16_t port, uint16_t mtu, bool punts, bool unfinished, bool only_own);

// Next hop `index`: where it is and by which port. One atomic store, at any time. NULL: not resolved.
void dataplane_set_next_hop(struct dataplane *d, uint16_t index, uint16_t port, const uint8_t *mac);

// Make `s` the state of all workers; when it returns nobody reads the one before. The caller keeps ownership.
void dataplane_publish(struct dataplane *d, struct state *s);

// Launch the stages on EAL lcores: steering, workers..., muxing, or in layout `rss` the workers. Stop waits until all
// have returned.
int dataplane_start(struct dataplane *d, const unsigned int *lcores);
void dataplane_stop(struct dataplane *d);

// Not running: one turn of every stage on the calling thread, at clock `now` (seconds). Returns packets moved.
uint32_t dataplane_step(struct dataplane *d, uint32_t now);

// To be said every second while running: see which backends are over the load bounds of their vips. A state is
// published with what is so at that moment, and dataplane_step() sees by itself when a second has passed.
void dataplane_weigh(struct dataplane *d);

// Forget the flows of one backend, or of CONN_ALL_BACKENDS: each worker does it in slices between its bursts, and this waits for all of them.
void dataplane_flush(struct dataplane *d, uint32_t backend);

// A packet of our own through the whole road by way of `worker`: it comes back by dataplane_collect(), never sent. Whoever the
// frame is for, it is addressed to the first port's MAC, as what arrives there is.
int dataplane_inject(struct dataplane *d, const void *frame, uint32_t length, uint8_t worker);

struct collected {
	uint8_t reason;
	uint8_t worker;
	uint16_t port;
	uint16_t vip;
	uint16_t backend;
};
// Returns the frame's length, 0 when there is none.
int dataplane_collect(struct dataplane *d, struct collected *what, void *frame, uint32_t room);

// What became of one packet. `vip` is known from the match on, `backend` from the choice on.
struct traced {
	uint64_t number; // packets from outside in order of arrival, from 0 on
	uint32_t reason;
	uint16_t vip;     // NO_VIP: none
	uint16_t backend; // NO_BACKEND: none
};
// Take the oldest records, in the order in which packets ended; returns how many. -ENOTSUP: no trace was asked for.
// To be called before as many packets have ended as the pool has: later ones are lost.
int dataplane_traced(struct dataplane *d, struct traced *records, uint32_t room);

// -- counters, readable at any time ---------------------------------------------------------------------------------

enum stage_kind { STAGE_STEERING, STAGE_WORKER, STAGE_MUXING };

struct ring_indices {
	uint64_t received, processed, reserved;
	uint64_t ready, sent, recycled;
};

struct worker_counters {
	uint64_t entries, live, inserted, evicted, refused;
};

uint32_t dataplane_fate_count(void);
const char *dataplane_fate_name(uint32_t fate);
int dataplane_fate_kind(uint32_t fate); // 0 forwarded, 1 answered, 2 passed, 3 dropped

// Why packets met their fates: reasons are numbered from 1 on.
struct reason_facts {
	const char *name;
	const char *text;
	uint32_t fate;
};
bool dataplane_reason(uint32_t reason, struct reason_facts *facts); // false: there is none of this number
uint64_t dataplane_reason_count(const struct dataplane *d, uint32_t reason);
uint64_t dataplane_received(const struct dataplane *d); // from outside; packets of our own are not in it
uint64_t dataplane_own(const struct dataplane *d);
uint32_t dataplane_held(const struct dataplane *d); // fragments that wait for their first ones: received, no fate yet
uint64_t dataplane_pieces(const struct dataplane *d); // fragments that were sent, each packet's last one not counted
void dataplane_rings(const struct dataplane *d, uint16_t port, struct ring_indices *indices);
void dataplane_vip_traffic(const struct dataplane *d, uint16_t vip, uint64_t *packets, uint64_t *bytes);
void dataplane_backend_traffic(const struct dataplane *d, uint16_t backend, uint64_t *packets, uint64_t *bytes);
// Live entries in all connection tables.
uint64_t dataplane_backend_flows(const struct dataplane *d, uint16_t backend);
uint64_t dataplane_vip_flows(const struct dataplane *d, uint16_t vip);
// Backends that are over the load bound of this vip, in the state in force; returns how many.
uint32_t dataplane_over(const struct dataplane *d, uint16_t vip, uint16_t *backends, uint32_t room);
// The MTU that was learned of the way to a backend of the state in force, and for how long still; false: none is.
bool dataplane_path_mtu(const struct dataplane *d, uint16_t backend, uint16_t *mtu, uint32_t *seconds);
uint64_t dataplane_turns(const struct dataplane *d, enum stage_kind stage, uint32_t worker); // of a stage there is
void dataplane_worker(const struct dataplane *d, uint32_t worker, struct worker_counters *counters);
uint64_t dataplane_connections(const struct dataplane *d, uint32_t now); // alive at `now`; not while running
// Add the flows of all connection tables. On any one thread at any time, while the data plane is there.
void dataplane_churn(const struct dataplane *d, struct churn *c);

struct flow_question {
	uint8_t protocol;
	uint8_t address_length;
	uint8_t source[16];
	uint8_t destination[16];
	uint16_t source_port;
	uint16_t destination_port;
};

struct flow_answer {
	bool vip_found;
	bool tracked; // a live entry of the flow's worker decides
	uint16_t vip;
	uint16_t backend; // NO_BACKEND: none
	uint32_t slot;
	uint32_t worker;
	uint64_t hash;
};

// What would happen to a packet of this flow now; where the flow is new and its vip has a load bound, to its SYN.
void dataplane_lookup(const struct dataplane *d, const struct flow_question *question, struct flow_answer *answer);

// -- rings by themselves, to be seen working -------------------------------------------------------------------------

struct receive_ring;
struct transmit_ring;

struct receive_ring *receive_ring_new(uint32_t size, int *error); // receive_ring_delete
void receive_ring_delete(struct receive_ring *r);
void receive_ring_credit(struct receive_ring *r, uint64_t credit);
uint32_t receive_ring_pull(struct receive_ring *r, struct port *port);
// Hand up to `n` packets over to a transmit ring; what it has no room for stays. Returns how many went.
uint32_t receive_ring_hand_over(struct receive_ring *r, struct transmit_ring *to, uint32_t n);
void receive_ring_indices(const struct receive_ring *r, struct ring_indices *indices);

struct transmit_ring *transmit_ring_new(uint32_t size, int *error); // transmit_ring_delete
void transmit_ring_delete(struct transmit_ring *r);
uint32_t transmit_ring_push(struct transmit_ring *r, struct port *port);
void transmit_ring_indices(const struct transmit_ring *r, struct ring_indices *indices);

#endif
