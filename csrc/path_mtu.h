// What a router says of the way to a backend: the ICMP too-big about an outer packet of ours, and its memory.
// [pure] One 64-bit word per backend index, shared by all workers: written per message, never per packet.
//
// word, from the low end: second until when 32 | generation of the index 16 | MTU 16; 0 = nothing learned. The
// generation tells a reused index from its former owner (state.h).

#ifndef MAGLEV_PATH_MTU_H
#define MAGLEV_PATH_MTU_H

#include "parse.h"

enum {
	PATH_MTU_SECONDS = 600, // how long it is remembered
	PATH_MTU_LEAST4 = 576,  // never less; anybody could say anything
	PATH_MTU_LEAST6 = 1280,
};

struct path_mtu_report {
	const uint8_t *source, *destination; // of the outer packet that it quotes
	uint8_t address_length;
	uint16_t mtu; // never below the least one of its family; UINT16_MAX when it says what must not be believed
};

// Read a too-big error that the sender of a GRE packet of ours would get. False: it is something else, its checksum
// is wrong, or it quotes what was not sent by the address that it is for. After parse_transport() (icmp.h).
bool path_mtu_read(const struct packet_view *v, struct path_mtu_report *report);

static inline uint16_t path_mtu_of(uint64_t word, uint16_t generation, uint32_t now)
{
	bool valid = (uint16_t)(word >> 32) == generation && (int32_t)((uint32_t)word - now) > 0;

	return valid ? (uint16_t)(word >> 48) : 0;
}

// The MTU that was learned, 0 when there is none.
static inline uint16_t path_mtu_get(const uint64_t *word, uint16_t generation, uint32_t now)
{
	return path_mtu_of(__atomic_load_n(word, __ATOMIC_RELAXED), generation, now); // complete in itself
}

// Remember `mtu` from now on, unless as little is known already. Returns whether it was lowered.
bool path_mtu_lower(uint64_t *word, uint16_t generation, uint16_t mtu, uint32_t now);

#endif
