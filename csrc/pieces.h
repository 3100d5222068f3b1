// Pieces: an outer packet that is longer than the way to its backend takes, cut into IP fragments.
//
// A piece is a buffer with headers of its own and references to the bytes of the packet, which are not copied. All
// pieces of a packet stand together in the ring to muxing (in layout `rss` in that of the port), or none does. The last
// one has the packet's note, so that the packet meets its fate when the port has taken all; those before are flagged
// PACKET_PIECE and counted apart.

#ifndef MAGLEV_PIECES_H
#define MAGLEV_PIECES_H

#include "worker.h"

enum { MAX_PIECES = 128 }; // of one packet: 65535 bytes at an MTU of 576 are 119

// Cut the IP packet behind `l3` bytes of Ethernet header and tags into pieces of at most `mtu` bytes, each with the same
// Ethernet header before it. Returns how many, or a negative errno; the caller still has `m`.
int pieces_cut(struct worker *w, struct rte_mbuf *m, uint16_t l3, uint16_t mtu, struct rte_mbuf **pieces);

// Put the pieces of `m` into that ring. Returns GO_ON, and `m` is gone; or the reason why it cannot be done (`n` is what
// pieces_cut() returned), and the caller still has it.
enum reason pieces_pass_on(struct worker *w, struct rte_mbuf *m, struct rte_mbuf **pieces, int n);

#endif
