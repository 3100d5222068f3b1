// The checksums of TCP and UDP that a sender's kernel has left to a NIC.
// [pure] Between kernels of one machine (veth, virtio) there is no such NIC: the checksum then holds only the sum of the
// pseudo header, and the packet must be finished before it goes out of that machine, which a backend would else drop.

#ifndef MAGLEV_CHECKSUM_H
#define MAGLEV_CHECKSUM_H

#include "parse.h"

// Whether the checksum of a whole TCP or UDP packet looks unfinished. A finished one does too, once in 65536.
bool checksum_looks_unfinished(const struct packet_view *v);

// Finish it, if it is wrong. All bytes of the packet must stand at `ip`, which is v->ip, and may be written.
void checksum_finish(uint8_t *ip, const struct packet_view *v);

#endif
