// Any sequence of fragments, first and later, in any time: each packet that the table took is given back exactly once,
// to the datagram that it is of, and no later fragment is told another datagram's flow.

#include "fuzz.h"

#include "fragment.h"

enum { DATAGRAMS = 32, PACKETS = 4096, LIMITS = 4 };

static const uint16_t LIMIT[LIMITS] = {0, 3, 70, FRAGMENT_HELD};

struct world {
	struct fragment_table table;
	uint32_t now;
	uint32_t given;               // packets so far
	uint8_t datagram[PACKETS];    // of each packet
	bool held[PACKETS];           // the table has it
	uint32_t count, limit;        // of those
	struct fragment_flow flow[DATAGRAMS];
	bool told[DATAGRAMS];         // a first fragment was seen, ever
};

// Several to a bucket: a place for each of a bucket's four, and more.
static uint64_t identity(uint32_t datagram)
{
	return 1 + (datagram % 2) + (uint64_t)(datagram / 2) * FRAGMENT_BUCKETS;
}

static void give_back(struct world *w, const void *packet, int datagram)
{
	uint32_t number = (uint32_t)((const uint8_t *)packet - w->datagram);

	must(number < w->given && w->held[number]);
	must(datagram < 0 || w->datagram[number] == datagram);
	w->held[number] = false;
	w->count--;
}

static void first(struct world *w, struct input *in, uint32_t datagram)
{
	struct fragment_flow flow = {(uint16_t)take(in, 2), (uint16_t)take(in, 1), (uint8_t)take(in, 1)};
	void *packet;

	fragment_first(&w->table, identity(datagram), &flow, w->now);
	w->flow[datagram] = flow;
	w->told[datagram] = true;
	while ((packet = fragment_take(&w->table, identity(datagram))) != NULL)
		give_back(w, packet, (int)datagram);
}

static void later(struct world *w, uint32_t datagram)
{
	uint32_t number = w->given++;
	struct fragment_flow flow;
	void *excess;

	w->datagram[number] = (uint8_t)datagram;
	switch (fragment_later(&w->table, identity(datagram), &w->datagram[number], w->now, &flow)) {
	case FRAGMENT_KNOWN:
		must(w->told[datagram]);
		must(flow.source_port == w->flow[datagram].source_port && flow.protocol == w->flow[datagram].protocol &&
		     flow.destination_port == w->flow[datagram].destination_port);
		break;
	case FRAGMENT_WAITS:
		w->held[number] = true;
		w->count++;
		excess = fragment_take_excess(&w->table);
		if (excess != NULL)
			give_back(w, excess, -1);
		break;
	case FRAGMENT_NO_ROOM:
		break;
	}
}

static void take_late(struct world *w, uint32_t seconds)
{
	void *packet;

	while ((packet = fragment_take_late(&w->table, w->now, seconds)) != NULL)
		give_back(w, packet, -1);
}

static void operate(struct world *w, struct input *in)
{
	uint8_t choice = (uint8_t)take(in, 1);
	uint32_t datagram = choice % DATAGRAMS;

	switch (choice / DATAGRAMS) {
	case 0:
	case 1:
		first(w, in, datagram);
		break;
	case 7:
		w->now += (uint32_t)take(in, 1) % 8;
		take_late(w, FRAGMENT_HELD_SECONDS);
		break;
	default:
		later(w, datagram);
	}
	must(w->table.held == w->count);
	must(w->count <= w->limit);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;
	struct input in = {data, size};

	memset(&w, 0, sizeof(w));
	w.limit = LIMIT[take(&in, 1) % LIMITS];
	fragment_table_init(&w.table, (uint16_t)w.limit);
	w.now = (uint32_t)take(&in, 4);
	while (in.left > 0 && w.given < PACKETS)
		operate(&w, &in);
	take_late(&w, 0);
	must(w.count == 0 && w.table.held == 0);
	return 0;
}
