#include "path_mtu.h"

#include <netinet/in.h>
#include <string.h>

#include "icmp.h"
#include "wire.h"

enum {
	IPV4_HEADER = 20,
	IPV6_HEADER = 40,
	FRAGMENT_HEADER = 8,
	GRE_HEADER = 4,
};

// As encap.h writes it: no options, version 0, IPv4 or IPv6 within.
static bool is_our_gre(const uint8_t *gre)
{
	return read16(gre) == 0 && (read16(gre + 2) == 0x0800 || read16(gre + 2) == 0x86dd);
}

// A packet without DF is fragmented on its way and quoted by nobody, so no quote is of a fragment.
static bool quotes_ours4(const uint8_t *quote, uint32_t bytes)
{
	return bytes >= IPV4_HEADER + GRE_HEADER && quote[0] == 0x45 && quote[9] == IPPROTO_GRE &&
	       (read16(quote + 6) & 0x3fff) == 0 && is_our_gre(quote + IPV4_HEADER);
}

// IPv6 routers fragment nothing, so a piece of ours may be quoted; only the first has the GRE header.
static bool quotes_ours6(const uint8_t *quote, uint32_t bytes)
{
	const uint8_t *fragment = quote + IPV6_HEADER;

	if (bytes < IPV6_HEADER + GRE_HEADER || quote[0] >> 4 != 6)
		return false;
	if (quote[6] == IPPROTO_GRE)
		return is_our_gre(quote + IPV6_HEADER);
	if (quote[6] != IPPROTO_FRAGMENT || bytes < IPV6_HEADER + FRAGMENT_HEADER || fragment[0] != IPPROTO_GRE)
		return false;
	if ((read16(fragment + 2) & 0xfff8) != 0)
		return true;
	return bytes >= IPV6_HEADER + FRAGMENT_HEADER + GRE_HEADER && is_our_gre(fragment + FRAGMENT_HEADER);
}

// A router that does not know RFC 1191 says 0: then the next smaller one of the MTUs that networks have (its 7.1).
static uint16_t plateau_below(uint32_t length)
{
	static const uint16_t plateaus[] = {32000, 17914, 8166, 4352, 2002, 1492, 1006};

	for (size_t i = 0; i < sizeof(plateaus) / sizeof(plateaus[0]); i++)
		if (plateaus[i] < length)
			return plateaus[i];
	return PATH_MTU_LEAST4;
}

static uint16_t mtu4(const uint8_t *icmp)
{
	uint16_t mtu = read16(icmp + 6);

	if (mtu == 0)
		return plateau_below(read16(icmp + ICMP_HEADER + 2));
	return mtu > PATH_MTU_LEAST4 ? mtu : PATH_MTU_LEAST4;
}

// RFC 8201 4: a report of less than every link must carry is discarded.
static uint16_t mtu6(const uint8_t *icmp)
{
	return read16(icmp + 4) != 0 || read16(icmp + 6) < PATH_MTU_LEAST6 ? UINT16_MAX : read16(icmp + 6);
}

bool path_mtu_read(const struct packet_view *v, struct path_mtu_report *report)
{
	const uint8_t *icmp, *quote;
	uint32_t bytes;
	bool ours;

	if (!icmp_is(v) || !icmp_is_too_big(v))
		return false;
	icmp = icmp_message(v, &bytes);
	quote = icmp + ICMP_HEADER;
	bytes -= ICMP_HEADER;
	ours = v->version == 4 ? quotes_ours4(quote, bytes) : quotes_ours6(quote, bytes);
	report->address_length = view_address_length(v);
	report->source = quote + (v->version == 4 ? 12 : 8);
	report->destination = report->source + report->address_length;
	if (!ours || memcmp(report->source, view_destination(v), report->address_length) != 0 || !icmp_checksum_ok(v))
		return false;
	report->mtu = v->version == 4 ? mtu4(icmp) : mtu6(icmp);
	return true;
}

bool path_mtu_lower(uint64_t *word, uint16_t generation, uint16_t mtu, uint32_t now)
{
	uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
	uint64_t after = (uint64_t)mtu << 48 | (uint64_t)generation << 32 | (uint32_t)(now + PATH_MTU_SECONDS);

	do {
		uint16_t known = path_mtu_of(before, generation, now);

		if (known != 0 && known <= mtu)
			return false;
	} while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}
