# The C names of csrc/dataplane.h, verbatim. What they mean stands in that header.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "stdbool.h":
    ctypedef bint bool


cdef extern from "dataplane.h" nogil:
    enum:
        ANY_SOCKET
        CHURN_NO_VIP
        MOST_HEADROOM
        NO_BACKEND
        NO_VIP

    struct state:
        pass
    struct dataplane:
        pass
    struct packet_pool:
        pass
    struct port:
        pass
    struct receive_ring:
        pass
    struct transmit_ring:
        pass

    struct churn_side:
        const uint16_t *slots
        uint32_t size
        const uint8_t *usable

    struct churn_vip:
        churn_side now
        churn_side next
        uint64_t live
        uint64_t at_risk
        uint64_t moved
        uint64_t lost

    struct churn:
        const uint16_t *generations
        uint32_t backend_count
        const uint16_t *position
        churn_vip *vips

    struct backend_spec:
        uint16_t index
        uint16_t generation
        uint16_t next_hop
        uint8_t address_length
        uint8_t address[16]
        uint8_t source[16]

    struct cluster_spec:
        const backend_spec *nodes
        uint32_t node_count
        uint16_t self
        uint32_t table_size
        const uint16_t *slots

    struct vip_spec:
        uint16_t id
        uint16_t port
        uint8_t protocol
        uint8_t address_length
        uint8_t client_affinity
        uint8_t address[16]
        uint32_t table_size
        const uint16_t *slots
        const uint16_t *usable
        uint32_t usable_count
        double load_bound
        const uint16_t *owners
        const uint32_t *weights
        uint32_t owner_count

    enum idle_policy:
        IDLE_SPIN
        IDLE_YIELD
        IDLE_SLEEP

    enum layout:
        LAYOUT_SOFTWARE
        LAYOUT_RSS

    struct dataplane_config:
        uint64_t hash_key[2]
        uint64_t steering_seed
        uint32_t workers
        uint32_t ring_size
        uint32_t connection_entries
        uint32_t connection_seconds[4]
        idle_policy idle
        layout layout
        bool trace
        void **tables

    struct port_facts:
        uint8_t mac[6]
        bool link_up
        bool knows_recycled
        uint64_t missed
        uint16_t queues
        uint16_t buckets
        const char *lacks

    struct collected:
        uint8_t reason
        uint8_t worker
        uint16_t port
        uint16_t vip
        uint16_t backend

    struct traced:
        uint64_t number
        uint32_t reason
        uint16_t vip
        uint16_t backend

    struct reason_facts:
        const char *name
        const char *text
        uint32_t fate

    enum stage_kind:
        STAGE_STEERING
        STAGE_WORKER
        STAGE_MUXING

    struct ring_indices:
        uint64_t received
        uint64_t processed
        uint64_t reserved
        uint64_t ready
        uint64_t sent
        uint64_t recycled

    struct worker_counters:
        uint64_t entries
        uint64_t live
        uint64_t inserted
        uint64_t evicted
        uint64_t refused

    struct flow_question:
        uint8_t protocol
        uint8_t address_length
        uint8_t source[16]
        uint8_t destination[16]
        uint16_t source_port
        uint16_t destination_port

    struct flow_answer:
        bool vip_found
        bool tracked
        uint16_t vip
        uint16_t backend
        uint32_t slot
        uint32_t worker
        uint64_t hash

    int dataplane_init(int argc, char **argv)
    void dataplane_cleanup()

    state *state_build(const vip_spec *vips, uint32_t vip_count, const backend_spec *backends,
                       uint32_t backend_count, const cluster_spec *cluster, int *error)
    void state_free(state *s)

    packet_pool *pool_new(const char *name, uint32_t size, int socket, bint umem, int *error)
    void pool_delete(packet_pool *pool)
    uint32_t pool_size(const packet_pool *pool)
    uint32_t pool_available(const packet_pool *pool)
    uint32_t pool_missing(const packet_pool *pool)
    void pool_take_back(packet_pool *pool, uint32_t held)
    void pool_pieces(const packet_pool *pool, uint32_t *size, uint32_t *available)

    port *port_new_device(const char *devargs, uint16_t index, packet_pool *pool, uint16_t queues, uint16_t mtu,
                          int *error)
    port *port_new_memory(const char *name, uint16_t index, uint16_t queues, int *error)
    port *port_new_kernel_side(const char *name, uint16_t index, uint16_t nic, const int *files, uint16_t queues,
                               packet_pool *pool, int *error)
    int port_narrow(port *p, packet_pool *pool)
    void port_delete(port *p)
    void port_describe(const port *p, port_facts *facts)
    int port_give(port *p, packet_pool *pool, const void *frame, uint32_t length, uint16_t headroom,
                  const uint16_t *tag)
    int port_take(port *p, void *frame, uint32_t room)

    dataplane *dataplane_new(const dataplane_config *config, packet_pool *pool, port **ports, uint16_t count,
                             int *error)
    void dataplane_delete(dataplane *d)
    size_t dataplane_table_bytes(uint32_t entries)
    uint32_t dataplane_table_layout()
    bool dataplane_take_over(dataplane *d, const uint16_t *generations, const uint8_t *vips, uint32_t now)
    uint32_t dataplane_pool_need(const dataplane_config *config, const packet_pool *pool, port **ports,
                                 uint16_t count)
    void dataplane_set_port(dataplane *d, uint16_t index, uint16_t mtu, bool punts, bool unfinished, bool only_own)
    void dataplane_set_next_hop(dataplane *d, uint16_t index, uint16_t port_index, const uint8_t *mac)
    void dataplane_publish(dataplane *d, state *s)
    int dataplane_start(dataplane *d, const unsigned int *lcores)
    void dataplane_stop(dataplane *d)
    uint32_t dataplane_step(dataplane *d, uint32_t now)
    void dataplane_weigh(dataplane *d)
    void dataplane_flush(dataplane *d, uint32_t backend)
    int dataplane_inject(dataplane *d, const void *frame, uint32_t length, uint8_t worker)
    int dataplane_collect(dataplane *d, collected *what, void *frame, uint32_t room)
    int dataplane_traced(dataplane *d, traced *records, uint32_t room)

    uint32_t dataplane_fate_count()
    const char *dataplane_fate_name(uint32_t fate)
    int dataplane_fate_kind(uint32_t fate)
    bint dataplane_reason(uint32_t reason, reason_facts *facts)
    uint64_t dataplane_reason_count(const dataplane *d, uint32_t reason)
    uint64_t dataplane_received(const dataplane *d)
    uint64_t dataplane_own(const dataplane *d)
    uint32_t dataplane_held(const dataplane *d)
    uint64_t dataplane_pieces(const dataplane *d)
    void dataplane_rings(const dataplane *d, uint16_t index, ring_indices *indices)
    void dataplane_vip_traffic(const dataplane *d, uint16_t vip, uint64_t *packets, uint64_t *bytes)
    void dataplane_backend_traffic(const dataplane *d, uint16_t backend, uint64_t *packets, uint64_t *bytes)
    uint64_t dataplane_backend_flows(const dataplane *d, uint16_t backend)
    uint64_t dataplane_vip_flows(const dataplane *d, uint16_t vip)
    uint32_t dataplane_over(const dataplane *d, uint16_t vip, uint16_t *backends, uint32_t room)
    bool dataplane_path_mtu(const dataplane *d, uint16_t backend, uint16_t *mtu, uint32_t *seconds)
    uint64_t dataplane_turns(const dataplane *d, stage_kind stage, uint32_t worker)
    void dataplane_worker(const dataplane *d, uint32_t worker, worker_counters *counters)
    uint64_t dataplane_connections(const dataplane *d, uint32_t now)
    void dataplane_churn(const dataplane *d, churn *c)
    void dataplane_lookup(const dataplane *d, const flow_question *question, flow_answer *answer)

    receive_ring *receive_ring_new(uint32_t size, int *error)
    void receive_ring_delete(receive_ring *r)
    void receive_ring_credit(receive_ring *r, uint64_t credit)
    uint32_t receive_ring_pull(receive_ring *r, port *p)
    uint32_t receive_ring_hand_over(receive_ring *r, transmit_ring *to, uint32_t n)
    void receive_ring_indices(const receive_ring *r, ring_indices *indices)

    transmit_ring *transmit_ring_new(uint32_t size, int *error)
    void transmit_ring_delete(transmit_ring *r)
    uint32_t transmit_ring_push(transmit_ring *r, port *p)
    void transmit_ring_indices(const transmit_ring *r, ring_indices *indices)
