// What can happen to one packet, and why. Every packet that was received gets exactly one reason, and each is a counter;
// a reason belongs to a fate, and fates are what metrics and output count (DESIGN 4).
// [pure] The one list: names here are the names that operators see.

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
	X(FROM_KERNEL, from_kernel, PASSED)                 /* the kernel's, by the interface beside a NIC: sent out */ \
	X(PATH_MTU, path_mtu, PASSED)                       /* a router's too-big to the tunnel source: learned from */ \
	X(NOT_VIP, not_vip, DROPPED)                        /* for a vip's address but no vip, or no kernel to have it */ \
	X(NO_BACKEND, no_backend, DROPPED)                  /* the vip has no backend that takes new flows */          \
	X(MALFORMED, malformed, DROPPED)                    /* a header contradicts itself or the frame */             \
	X(TTL_EXPIRED, ttl_expired, DROPPED)                /* arrived with TTL or hop limit 0 */                      \
	X(TOO_BIG, too_big, DROPPED)                        /* larger than the egress MTU: not answered, not cut */    \
	X(ECHO_SUPPRESSED, echo_suppressed, DROPPED)        /* an echo request that may not be answered: rate, source */ \
	X(PUNT_SUPPRESSED, punt_suppressed, DROPPED)        /* not for a vip, and the kernel has got too many */       \
	X(FRAGMENT_UNMATCHED, fragment_unmatched, DROPPED)  /* a fragment whose flow is not known */                   \
	X(RING_FULL, ring_full, DROPPED)                    /* no worker had room, or not the one that it must be */   \
	X(TRANSMIT_FULL, transmit_full, DROPPED)            /* the transmit side had no room */                        \
	X(NO_NEIGHBOR, no_neighbor, DROPPED)                /* the next hop's MAC is not known */                      \
	X(NO_HEADROOM, no_headroom, DROPPED)                /* no space in the buffer for the outer headers */

enum fate {
#define FATE_ENUM(symbol, name, kind) FATE_##symbol,
	FATES(FATE_ENUM)
#undef FATE_ENUM
	FATE_COUNT
};

// The name of a reason, its fate, and what an operator is told.
#define REASONS(X)                                                                                                     \
	X(known_flow, CONN_HIT, "the connection table knows the flow")                                                 \
	X(new_flow, HASH_NEW, "a new flow: the Maglev table chose its backend")                                        \
	X(new_after_closing, HASH_NEW, "a SYN on a closing flow is a new flow: the Maglev table chose")                \
	X(backend_left, HASH_NEW, "the flow's backend may not be used any more: the Maglev table chose another")       \
	X(new_deflected, HASH_NEW, "a new flow whose backend is over the load bound: to the next in the table that is not") \
	X(reset_untracked, HASH_UNTRACKED, "an RST of no known flow: by the Maglev table, not remembered")             \
	X(table_full, HASH_UNTRACKED, "no room in the connection table: by the Maglev table, not remembered")          \
	X(over_share, HASH_UNTRACKED, "the vip has its fair share of a table that is nearly full: not remembered")     \
	X(spilled, HASH_UNTRACKED, "its worker's ring was full: another one sent it by the Maglev table")              \
	X(own_untracked, HASH_UNTRACKED, "a packet of our own is never remembered")                                    \
	X(error_known, ICMP_ERROR, "an ICMP error about a flow that the connection table knows")                       \
	X(error_by_table, ICMP_ERROR, "an ICMP error about a flow that is not known: by the Maglev table")             \
	X(fragment_first, FRAGMENT, "a first fragment: with its flow, and its datagram's other fragments follow")      \
	X(fragment_later, FRAGMENT, "a later fragment: with the flow of its first one")                                \
	X(fragment_to_node, FRAGMENT, "a fragment that another node of the cluster matches: sent on to it")            \
	X(echo_answered, ECHO_REPLY, "an echo request to a vip that is served")                                        \
	X(too_big_answered, TOO_BIG_REPLY, "larger than the egress MTU leaves room for: the sender was told")          \
	X(punt_not_ip, PUNT, "neither IPv4 nor IPv6: the kernel's")                                                    \
	X(punt_address, PUNT, "not for a vip's address: the kernel's")                                                 \
	X(from_kernel, FROM_KERNEL, "from the kernel, by its interface beside the NIC: sent out by the NIC")           \
	X(path_mtu_lowered, PATH_MTU, "a too-big about a packet to a backend: its MTU is lowered for ten minutes")     \
	X(path_mtu_kept, PATH_MTU, "a too-big about a packet to a backend, which tells nothing lower than is known")   \
	X(not_ip, NOT_VIP, "neither IPv4 nor IPv6, and no kernel behind the port")                                     \
	X(other_address, NOT_VIP, "not for a vip's address, and no kernel behind the port")                            \
	X(other_port, NOT_VIP, "the address is a vip's, but no vip has this protocol and port")                        \
	X(other_protocol, NOT_VIP, "for a vip's address, but neither TCP, UDP nor ICMP of its family")                 \
	X(other_icmp, NOT_VIP, "ICMP to a vip that is neither an error nor an echo request")                           \
	X(other_station, NOT_VIP, "the frame is for another station, or for many while its packet is for a vip")            \
	X(quote_unknown, NOT_VIP, "an ICMP error whose quote names no flow from this address")                         \
	X(quote_not_vip, NOT_VIP, "an ICMP error about a port that no vip has")                                        \
	X(not_a_fragment, NOT_VIP, "from a node of the cluster, but no fragment for a vip")                            \
	X(no_backend, NO_BACKEND, "no backend of the vip takes new flows")                                             \
	X(echo_no_backend, NO_BACKEND, "an echo request to an address of which no vip is served")                      \
	X(ethernet_cut, MALFORMED, "the frame ends inside its Ethernet header or VLAN tags")                           \
	X(ipv4_cut, MALFORMED, "the frame ends inside its IPv4 header")                                                \
	X(ipv4_version, MALFORMED, "an IPv4 frame whose packet has another version")                                   \
	X(ipv4_header_length, MALFORMED, "the IPv4 header length is below 20 or beyond the frame")                     \
	X(ipv4_total_length, MALFORMED, "the IPv4 total length is below its header's or beyond the frame")             \
	X(ipv4_checksum, MALFORMED, "the IPv4 header checksum is wrong")                                               \
	X(ipv6_cut, MALFORMED, "the frame ends inside its IPv6 header")                                                \
	X(ipv6_version, MALFORMED, "an IPv6 frame whose packet has another version")                                   \
	X(ipv6_payload_length, MALFORMED, "the IPv6 payload length is beyond the frame")                               \
	X(ipv6_extension_cut, MALFORMED, "an IPv6 extension header goes beyond the packet")                            \
	X(ipv6_extensions, MALFORMED, "more IPv6 extension headers than any honest packet has")                        \
	X(ipv6_fragments, MALFORMED, "an IPv6 packet with two fragment headers")                                       \
	X(ports_cut, MALFORMED, "the packet ends before its ports")                                                    \
	X(tcp_header, MALFORMED, "the TCP header is cut, or its length is below 20 or beyond the packet")              \
	X(udp_header, MALFORMED, "the UDP header is cut, or its length is below 8 or beyond the packet")               \
	X(icmp_cut, MALFORMED, "the ICMP message is shorter than its header")                                          \
	X(congestion, MALFORMED, "marked as congested between nodes of the cluster, but its sender knows no ECN")      \
	X(ttl_zero, TTL_EXPIRED, "arrived with TTL or hop limit 0")                                                    \
	X(too_big_rate, TOO_BIG, "larger than the egress MTU; too many such answers in this second")                   \
	X(too_big_silent, TOO_BIG, "larger than the egress MTU, and its sender may not be answered")                   \
	X(too_big_outer, TOO_BIG, "with the outer headers longer than any packet can be")                              \
	X(too_big_pieces, TOO_BIG, "larger than the egress MTU, which is too small to fragment to")                    \
	X(too_big_buffers, TOO_BIG, "larger than the egress MTU, and all buffers for fragments are in use")            \
	X(echo_rate, ECHO_SUPPRESSED, "too many echo replies in this second")                                          \
	X(echo_silent, ECHO_SUPPRESSED, "an echo request whose sender may not be answered")                            \
	X(punt_rate, PUNT_SUPPRESSED, "not for a vip's address; too many such packets for the kernel in this second")  \
	X(fragment_late, FRAGMENT_UNMATCHED, "a fragment whose first fragment did not come in time")                   \
	X(fragment_no_room, FRAGMENT_UNMATCHED, "a fragment before its first one: there was no room, or others needed it") \
	X(fragment_no_flow, FRAGMENT_UNMATCHED, "a fragment of neither TCP nor UDP belongs to no flow")                \
	X(fragment_unmatched, FRAGMENT_UNMATCHED, "a fragment that came while vips or cluster changed")                \
	X(pair_full, RING_FULL, "the ring to the worker that has the flow of a fragment or an ICMP error is full")      \
	X(ring_full, RING_FULL, "the rings of all workers are full")                                                   \
	X(muxing_full, TRANSMIT_FULL, "the ring from the worker to muxing is full, or too short for all the fragments") \
	X(transmit_full, TRANSMIT_FULL, "the port's transmit ring is full, or was for one of the fragments")           \
	X(no_neighbor, NO_NEIGHBOR, "the MAC of the backend's next hop is not known")                                  \
	X(no_headroom, NO_HEADROOM, "no space in the buffer for the outer headers")

enum reason {
	GO_ON, // none yet
#define REASON_ENUM(name, fate, text) REASON_##name,
	REASONS(REASON_ENUM)
#undef REASON_ENUM
	REASON_COUNT
};

#endif
