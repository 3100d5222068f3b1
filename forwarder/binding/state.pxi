# State: what all workers read, built whole and then published.

@cython.no_gc_clear  # __dealloc__ needs what it refers to
cdef class State:
    """An immutable forwarding state, built aside.

    `backends`: (index, generation, next hop, packed address, packed tunnel source) each.
    `vips`: (id, packed address, protocol number, port, client affinity, slots, usable) each, where slots is an
    array("H") of backend indices (empty: nobody takes new flows) and usable a sequence of backend indices.
    `cluster`: (nodes, position of this node, slots): nodes are (next hop, packed address, packed tunnel source) each,
    slots an array("H") of positions; None for a node that is alone.
    `bounds`: {vip id: (load bound, owners, weights)} of vips that have one: array("H") of the backend indices that own
    slots, and array("I") of their weights.
    Raises DataplaneError: EINVAL for an index or a load bound out of range, EEXIST for a vip given twice.
    """

    cdef c.state *handle
    cdef list held  # the arrays that the C state points into

    def __cinit__(self, list vips, list backends, tuple cluster=None, dict bounds=None):
        cdef list nodes = [(0, 1, *node) for node in cluster[0]] if cluster is not None else []
        cdef c.vip_spec *vip_specs = <c.vip_spec *>calloc(len(vips) + 1, sizeof(c.vip_spec))
        cdef c.backend_spec *backend_specs = <c.backend_spec *>calloc(len(backends) + 1, sizeof(c.backend_spec))
        cdef c.backend_spec *node_specs = <c.backend_spec *>calloc(len(nodes) + 1, sizeof(c.backend_spec))
        cdef c.cluster_spec cluster_spec
        cdef uint32_t vip_count = len(vips), backend_count = len(backends)
        cdef int error = 0
        cdef list usable = []
        self.held = []
        try:
            if vip_specs == NULL or backend_specs == NULL or node_specs == NULL:
                raise MemoryError("forwarding state")
            for i in range(backend_count):
                self._backend(&backend_specs[i], backends[i])
            for i in range(vip_count):
                self._vip(&vip_specs[i], usable, vips[i])
                if bounds and vip_specs[i].id in bounds:
                    self._bound(&vip_specs[i], bounds[vip_specs[i].id])
            for i in range(len(nodes)):
                self._backend(&node_specs[i], nodes[i])
            self._cluster(&cluster_spec, node_specs, cluster)
            with nogil:
                self.handle = c.state_build(
                    vip_specs, vip_count, backend_specs, backend_count, &cluster_spec, &error)
        finally:
            free(vip_specs)
            free(backend_specs)
            free(node_specs)
        check(error, "build a forwarding state")

    cdef _backend(self, c.backend_spec *spec, tuple backend):
        cdef bytes address, source
        index, generation, next_hop, address, source = backend
        spec.index = index
        spec.generation = generation
        spec.next_hop = next_hop
        if len(address) != len(source) or len(address) not in (4, 16):
            raise ValueError("a backend and its tunnel source are of one family")
        spec.address_length = <uint8_t>len(address)
        memcpy(spec.address, <const char *>address, len(address))
        memcpy(spec.source, <const char *>source, len(source))

    cdef _cluster(self, c.cluster_spec *spec, c.backend_spec *nodes, tuple cluster):
        cdef array.array table
        spec.nodes = nodes
        spec.node_count = spec.self = spec.table_size = 0
        if cluster is None:
            return
        members, position, table = cluster
        spec.node_count = len(members)
        spec.self = position
        spec.table_size = len(table)
        spec.slots = self._slots(table)

    cdef const uint16_t *_slots(self, array.array table) except? NULL:
        if table.typecode != "H":
            raise ValueError("a table is an array of 16-bit numbers")
        self.held.append(memoryview(table))  # an exported buffer cannot be resized
        return table.data.as_ushorts

    cdef _vip(self, c.vip_spec *spec, list keep, tuple vip):
        cdef bytes address
        cdef array.array table, members
        id, address, protocol, port, client, table, usable = vip
        members = array.array("H", usable)
        if len(address) not in (4, 16):
            raise ValueError("an address has 4 or 16 bytes")
        spec.id = id
        spec.port = port
        spec.protocol = protocol
        spec.client_affinity = bool(client)
        spec.address_length = <uint8_t>len(address)
        memcpy(spec.address, <const char *>address, len(address))
        spec.table_size = len(table)
        spec.slots = self._slots(table)
        spec.usable = members.data.as_ushorts
        spec.usable_count = len(members)
        keep.append(members)

    cdef _bound(self, c.vip_spec *spec, tuple bound):
        cdef array.array owners, weights
        factor, owners, weights = bound
        if weights.typecode != "I" or len(weights) != len(owners):
            raise ValueError("each owner of slots has a weight, a 32-bit number")
        spec.load_bound = factor
        spec.owners = self._slots(owners)
        spec.weights = weights.data.as_uints
        spec.owner_count = len(owners)
        self.held.append(memoryview(weights))

    cdef c.state *get(self) except NULL:
        if self.handle == NULL:
            raise closed("forwarding state")
        return self.handle

    def __dealloc__(self):
        c.state_free(self.handle)
