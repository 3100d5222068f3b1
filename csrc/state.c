#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void build_template(struct encap_template *t, const struct backend_spec *spec)
{
	if (spec->address_length == 4)
		encap_template_ipv4(t, spec->source, spec->address);
	else
		encap_template_ipv6(t, spec->source, spec->address);
}

static int build_cluster(struct cluster *c, const struct cluster_spec *spec)
{
	if (spec->table_size == 0)
		return 0;
	if (spec->self >= spec->node_count)
		return -EINVAL;
	for (uint32_t i = 0; i < spec->table_size; i++)
		if (spec->slots[i] >= spec->node_count)
			return -EINVAL;
	c->nodes = aligned_alloc(64, spec->node_count * sizeof(*c->nodes));
	if (c->nodes == NULL)
		return -ENOMEM;
	memset(c->nodes, 0, spec->node_count * sizeof(*c->nodes));
	for (uint32_t i = 0; i < spec->node_count; i++) {
		build_template(&c->nodes[i].outer, &spec->nodes[i]);
		encap_template_mark(&c->nodes[i].outer);
		c->nodes[i].next_hop = spec->nodes[i].next_hop;
	}
	c->node_count = spec->node_count;
	c->self = spec->self;
	c->table_size = spec->table_size;
	c->slots = spec->slots;
	return 0;
}

static int build_backends(struct state *s, const struct backend_spec *specs, uint32_t count)
{
	uint32_t highest = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (specs[i].index == NO_BACKEND || specs[i].generation == 0 ||
		    specs[i].generation > CONN_MAX_GENERATION)
			return -EINVAL;
		if (specs[i].index >= highest)
			highest = specs[i].index + 1u;
	}
	s->backend_count = highest;
	s->backends = aligned_alloc(64, (highest + 1u) * sizeof(*s->backends));
	s->generations = calloc(highest + 1u, sizeof(*s->generations));
	if (s->backends == NULL || s->generations == NULL)
		return -ENOMEM;
	memset(s->backends, 0, (highest + 1u) * sizeof(*s->backends));
	for (uint32_t i = 0; i < count; i++) {
		struct backend *b = &s->backends[specs[i].index];

		if (b->generation != 0)
			return -EEXIST;
		build_template(&b->outer, &specs[i]);
		b->generation = s->generations[specs[i].index] = specs[i].generation;
		b->next_hop = specs[i].next_hop;
	}
	return 0;
}

static int compare_addresses(const void *a, const void *b)
{
	return memcmp(a, b, offsetof(struct backend_address, index));
}

static int build_addresses(struct state *s, const struct backend_spec *specs, uint32_t count)
{
	s->addresses = calloc(count + 1u, sizeof(*s->addresses));
	if (s->addresses == NULL)
		return -ENOMEM;
	s->address_count = count;
	for (uint32_t i = 0; i < count; i++) {
		struct backend_address *a = &s->addresses[i];

		a->length = specs[i].address_length;
		a->index = specs[i].index;
		memcpy(a->address, specs[i].address, a->length);
	}
	qsort(s->addresses, count, sizeof(*s->addresses), compare_addresses);
	return 0;
}

uint32_t state_backends_at(const struct state *s, const uint8_t *address, uint8_t length,
			   const struct backend_address **first)
{
	struct backend_address wanted = {.length = length};
	const struct backend_address *found, *end = s->addresses + s->address_count;
	uint32_t count = 0;

	memcpy(wanted.address, address, length);
	found = bsearch(&wanted, s->addresses, s->address_count, sizeof(wanted), compare_addresses);
	if (found == NULL)
		return 0;
	while (found > s->addresses && compare_addresses(found - 1, &wanted) == 0)
		found--;
	while (found + count < end && compare_addresses(found + count, &wanted) == 0)
		count++;
	*first = found;
	return count;
}

static bool is_bounded(const struct vip_spec *spec)
{
	return spec->load_bound != 0;
}

static bool is_backend(const struct state *s, uint16_t index)
{
	return index < s->backend_count && s->backends[index].generation != 0;
}

static int build_bounded(struct state *s, const struct vip_spec *spec, uint64_t *over)
{
	if (!(spec->load_bound > 1))
		return -EINVAL;
	for (uint32_t i = 0; i < spec->owner_count; i++)
		if (!is_backend(s, spec->owners[i]) || spec->weights[i] == 0)
			return -EINVAL;
	s->bounded[s->bounded_count++] = (struct bounded_vip){
		.vip = spec->id,
		.bound = {
			.factor = spec->load_bound,
			.backends = spec->owners,
			.weights = spec->weights,
			.count = spec->owner_count,
			.over = over,
		},
	};
	return 0;
}

// Its bits are `bits`: state_words() of them, and for a load bound as many again.
static int build_vip(struct state *s, uint32_t position, const struct vip_spec *spec, uint64_t *bits)
{
	struct vip *vip = &s->vips[position];
	int rc = 0;

	if (spec->id >= CONN_MAX_VIPS || (spec->address_length != 4 && spec->address_length != 16))
		return -EINVAL;
	for (uint32_t i = 0; i < spec->usable_count; i++) {
		uint16_t backend = spec->usable[i];

		if (!is_backend(s, backend))
			return -EINVAL;
		bits[backend / 64] |= 1ULL << (backend % 64);
	}
	if (is_bounded(spec))
		rc = build_bounded(s, spec, bits + state_words(s));
	if (rc != 0)
		return rc;
	*vip = (struct vip){
		.id = spec->id,
		.client_affinity = spec->client_affinity != 0,
		.bounded = is_bounded(spec),
		.table_size = spec->table_size,
		.slots = spec->slots,
		.usable = bits,
	};
	rc = vip_table_add(&s->vip_table, spec->address, spec->address_length, spec->protocol, spec->port,
			   (int32_t)position);
	if (rc == 0 && spec->table_size > 0)
		vip_table_mark_served(&s->vip_table, spec->address, spec->address_length);
	return rc;
}

static int compare_tables(const void *a, const void *b)
{
	const struct vip *x = a, *y = b;

	if (x->slots != y->slots)
		return (uintptr_t)x->slots < (uintptr_t)y->slots ? -1 : 1;
	return x->table_size < y->table_size ? 1 : x->table_size > y->table_size ? -1 : 0;
}

// Every slot is that of a backend. A table is looked at once, however many vips share it.
static int check_tables(const struct state *s)
{
	struct vip *vips = malloc((s->vip_count + 1u) * sizeof(*vips));
	int rc = vips != NULL ? 0 : -ENOMEM;

	if (rc == 0)
		memcpy(vips, s->vips, s->vip_count * sizeof(*vips));
	if (rc == 0)
		qsort(vips, s->vip_count, sizeof(*vips), compare_tables);
	for (uint32_t i = 0; i < s->vip_count && rc == 0; i++) {
		if (i > 0 && vips[i].slots == vips[i - 1].slots)
			continue; // the first one is the longest
		for (uint32_t k = 0; k < vips[i].table_size; k++)
			if (!is_backend(s, vips[i].slots[k]))
				rc = -EINVAL;
	}
	free(vips);
	return rc;
}

static int build_vips(struct state *s, const struct vip_spec *specs, uint32_t count)
{
	uint32_t words = state_words(s), bounded = 0;
	uint64_t *bits;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++)
		bounded += is_bounded(&specs[i]);
	s->vip_count = count;
	s->vips = calloc(count + 1u, sizeof(*s->vips));
	s->usable = calloc(((size_t)count + bounded) * words + 1, sizeof(*s->usable));
	s->bounded = calloc(bounded + 1u, sizeof(*s->bounded));
	s->live = calloc(s->backend_count + 1u, sizeof(*s->live));
	if (s->vips == NULL || s->usable == NULL || s->bounded == NULL || s->live == NULL)
		return -ENOMEM;
	bits = s->usable;
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		rc = build_vip(s, i, &specs[i], bits);
		bits += is_bounded(&specs[i]) ? 2 * words : words;
	}
	return rc;
}

struct state *state_build(const struct vip_spec *vips, uint32_t vip_count, const struct backend_spec *backends,
			  uint32_t backend_count, const struct cluster_spec *cluster, int *error)
{
	struct state *s = calloc(1, sizeof(*s));

	*error = -ENOMEM;
	if (s == NULL)
		return NULL;
	*error = build_backends(s, backends, backend_count);
	if (*error == 0)
		*error = build_addresses(s, backends, backend_count);
	if (*error == 0)
		*error = build_cluster(&s->cluster, cluster);
	if (*error == 0)
		*error = vip_table_create(&s->vip_table, vip_count);
	if (*error == 0)
		*error = build_vips(s, vips, vip_count);
	if (*error == 0)
		*error = check_tables(s);
	if (*error == 0)
		return s;
	state_free(s);
	return NULL;
}

void state_free(struct state *s)
{
	if (s == NULL)
		return;
	vip_table_free(&s->vip_table);
	free(s->vips);
	free(s->backends);
	free(s->generations);
	free(s->addresses);
	free(s->usable);
	free(s->bounded);
	free(s->live);
	free(s->cluster.nodes);
	free(s);
}

int state_slot_create(struct state_slot *slot, uint32_t readers)
{
	size_t size = rte_rcu_qsbr_get_memsize(readers);

	slot->current = NULL;
	slot->readers = aligned_alloc(64, (size + 63) & ~(size_t)63);
	if (slot->readers == NULL)
		return -ENOMEM;
	return rte_rcu_qsbr_init(slot->readers, readers) == 0 ? 0 : -EINVAL;
}

void state_slot_free(struct state_slot *slot)
{
	free(slot->readers);
	slot->readers = NULL;
}

void state_publish(struct state_slot *slot, struct state *next)
{
	__atomic_store_n(&slot->current, next, __ATOMIC_RELEASE); // pairs with state_acquire()
	rte_rcu_qsbr_synchronize(slot->readers, RTE_QSBR_THRID_INVALID);
}
