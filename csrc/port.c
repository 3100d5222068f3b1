#include "port.h"

#include <errno.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>

#include "rss.h"

enum { MOST_BUCKETS = 4096 }; // of a device's RSS table

// Flows of TCP and UDP must be spread by addresses and ports. Of the rest by addresses, where a NIC can: then fragments
// mostly come by the right queue.
static const uint64_t SPREAD_FLOWS = RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV4_UDP |
				     RTE_ETH_RSS_NONFRAG_IPV6_TCP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;
static const uint64_t SPREAD_REST = RTE_ETH_RSS_IP;

// Drivers that have copied a packet, or are done with it, when transmit returns.
static const char *const copying_drivers[] = {"net_af_packet", "net_null", "net_pcap", "net_tap", "net_memif"};

// net_af_xdp fills a ring of this size whatever it is asked for, and asked for the same it has such rings to receive and
// to transmit. What was sent it takes back as it sends more: until then there may be as many of these again.
enum { XDP_DESCRIPTORS = 2048 };

static bool driver_is_af_xdp(const struct rte_eth_dev_info *info)
{
	return strcmp(info->driver_name, "net_af_xdp") == 0;
}

static bool driver_copies(const char *driver)
{
	for (size_t i = 0; i < sizeof(copying_drivers) / sizeof(copying_drivers[0]); i++)
		if (strcmp(driver, copying_drivers[i]) == 0)
			return true;
	return false;
}

// What keeps a device from being shared out over `queues`; NULL: nothing is known yet.
static const char *lack_of(const struct rte_eth_dev_info *info, uint16_t queues)
{
	if (info->max_rx_queues < queues || info->max_tx_queues < queues)
		return info->max_rx_queues == 1 || info->max_tx_queues == 1 ? "has only one queue"
									    : "has fewer queues than there are workers";
	if ((info->flow_type_rss_offloads & SPREAD_FLOWS) != SPREAD_FLOWS)
		return "does not spread TCP and UDP by addresses and ports (RSS)";
	if (info->hash_key_size > RSS_KEY_MOST || (info->hash_key_size != 0 && info->hash_key_size < RSS_KEY_BYTES))
		return "takes no RSS key of ours";
	if (info->reta_size == 0 || (info->reta_size & (info->reta_size - 1)) != 0)
		return "has no RSS table that can be set";
	if (strcmp(info->driver_name, "net_null") == 0)
		return "only pretends to spread what it receives";
	return NULL;
}

static uint8_t key_size(const struct rte_eth_dev_info *info)
{
	return info->hash_key_size != 0 ? info->hash_key_size : RSS_KEY_BYTES;
}

static struct rte_eth_rss_conf our_rss(const struct rte_eth_dev_info *info)
{
	return (struct rte_eth_rss_conf){
		.rss_key = (uint8_t *)rss_key, // only read
		.rss_key_len = key_size(info),
		.rss_hf = info->flow_type_rss_offloads & (SPREAD_FLOWS | SPREAD_REST),
	};
}

// What a driver was asked for is not always what it does; some want to be asked once more when they run.
static bool takes_our_key(const struct port *port, const struct rte_eth_dev_info *info)
{
	uint8_t key[RSS_KEY_MOST] = {0};
	struct rte_eth_rss_conf conf = our_rss(info);

	rte_eth_dev_rss_hash_update(port->id, &conf);
	conf = (struct rte_eth_rss_conf){.rss_key = key, .rss_key_len = sizeof(key)};
	return rte_eth_dev_rss_hash_conf_get(port->id, &conf) == 0 && (conf.rss_hf & SPREAD_FLOWS) == SPREAD_FLOWS &&
	       memcmp(key, rss_key, key_size(info)) == 0;
}

// "net_null0,size=64" -> "net_null0"
static int device_name(const char *devargs, char *name, size_t size)
{
	size_t length = strcspn(devargs, ",");

	if (length == 0 || length >= size)
		return -EINVAL;
	memcpy(name, devargs, length);
	name[length] = '\0';
	return 0;
}

static int set_up_queues(struct port *port, struct packet_pool *pool, const struct rte_eth_dev_info *info,
			 uint16_t queues)
{
	uint16_t receive = driver_is_af_xdp(info) ? XDP_DESCRIPTORS : PORT_DESCRIPTORS, transmit = receive;
	unsigned int socket = (unsigned int)rte_eth_dev_socket_id(port->id);
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &receive, &transmit);

	for (uint16_t q = 0; q < queues && rc >= 0; q++) {
		rc = rte_eth_rx_queue_setup(port->id, q, receive, socket, NULL, pool->mempool);
		if (rc >= 0)
			rc = rte_eth_tx_queue_setup(port->id, q, transmit, socket, NULL);
	}
	port->transmit_descriptors = port->copies ? 0 : (uint32_t)transmit * queues;
	if (driver_is_af_xdp(info))
		port->transmit_descriptors *= 2;
	return rc;
}

// A frame that is longer than a buffer takes several.
static int want_mtu(const struct port *port, const struct rte_eth_dev_info *info, struct rte_eth_conf *conf)
{
	uint32_t frame = (uint32_t)port->mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (port->mtu > info->max_mtu || frame > info->max_rx_pktlen)
		return -EMSGSIZE;
	conf->rxmode.mtu = port->mtu;
	if (frame + 2 * RTE_VLAN_HLEN <= RTE_MBUF_DEFAULT_DATAROOM)
		return 0;
	if ((info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) == 0)
		return -EMSGSIZE;
	conf->rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
	return 0;
}

// Some drivers have it from the configuration, some want to be told.
static int set_mtu(const struct port *port)
{
	int rc = rte_eth_dev_set_mtu(port->id, port->mtu);

	return rc == -ENOTSUP ? 0 : rc;
}

// Neighbor discovery comes by multicast. A NIC that cannot take all of it takes everything.
static int take_multicast(const struct port *port)
{
	return rte_eth_allmulticast_enable(port->id) == 0 ? 0 : rte_eth_promiscuous_enable(port->id);
}

static int configure(struct port *port, struct packet_pool *pool, const struct rte_eth_dev_info *info, uint16_t queues)
{
	uint32_t unheld = packet_pool_available(pool) + port->held;
	struct rte_eth_conf conf = {0};
	struct rte_ether_addr mac;
	int rc;

	port->copies = driver_copies(info->driver_name);
	port->gathers = !driver_is_af_xdp(info);
	port->flat = pool->mempool;
	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS; // large packets, and pieces
	if (port->mtu != 0 && (rc = want_mtu(port, info, &conf)) < 0)
		return rc;
	if (queues > 1) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf = our_rss(info);
	}
	if ((rc = rte_eth_dev_configure(port->id, queues, queues, &conf)) < 0 ||
	    (rc = set_up_queues(port, pool, info, queues)) < 0 || (rc = rte_eth_macaddr_get(port->id, &mac)) < 0 ||
	    (port->mtu != 0 && (rc = set_mtu(port)) < 0) || (rc = rte_eth_dev_start(port->id)) < 0 ||
	    (port->mtu != 0 && (rc = take_multicast(port)) < 0))
		return rc;
	memcpy(port->mac, mac.addr_bytes, sizeof(port->mac));
	port->queues = queues;
	port->buckets = queues > 1 ? info->reta_size : 1;
	// Seen rather than reckoned: some drivers have two packets for each descriptor, some take one as it comes.
	port->held = unheld - packet_pool_available(pool);
	return 0;
}

// As many queues as were asked for, where flows are spread over them as we compute it.
static int share(struct port *port, struct packet_pool *pool, uint16_t queues)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port->id, &info);

	if (rc < 0)
		return rc;
	port->lacks = queues > 1 ? lack_of(&info, queues) : NULL;
	if (queues == 1 || port->lacks != NULL)
		return configure(port, pool, &info, 1);
	if (configure(port, pool, &info, queues) < 0)
		port->lacks = "could not be set up for RSS";
	else if (!takes_our_key(port, &info))
		port->lacks = "takes no RSS key of ours";
	else if (port_share_out(port, port->buckets) < 0)
		port->lacks = "has no RSS table that can be set";
	return port->lacks == NULL ? 0 : port_use_one_queue(port, pool);
}

int port_use_one_queue(struct port *port, struct packet_pool *pool)
{
	struct rte_eth_dev_info info;
	int rc;

	if (port->kind != PORT_DEVICE)
		return -ENOTSUP;
	rte_eth_dev_stop(port->id); // no harm where it does not run
	rc = rte_eth_dev_info_get(port->id, &info);
	return rc < 0 ? rc : configure(port, pool, &info, 1);
}

int port_share_out(struct port *port, uint16_t buckets)
{
	struct rte_eth_rss_reta_entry64 table[MOST_BUCKETS / RTE_ETH_RETA_GROUP_SIZE] = {0};
	uint16_t groups = (uint16_t)(port->buckets / RTE_ETH_RETA_GROUP_SIZE);

	for (uint16_t i = 0; port->kind == PORT_MEMORY && i < MEMORY_PORT_BUCKETS; i++)
		port->queue_of[i] = (uint8_t)rss_bucket_queue(i, buckets, port->queues);
	if (port->kind != PORT_DEVICE || port->queues == 1)
		return 0;
	if (groups == 0 || groups > RTE_DIM(table))
		return -ENOTSUP; // no device that we know of
	for (uint16_t i = 0; i < port->buckets; i++)
		table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] =
			rss_bucket_queue(i, buckets, port->queues);
	for (uint16_t g = 0; g < groups; g++)
		table[g].mask = UINT64_MAX;
	return rte_eth_dev_rss_reta_update(port->id, table, port->buckets);
}

int port_open_device(struct port *port, const char *devargs, uint16_t index, struct packet_pool *pool, uint16_t queues,
		     uint16_t mtu)
{
	int rc;

	if (queues == 0 || queues > MAX_QUEUES)
		return -EINVAL;
	*port = (struct port){.kind = PORT_DEVICE, .index = index, .mtu = mtu};
	rc = device_name(devargs, port->name, sizeof(port->name));
	if (rc < 0)
		return rc;
	if (rte_eth_dev_get_port_by_name(port->name, &port->id) == 0)
		return -EEXIST;
	rc = rte_dev_probe(devargs);
	if (rc < 0)
		return rc;
	rc = rte_eth_dev_get_port_by_name(port->name, &port->id);
	if (rc < 0)
		return rc;
	rc = share(port, pool, queues);
	if (rc < 0)
		port_close(port);
	return rc;
}

static struct rte_ring *memory_queue(const char *direction, uint16_t queue, const char *name)
{
	char ring[RTE_RING_NAMESIZE];

	snprintf(ring, sizeof(ring), "%s%u_%s", direction, queue, name);
	return rte_ring_create(ring, MEMORY_PORT_FRAMES, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

int port_open_memory(struct port *port, const char *name, uint16_t index, uint16_t queues)
{
	if (queues == 0 || queues > MAX_QUEUES)
		return -EINVAL;
	// The node of a capture has the locally administered address of DESIGN 9.
	*port = (struct port){.kind = PORT_MEMORY, .index = index, .mac = {2, 0, 0, 0, 0, 2}, .queues = queues};
	port->buckets = queues > 1 ? MEMORY_PORT_BUCKETS : 1;
	snprintf(port->name, sizeof(port->name), "%s", name);
	for (uint16_t q = 0; q < queues; q++) {
		port->arriving[q] = memory_queue("in", q, name);
		port->leaving[q] = memory_queue("out", q, name);
		if (port->arriving[q] == NULL || port->leaving[q] == NULL) {
			int rc = -rte_errno;

			port_close(port);
			return rc;
		}
	}
	return port_share_out(port, port->buckets);
}

void port_open_kernel_side(struct port *port, const char *name, uint16_t index, uint16_t nic, const int *files,
			   uint16_t queues, struct packet_pool *pool)
{
	*port = (struct port){.kind = PORT_KERNEL_SIDE, .index = index, .nic = nic, .queues = queues, .buckets = 1};
	snprintf(port->name, sizeof(port->name), "%s", name);
	kernel_side_open(&port->kernel_side, files, queues, pool);
}

void port_close(struct port *port)
{
	if (port->kind == PORT_DEVICE) {
		struct rte_eth_dev_info info;
		struct rte_device *device = rte_eth_dev_info_get(port->id, &info) == 0 ? info.device : NULL;

		rte_eth_dev_stop(port->id);
		rte_eth_dev_close(port->id);
		if (device != NULL)
			rte_dev_remove(device);
	}
	for (uint16_t q = 0; q < port->queues && port->kind == PORT_MEMORY; q++) {
		packet_ring_drain(port->arriving[q]);
		packet_ring_drain(port->leaving[q]);
	}
	*port = (struct port){0};
}

uint16_t port_transmit_flat(const struct port *port, uint16_t queue, struct rte_mbuf **burst, uint16_t n)
{
	struct rte_mbuf *flat[BURST];
	uint16_t ready = 0, sent;

	// No packet for the wire is larger than a buffer: the port's MTU is not.
	for (; ready < n; ready++) {
		struct rte_mbuf *m = burst[ready];

		flat[ready] = m->nb_segs == 1 ? m : rte_pktmbuf_copy(m, port->flat, 0, UINT32_MAX);
		if (flat[ready] == NULL)
			break;
	}
	sent = rte_eth_tx_burst(port->id, queue, flat, ready);
	for (uint16_t i = 0; i < ready; i++)
		if (flat[i] != burst[i])
			packet_free(i < sent ? burst[i] : flat[i]);
	return sent;
}

bool port_link_up(const struct port *port)
{
	struct rte_eth_link link;

	return port->kind != PORT_DEVICE || (rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP);
}

uint64_t port_missed(const struct port *port)
{
	struct rte_eth_stats stats;
	uint64_t refused = 0;

	for (uint16_t q = 0; q < port->queues; q++)
		refused += __atomic_load_n(&port->kernel_side.refused[q], __ATOMIC_RELAXED) +
			   __atomic_load_n(&port->kernel_side.too_long[q], __ATOMIC_RELAXED);
	if (port->kind != PORT_DEVICE || rte_eth_stats_get(port->id, &stats) != 0)
		return refused;
	return stats.imissed + stats.rx_nombuf;
}
