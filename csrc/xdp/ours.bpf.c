// What a kernel interface hands to the forwarder under af_xdp; everything else that comes in is the kernel's.
//
// Ours are packets to a vip's address, a router's too-big error about the tunnel, and GRE from another node of the
// cluster to the tunnel source. ARP, neighbor discovery, BGP, SSH and pings to the node pass, and all of it where no
// socket is bound. The control thread fills the maps (forwarder/xdp.py). Compiled by gcc-bpf; GCC 12 writes types of
// linux/bpf.h in a way that kernels refuse, so the few that are needed stand here.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The kernel's binary interface, as linux/bpf.h has it.
enum { XDP_PASS = 2, MAP_HASH = 1, MAP_ARRAY = 2, MAP_XSKMAP = 17, NO_PREALLOC = 1 };

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
};

// libbpf reads what a map is like from the types of a structure's members: a number is the length of an array.
#define NUMBER(name, value) int(*name)[value]
#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// Helpers of the kernel, by number.
INLINE const void *map_lookup(const void *map, const void *key)
{
	register const void *first asm("r1") = map, *second asm("r2") = key;
	register const void *found asm("r0");

	asm volatile("call 1" : "=r"(found), "+r"(first), "+r"(second) : : "r3", "r4", "r5", "memory");
	return found;
}

INLINE int redirect_map(const void *map, u64 key, u64 otherwise)
{
	register const void *first asm("r1") = map;
	register u64 second asm("r2") = key, third asm("r3") = otherwise;
	register long verdict asm("r0");

	asm volatile("call 51" : "=r"(verdict), "+r"(first), "+r"(second), "+r"(third) : : "r4", "r5", "memory");
	return (int)verdict;
}

enum { MOST_QUEUES = 64, MOST_ADDRESSES = 1 << 15 }; // the vips, this node and the others

// What an address is to this node. Bits.
enum role { ROLE_VIP = 1, ROLE_TUNNEL_SOURCE = 2, ROLE_NODE = 4 };

struct address {
	u8 bytes[16]; // IPv4 as ::ffff:a.b.c.d
};

struct station {
	u8 mac[6];
};

// The driver looks for this name and puts its socket of each queue here.
struct {
	NUMBER(type, MAP_XSKMAP);
	NUMBER(max_entries, MOST_QUEUES);
	u32 *key;
	u32 *value;
} xsks_map SECTION(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, MOST_ADDRESSES);
	NUMBER(map_flags, NO_PREALLOC);
	struct address *key;
	u32 *value;
} roles SECTION(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	u32 *key;
	struct station *value;
} station SECTION(".maps");

u8 terms[] SECTION("license") = "Apache-2.0";

enum {
	ETHERNET = 14,
	TAG = 4,
	IPV4 = 20,
	IPV6 = 40,
	ICMP = 8,
	PROTOCOL_ICMP = 1,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_GRE = 47,
	PROTOCOL_ICMPV6 = 58,
};

INLINE u16 read16(const u8 *at)
{
	return (u16)(at[0] << 8 | at[1]);
}

// A function of its own, since GCC may else compare the pointer with a register, which verifiers take for no check.
static __attribute__((noinline)) u32 role_of(const struct address *address)
{
	const u32 *role = map_lookup(&roles, address);

	return role ? *role : 0;
}

INLINE u32 role4(const u8 *at)
{
	struct address mapped = {{[10] = 0xff, [11] = 0xff, [12] = at[0], [13] = at[1], [14] = at[2], [15] = at[3]}};

	return role_of(&mapped);
}

INLINE u32 role6(const u8 *at)
{
	struct address address;

	__builtin_memcpy(address.bytes, at, sizeof(address.bytes));
	return role_of(&address);
}

// A switch floods what is for other stations, and each node behind it would forward it. So would each what is for all.
INLINE int is_for_us(const u8 *frame)
{
	const u32 only = 0;
	const struct station *own = map_lookup(&station, &only);

	return own && frame[0] == own->mac[0] && frame[1] == own->mac[1] && frame[2] == own->mac[2] &&
	       frame[3] == own->mac[3] && frame[4] == own->mac[4] && frame[5] == own->mac[5];
}

// No error comes with options; to look behind them would ask for more privilege (CAP_PERFMON) than the rest does.
INLINE int is_ours4(const u8 *ip, const u8 *end)
{
	const u8 *icmp = ip + IPV4;
	u32 role;

	if (ip + IPV4 > end)
		return 0;
	role = role4(ip + 16);
	if (role & ROLE_VIP)
		return 1;
	if (!(role & ROLE_TUNNEL_SOURCE))
		return 0;
	if (ip[9] == PROTOCOL_GRE)
		return (role4(ip + 12) & ROLE_NODE) != 0;
	return ip[0] == 0x45 && ip[9] == PROTOCOL_ICMP && icmp + ICMP + IPV4 <= end && icmp[0] == 3 && icmp[1] == 4 &&
	       icmp[ICMP + 9] == PROTOCOL_GRE;
}

// Of IPv6 a piece of a packet of ours may be quoted too, and only the first one tells what is in it.
INLINE int is_ours6(const u8 *ip, const u8 *end)
{
	const u8 *icmp = ip + IPV6;
	u32 role;

	if (ip + IPV6 > end)
		return 0;
	role = role6(ip + 24);
	if (role & ROLE_VIP)
		return 1;
	if (!(role & ROLE_TUNNEL_SOURCE))
		return 0;
	if (ip[6] == PROTOCOL_GRE)
		return (role6(ip + 8) & ROLE_NODE) != 0;
	if (ip[6] != PROTOCOL_ICMPV6 || icmp + ICMP + IPV6 + 1 > end || icmp[0] != 2)
		return 0;
	return icmp[ICMP + 6] == PROTOCOL_GRE || (icmp[ICMP + 6] == PROTOCOL_FRAGMENT && icmp[ICMP + IPV6] == PROTOCOL_GRE);
}

INLINE int is_ours(const u8 *frame, const u8 *end)
{
	const u8 *type = frame + ETHERNET - 2;

	if (frame + ETHERNET > end || !is_for_us(frame))
		return 0;
	for (int tags = 0; tags < 2; tags++)
		if (read16(type) == 0x8100 || read16(type) == 0x88a8) {
			type += TAG;
			if (type + 2 > end)
				return 0;
		}
	if (read16(type) == 0x0800)
		return is_ours4(type + 2, end);
	return read16(type) == 0x86dd && is_ours6(type + 2, end);
}

// Its name tells whose a program is that is found at an interface.
SECTION("xdp") int maglev_ours(struct xdp_md *frame)
{
	if (!is_ours((const u8 *)(long)frame->data, (const u8 *)(long)frame->data_end))
		return XDP_PASS;
	return redirect_map(&xsks_map, frame->rx_queue_index, XDP_PASS);
}
