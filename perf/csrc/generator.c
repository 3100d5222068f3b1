#include "generator.h"

#include <netinet/in.h>
#include <string.h>

#include "parse.h"
#include "wire.h"

enum { ETHERNET = 14, FOUR = 20, SIX = 40, TCP = 20, VIP_LOW = 0x0201 }; // lower half of the first IPv4 vip

// IMIX of 12 packets; lengths without the check sequence. The smallest IPv6 frame with TCP is longer than 60.
static const uint16_t mixed[2][12] = {
	{60, 60, 60, 60, 60, 60, 60, 590, 590, 590, 590, 1514},
	{74, 74, 74, 74, 74, 74, 74, 590, 590, 590, 590, 1514},
};

static uint64_t next_random(struct generator *g)
{
	uint64_t z = g->seed += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

// `random` scaled to [0, below).
static uint32_t scale(uint64_t random, uint32_t below)
{
	return (uint32_t)((random >> 32) * below >> 32);
}

void generator_vip(uint8_t version, uint32_t number, uint8_t *address)
{
	static const uint8_t four[4] = {192, 0, 2, 1}, six[16] = {0x20, 0x01, 0x0d, 0xb8};
	uint32_t length = version == 4 ? 4 : 16;

	memcpy(address, version == 4 ? four : six, length);
	write16(address + length - 2, version == 4 ? VIP_LOW + number : number + 1);
}

void generator_init(struct generator *g, const struct generator_config *config, uint64_t seed)
{
	uint8_t *ip = g->frame + ETHERNET, *tcp = ip + (config->version == 4 ? FOUR : SIX);

	*g = (struct generator){.config = *config, .seed = seed};
	memcpy(g->frame, (uint8_t[]){2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}, 12);
	write16(g->frame + 12, config->version == 4 ? 0x0800 : 0x86dd);
	if (config->version == 4) {
		ip[0] = 0x45;
		ip[6] = 0x40; // DF
		ip[8] = 64;
		ip[9] = IPPROTO_TCP;
		ip[12] = 10;
		generator_vip(4, 0, ip + 16);
		write16(ip + 18, 0);
		g->frame_sum = sum_words(ip, FOUR, 0);
	} else {
		ip[0] = 0x60;
		ip[6] = IPPROTO_TCP;
		ip[7] = 64;
		ip[8] = 0xfd;
		generator_vip(6, 0, ip + 24);
	}
	write16(tcp + 2, config->traffic == TRAFFIC_NOT_VIP ? 81 : 80);
	tcp[12] = 0x50;
}

void generator_open(struct generator *g, uint8_t tcp_flags)
{
	g->opening = tcp_flags;
	g->next = 0;
}

void generator_opened(struct generator *g)
{
	g->opening = 0;
	g->next = 0;
}

// The flow of the next packet, and its TCP flags.
static uint64_t choose(struct generator *g, uint8_t *flags)
{
	uint64_t random;

	*flags = g->opening != 0 ? g->opening : TCP_SYN;
	if (g->opening != 0 || g->config.traffic == TRAFFIC_NEW)
		return g->next++;
	random = next_random(g);
	if (g->config.traffic == TRAFFIC_FLOOD)
		return random & 0x3fffffffff;
	if (scale(random << 32, 1000) < g->config.new_permille)
		return 1ULL << 36 | g->next_new++;
	*flags = TCP_ACK;
	if (g->config.traffic == TRAFFIC_STALE) // a permutation: near numbers are not near in memory
		return g->next++ * 0x9e3779b1 & (g->config.flows - 1);
	return scale(random, g->config.flows);
}

void generator_lay(struct generator *g, struct rte_mbuf *m)
{
	uint8_t flags, *frame, *ip, *tcp;
	uint64_t flow = choose(g, &flags);
	uint32_t bytes = g->config.bytes, vip = scale(flow * 0x9e3779b97f4a7c15ULL, g->config.vips);

	if (bytes == MIXED_SIZES)
		bytes = mixed[g->config.version == 6][scale(next_random(g), 12)];
	rte_pktmbuf_reset(m);
	m->data_len = (uint16_t)bytes;
	m->pkt_len = bytes;
	frame = rte_pktmbuf_mtod(m, uint8_t *);
	ip = frame + ETHERNET;
	memcpy(frame, g->frame, ETHERNET + SIX + TCP);
	if (g->config.version == 4) {
		tcp = ip + FOUR;
		write16(ip + 2, bytes - ETHERNET);
		write16(ip + 14, (uint32_t)(flow >> 14));
		ip[13] = (uint8_t)(flow >> 30);
		write16(ip + 18, VIP_LOW + vip);
		write16(ip + 10, (uint16_t)~fold(g->frame_sum + bytes - ETHERNET + (uint8_t)(flow >> 30) +
						 (uint16_t)(flow >> 14) + VIP_LOW + vip));
	} else {
		tcp = ip + SIX;
		write16(ip + 4, bytes - ETHERNET - SIX);
		write16(ip + 22, (uint32_t)(flow >> 14));
		ip[21] = (uint8_t)(flow >> 30);
		write16(ip + 38, vip + 1);
	}
	write16(tcp, 1024 + (uint32_t)(flow & 0x3fff));
	tcp[13] = flags;
}
