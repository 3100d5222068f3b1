#include "pieces.h"

#include <errno.h>

#include <rte_ip.h>
#include <rte_ip_frag.h>

#include "muxing.h"

static bool is_ipv4(const struct rte_mbuf *m)
{
	return *rte_pktmbuf_mtod(m, const uint8_t *) >> 4 == 4;
}

// Returns how many pieces, or a negative errno.
static int cut(const struct packet_pool *pool, struct rte_mbuf *m, struct rte_mbuf **pieces, uint16_t mtu)
{
	if (is_ipv4(m))
		return rte_ipv4_fragment_packet(m, pieces, MAX_PIECES, mtu, pool->piece_headers,
						pool->piece_references);
	return rte_ipv6_fragment_packet(m, pieces, MAX_PIECES, mtu, pool->piece_headers, pool->piece_references);
}

// What the library leaves out: it hopes for a NIC that computes checksums, and gives every IPv6 packet the id 0.
static void complete(struct rte_mbuf *piece, uint32_t id)
{
	if (is_ipv4(piece)) {
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(piece, struct rte_ipv4_hdr *);

		ip->hdr_checksum = rte_ipv4_cksum(ip);
	} else {
		size_t fragment_header = sizeof(struct rte_ipv6_hdr);

		rte_pktmbuf_mtod_offset(piece, struct rte_ipv6_fragment_ext *, fragment_header)->id =
			rte_cpu_to_be_32(id);
	}
}

// The same Ethernet header and tags, port, and tag for the driver to put back as the packet has.
static void send_like(struct rte_mbuf *piece, const struct rte_mbuf *m, const uint8_t *ethernet, uint16_t l3)
{
	memcpy(packet_prepend(piece, l3), ethernet, l3); // there is room, see packet_pool.c
	piece->port = m->port;
	piece->vlan_tci = m->vlan_tci;
	piece->ol_flags |= m->ol_flags & RTE_MBUF_F_TX_VLAN;
	*packet_note(piece) = (struct packet_note){.flags = PACKET_PIECE};
}

int pieces_cut(struct worker *w, struct rte_mbuf *m, uint16_t l3, uint16_t mtu, struct rte_mbuf **pieces)
{
	const uint8_t *ethernet = rte_pktmbuf_mtod(m, const uint8_t *);
	int n;

	rte_pktmbuf_adj(m, l3); // the library wants to see the IP header first
	n = cut(w->pool, m, pieces, mtu);
	for (int i = 0; i < n; i++) {
		complete(pieces[i], w->fragment_id);
		send_like(pieces[i], m, ethernet, l3);
	}
	rte_pktmbuf_prepend(m, l3);
	if (n > 0)
		w->fragment_id += w->ip_id_step;
	return n;
}

// For all pieces of a packet, in the ring to muxing or in that of the port.
static bool find_room(struct worker *w, uint16_t port, unsigned int n)
{
	return w->out != NULL ? rte_ring_free_count(w->out) >= n : muxing_fits(w->muxing, port, n);
}

enum reason pieces_pass_on(struct worker *w, struct rte_mbuf *m, struct rte_mbuf **pieces, int n)
{
	if (n < 0)
		return n == -ENOMEM ? REASON_too_big_buffers : REASON_too_big_pieces;
	if (!find_room(w, pieces[n - 1]->port, (unsigned int)n)) {
		rte_pktmbuf_free_bulk(pieces, (unsigned int)n);
		return w->out != NULL ? REASON_muxing_full : REASON_transmit_full;
	}
	*packet_note(pieces[n - 1]) = *packet_note(m);
	rte_mbuf_dynfield_copy(pieces[n - 1], m); // its number in the trace
	count(&w->stats.made, (uint64_t)n - 1);   // before they can come back
	if (w->out != NULL)
		rte_ring_sp_enqueue_bulk(w->out, (void *const *)pieces, (unsigned int)n, NULL); // nobody else fills it
	else
		muxing_take(w->muxing, pieces, (uint16_t)n);
	packet_free(m); // its bytes stay until the last piece is gone
	return GO_ON;
}
