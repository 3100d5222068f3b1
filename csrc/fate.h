// What can happen to one packet. Every packet that was received gets exactly one of these, and each is a counter.
// [pure] The one list: names here are the names in metrics and output, see DESIGN 4.

#ifndef MAGLEV_FATE_H
#define MAGLEV_FATE_H

enum fate_kind { FORWARDED, ANSWERED, PASSED, DROPPED };

#define FATES(X)                                                                                                       \
	X(CONN_HIT, conn_hit, FORWARDED)             /* the connection table knew the flow */                          \
	X(HASH_NEW, hash_new, FORWARDED)             /* the Maglev table chose, and the choice was remembered */       \
	X(HASH_UNTRACKED, hash_untracked, FORWARDED) /* the Maglev table chose, and nothing was remembered */          \
	X(ICMP_ERROR, icmp_error, FORWARDED)                                                                           \
	X(FRAGMENT, fragment, FORWARDED)                                                                               \
	X(ECHO_REPLY, echo_reply, ANSWERED)                                                                            \
	X(TOO_BIG_REPLY, too_big_reply, ANSWERED)                                                                      \
	X(PUNT, punt, PASSED)                               /* not for a vip: the kernel's */                          \
	X(NOT_VIP, not_vip, DROPPED)                        /* for a vip's address but no vip, or no kernel to have it */ \
	X(NO_BACKEND, no_backend, DROPPED)                  /* the vip has no backend that takes new flows */          \
	X(MALFORMED, malformed, DROPPED)                    /* a header contradicts itself or the frame */             \
	X(TTL_EXPIRED, ttl_expired, DROPPED)                /* arrived with TTL or hop limit 0 */                      \
	X(TOO_BIG, too_big, DROPPED)                        /* larger than the egress MTU, and not answered */         \
	X(ECHO_SUPPRESSED, echo_suppressed, DROPPED)        /* an echo request that may not be answered: rate, source */ \
	X(FRAGMENT_UNMATCHED, fragment_unmatched, DROPPED)  /* a fragment whose flow is not known */                   \
	X(RING_FULL, ring_full, DROPPED)                    /* no worker had room */                                   \
	X(TRANSMIT_FULL, transmit_full, DROPPED)            /* the transmit side had no room */                        \
	X(NO_NEIGHBOR, no_neighbor, DROPPED)                /* the next hop's MAC is not known */                      \
	X(NO_HEADROOM, no_headroom, DROPPED)                /* no space in the buffer for the outer headers */

enum fate {
#define FATE_ENUM(symbol, name, kind) FATE_##symbol,
	FATES(FATE_ENUM)
#undef FATE_ENUM
	FATE_COUNT
};

#endif
