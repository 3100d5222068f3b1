#include "port.h"

#include <errno.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>

// Drivers that have copied a packet, or are done with it, when transmit returns.
static const char *const copying_drivers[] = {"net_af_packet", "net_null", "net_pcap", "net_tap", "net_memif"};

static bool driver_copies(const char *driver)
{
	for (size_t i = 0; i < sizeof(copying_drivers) / sizeof(copying_drivers[0]); i++)
		if (strcmp(driver, copying_drivers[i]) == 0)
			return true;
	return false;
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

static int configure(struct port *port, struct packet_pool *pool)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	uint16_t receive = PORT_DESCRIPTORS, transmit = PORT_DESCRIPTORS;
	int socket = rte_eth_dev_socket_id(port->id);
	int rc;

	if ((rc = rte_eth_dev_info_get(port->id, &info)) < 0)
		return rc;
	port->copies = driver_copies(info.driver_name);
	conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS; // large packets, and pieces
	if ((rc = rte_eth_dev_configure(port->id, 1, 1, &conf)) < 0 ||
	    (rc = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &receive, &transmit)) < 0 ||
	    (rc = rte_eth_rx_queue_setup(port->id, 0, receive, (unsigned int)socket, NULL, pool->mempool)) < 0 ||
	    (rc = rte_eth_tx_queue_setup(port->id, 0, transmit, (unsigned int)socket, NULL)) < 0 ||
	    (rc = rte_eth_macaddr_get(port->id, &mac)) < 0 || (rc = rte_eth_dev_start(port->id)) < 0)
		return rc;
	memcpy(port->mac, mac.addr_bytes, sizeof(port->mac));
	port->receive_descriptors = port->copies ? 0 : receive;
	port->transmit_descriptors = port->copies ? 0 : transmit;
	return 0;
}

int port_open_device(struct port *port, const char *devargs, uint16_t index, struct packet_pool *pool)
{
	int rc;

	*port = (struct port){.device = true, .index = index};
	rc = device_name(devargs, port->name, sizeof(port->name));
	if (rc < 0)
		return rc;
	if (rte_eth_dev_get_port_by_name(port->name, &port->id) == 0)
		return -EEXIST;
	rc = rte_dev_probe(devargs);
	if (rc < 0)
		return rc;
	rc = rte_eth_dev_get_port_by_name(port->name, &port->id);
	if (rc < 0) {
		port->device = false;
		return rc;
	}
	rc = configure(port, pool);
	if (rc < 0)
		port_close(port);
	return rc;
}

int port_open_memory(struct port *port, const char *name, uint16_t index)
{
	// The node of a capture has the locally administered address of DESIGN 9.
	*port = (struct port){.index = index, .mac = {2, 0, 0, 0, 0, 2}};
	snprintf(port->name, sizeof(port->name), "%s", name);
	char ring[RTE_RING_NAMESIZE];

	snprintf(ring, sizeof(ring), "in_%s", name);
	port->arriving = rte_ring_create(ring, MEMORY_PORT_FRAMES, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	snprintf(ring, sizeof(ring), "out_%s", name);
	port->leaving = rte_ring_create(ring, MEMORY_PORT_FRAMES, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (port->arriving == NULL || port->leaving == NULL) {
		int rc = -rte_errno;

		port_close(port);
		return rc;
	}
	return 0;
}

void port_close(struct port *port)
{
	if (port->device) {
		struct rte_eth_dev_info info;
		struct rte_device *device = rte_eth_dev_info_get(port->id, &info) == 0 ? info.device : NULL;

		rte_eth_dev_stop(port->id);
		rte_eth_dev_close(port->id);
		if (device != NULL)
			rte_dev_remove(device);
	}
	packet_ring_drain(port->arriving);
	packet_ring_drain(port->leaving);
	*port = (struct port){0};
}

bool port_link_up(const struct port *port)
{
	struct rte_eth_link link;

	return !port->device || (rte_eth_link_get_nowait(port->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP);
}

uint64_t port_missed(const struct port *port)
{
	struct rte_eth_stats stats;

	if (!port->device || rte_eth_stats_get(port->id, &stats) != 0)
		return 0;
	return stats.imissed + stats.rx_nombuf;
}
