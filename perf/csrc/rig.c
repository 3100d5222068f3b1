#include "rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_launch.h>

#include "generator.h"
#include "maglev.h"

static int make_pool(struct rig *r, const struct rig_config *config)
{
	bool umem = config->devargs != NULL && strncmp(config->devargs, "net_af_xdp", strlen("net_af_xdp")) == 0;

	if (!config->cold)
		return packet_pool_create(&r->pool, config->name, config->packets, SOCKET_ID_ANY, umem);
	r->pool.size = config->packets;
	r->pool.mempool = rte_pktmbuf_pool_create(config->name, config->packets, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
						  (int)rte_socket_id());
	return r->pool.mempool != NULL ? 0 : -ENOMEM;
}

static int make_slots(struct rig *r, const struct rig_config *config)
{
	struct maglev_member *members = calloc(config->backends, sizeof(*members));
	char name[16];
	int rc = -ENOMEM;

	r->slots = calloc(config->table_size, sizeof(*r->slots));
	if (members != NULL && r->slots != NULL) {
		for (uint32_t i = 0; i < config->backends; i++) {
			int length = snprintf(name, sizeof(name), "b%05u", i);

			maglev_permutation(name, (size_t)length, config->table_size, &members[i]);
			members[i].weight = 1;
		}
		rc = maglev_populate(members, config->backends, config->table_size, r->slots);
	}
	free(members);
	return rc;
}

static void specify(const struct rig *r, const struct rig_config *config, struct backend_spec *backends,
		    struct vip_spec *vips, uint16_t *usable)
{
	for (uint32_t i = 0; i < config->backends; i++) {
		backends[i] = (struct backend_spec){.index = (uint16_t)i, .generation = 1, .address_length = 4,
						    .address = {10, 1, (uint8_t)(i >> 8), (uint8_t)i},
						    .source = {10, 0, 2, 2}};
		usable[i] = (uint16_t)i;
	}
	for (uint32_t i = 0; i < config->vips; i++) {
		vips[i] = (struct vip_spec){.id = (uint16_t)i, .port = 80, .protocol = IPPROTO_TCP,
					    .address_length = config->version == 4 ? 4 : 16,
					    .table_size = config->table_size, .slots = r->slots,
					    .usable = usable, .usable_count = config->backends};
		generator_vip(config->version, i, vips[i].address);
	}
}

static int make_state(struct rig *r, const struct rig_config *config)
{
	struct backend_spec *backends = calloc(config->backends, sizeof(*backends));
	struct vip_spec *vips = calloc(config->vips, sizeof(*vips));
	uint16_t *usable = calloc(config->backends, sizeof(*usable));
	const struct cluster_spec alone = {0};
	int error = -ENOMEM;

	if (backends != NULL && vips != NULL && usable != NULL) {
		specify(r, config, backends, vips, usable);
		r->state = state_build(vips, config->vips, backends, config->backends, &alone, &error);
	}
	free(backends);
	free(vips);
	free(usable);
	return r->state != NULL ? 0 : error;
}

static int make_dataplane(struct rig *r, const struct rig_config *config)
{
	struct dataplane_config asked = {
		.hash_key = {0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL},
		.steering_seed = 1,
		.workers = config->workers,
		.layout = config->layout,
		.ring_size = config->ring_size,
		.connection_entries = config->entries,
		.connection_seconds = {10, 7200, 10, 60},
		.idle = config->idle,
	};
	uint16_t queues;
	int error = 0;

	queues = config->layout == LAYOUT_RSS ? (uint16_t)config->workers : 1;
	r->port = config->devargs == NULL ? port_new_memory(config->name, 0, queues, &error)
					  : port_new_device(config->devargs, 0, &r->pool, queues, 0, &error);
	if (r->port == NULL)
		return error;
	r->dataplane = dataplane_new(&asked, &r->pool, &r->port, 1, &error);
	if (r->dataplane == NULL)
		return error;
	dataplane_set_port(r->dataplane, 0, 9216, false, false, config->only_own);
	dataplane_set_next_hop(r->dataplane, 0, 0, (uint8_t[]){2, 0, 0, 0, 0, 9});
	dataplane_publish(r->dataplane, r->state);
	return 0;
}

int rig_open(struct rig *r, const struct rig_config *config)
{
	int rc;

	*r = (struct rig){0};
	if ((rc = make_pool(r, config)) < 0 || (rc = make_slots(r, config)) < 0 || (rc = make_state(r, config)) < 0 ||
	    (rc = make_dataplane(r, config)) < 0)
		rig_close(r);
	return rc;
}

void rig_close(struct rig *r)
{
	dataplane_delete(r->dataplane);
	port_delete(r->port);
	packet_pool_free(&r->pool);
	state_free(r->state);
	free(r->slots);
	*r = (struct rig){0};
}

void rig_wait(unsigned int lcore)
{
	while (rte_eal_get_lcore_state(lcore) == RUNNING)
		rte_delay_us_sleep(100);
	rte_eal_wait_lcore(lcore);
}

void rig_fates(const struct rig *r, struct rig_fates *fates)
{
	*fates = (struct rig_fates){.known = dataplane_reason_count(r->dataplane, REASON_known_flow)};
	for (uint32_t reason = 1; reason < REASON_COUNT; reason++) {
		bool went = fate_kind(reason_fate((enum reason)reason)) == FORWARDED;

		*(went ? &fates->forwarded : &fates->dropped) += dataplane_reason_count(r->dataplane, reason);
	}
}
