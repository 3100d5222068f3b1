#include "fragment.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

static_assert(FRAGMENT_HELD + 2 <= UINT16_MAX && FRAGMENT_BUCKETS * FRAGMENT_WAYS <= UINT16_MAX + 1,
	      "places and entries are told in 16 bits");
static_assert(FRAGMENT_HELD_EACH <= UINT8_MAX, "an entry counts its packets in 8 bits");

void fragment_table_init(struct fragment_table *t, uint16_t limit)
{
	memset(t, 0, sizeof(*t));
	t->places = (uint16_t)(limit < FRAGMENT_HELD ? limit + 2 : FRAGMENT_HELD + 2);
}

// The protocol is part of a datagram's identity in IPv4. In IPv6 it is not, and only the first fragment tells it.
static uint64_t hash(const struct hash_key *key, const struct packet_view *v, uint32_t id)
{
	struct flow_key flow;
	uint8_t protocol = v->version == 4 ? v->protocol : IPPROTO_FRAGMENT;

	flow_key_fill(&flow, view_source(v), view_destination(v), view_address_length(v), (uint16_t)(id >> 16),
		      (uint16_t)id, protocol);
	return flow_hash(key, &flow);
}

uint64_t fragment_datagram(const struct hash_key *key, const struct packet_view *v)
{
	uint64_t datagram = hash(key, v, v->fragment_id);

	return datagram != 0 ? datagram : 1;
}

uint64_t fragment_node_hash(const struct hash_key *key, const struct packet_view *v)
{
	return hash(key, v, 0);
}

static struct fragment_entry *bucket_of(struct fragment_table *t, uint64_t datagram)
{
	return t->entries[datagram % FRAGMENT_BUCKETS];
}

// The entry of a datagram that may be used, or NULL. One where packets wait may: they are taken out before it goes.
static struct fragment_entry *find(struct fragment_table *t, uint64_t datagram, uint32_t now)
{
	struct fragment_entry *bucket = bucket_of(t, datagram);

	for (int w = 0; w < FRAGMENT_WAYS; w++)
		if (bucket[w].datagram == datagram &&
		    (bucket[w].count != 0 || now - bucket[w].seen < FRAGMENT_KNOWN_SECONDS))
			return &bucket[w];
	return NULL;
}

// An entry for a datagram that has none: a free one, else the longest unused, but none where packets wait; may_wait()
// has left one. The search begins anywhere: of entries used in the same second not the newest must be the one to go.
static struct fragment_entry *make(struct fragment_table *t, uint64_t datagram, uint32_t now)
{
	struct fragment_entry *bucket = bucket_of(t, datagram), *chosen = NULL;

	for (uint32_t i = 0; i < FRAGMENT_WAYS; i++) {
		struct fragment_entry *e = &bucket[((datagram >> 32) + i) % FRAGMENT_WAYS];

		if (e->count != 0)
			continue;
		if (e->datagram == 0 || e->datagram == datagram) {
			chosen = e;
			break;
		}
		if (chosen == NULL || now - e->seen > now - chosen->seen)
			chosen = e;
	}
	*chosen = (struct fragment_entry){.datagram = datagram, .seen = now};
	return chosen;
}

void fragment_first(struct fragment_table *t, uint64_t datagram, const struct fragment_flow *flow, uint32_t now)
{
	struct fragment_entry *e = find(t, datagram, now);

	if (e == NULL)
		e = make(t, datagram, now);
	e->known = true;
	e->flow = *flow;
	e->seen = now;
}

static uint16_t place_behind(const struct fragment_table *t, uint16_t place)
{
	return (uint16_t)(place + 1 < t->places ? place + 1 : 0);
}

static bool full(const struct fragment_table *t)
{
	return place_behind(t, t->free) == t->first;
}

// Whether packets of one more datagram may wait in its bucket: an entry must be left for first fragments.
static bool may_wait(struct fragment_table *t, uint64_t datagram)
{
	const struct fragment_entry *bucket = bucket_of(t, datagram);
	int waiting = 0;

	for (int w = 0; w < FRAGMENT_WAYS; w++)
		waiting += bucket[w].count != 0;
	return waiting < FRAGMENT_WAYS - 1;
}

static void hold(struct fragment_table *t, struct fragment_entry *e, void *packet, uint32_t now)
{
	uint16_t entry = (uint16_t)(e - &t->entries[0][0]);

	t->queue[t->free] = (struct fragment_place){.packet = packet, .since = now, .entry = entry};
	if (e->count == 0)
		e->oldest = t->free;
	else
		t->queue[e->newest].next = t->free;
	e->newest = t->free;
	e->count++;
	t->held++;
	t->free = place_behind(t, t->free);
}

enum fragment_verdict fragment_later(struct fragment_table *t, uint64_t datagram, void *packet, uint32_t now,
				     struct fragment_flow *flow)
{
	struct fragment_entry *e = find(t, datagram, now);

	if (e != NULL && e->known) {
		e->seen = now;
		*flow = e->flow;
		return FRAGMENT_KNOWN;
	}
	if (full(t) || (e == NULL ? !may_wait(t, datagram) : e->count >= FRAGMENT_HELD_EACH))
		return FRAGMENT_NO_ROOM;
	hold(t, e != NULL ? e : make(t, datagram, now), packet, now);
	return FRAGMENT_WAITS;
}

static void *take_from(struct fragment_table *t, struct fragment_entry *e)
{
	struct fragment_place *place = &t->queue[e->oldest];
	void *packet = place->packet;

	place->packet = NULL;
	e->oldest = place->next;
	e->count--;
	if (e->count == 0 && !e->known)
		e->datagram = 0;
	t->held--;
	while (t->first != t->free && t->queue[t->first].packet == NULL)
		t->first = place_behind(t, t->first);
	return packet;
}

// The queue is in order, and so is each entry's part of it.
static void *take_first(struct fragment_table *t)
{
	uint16_t entry = t->queue[t->first].entry;

	return take_from(t, &t->entries[entry / FRAGMENT_WAYS][entry % FRAGMENT_WAYS]);
}

void *fragment_take_excess(struct fragment_table *t)
{
	return t->held > 0 && full(t) ? take_first(t) : NULL;
}

void *fragment_take(struct fragment_table *t, uint64_t datagram)
{
	struct fragment_entry *bucket = bucket_of(t, datagram);

	for (int w = 0; w < FRAGMENT_WAYS; w++)
		if (bucket[w].datagram == datagram && bucket[w].count != 0)
			return take_from(t, &bucket[w]);
	return NULL;
}

void *fragment_take_late(struct fragment_table *t, uint32_t now, uint32_t seconds)
{
	return t->held > 0 && now - t->queue[t->first].since >= seconds ? take_first(t) : NULL;
}
