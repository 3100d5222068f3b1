#include "fragment.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

static_assert(FRAGMENT_HELD < UINT16_MAX, "indices of packets that wait have 16 bits");

void fragment_table_init(struct fragment_table *t, uint16_t limit)
{
	memset(t, 0, sizeof(*t));
	t->limit = limit < FRAGMENT_HELD ? limit : FRAGMENT_HELD;
	for (uint16_t i = 0; i < FRAGMENT_HELD; i++)
		t->waiting[i].next = i + 1u < FRAGMENT_HELD ? (uint16_t)(i + 2) : 0;
	t->free = 1;
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

static bool expired(const struct fragment_entry *e, uint32_t now)
{
	return now - e->seen >= (e->known ? FRAGMENT_KNOWN_SECONDS : FRAGMENT_HELD_SECONDS);
}

// The entry of a datagram that may be used, or NULL. One with packets that wait may: they are taken out before it goes.
static struct fragment_entry *find(struct fragment_table *t, uint64_t datagram, uint32_t now)
{
	struct fragment_entry *bucket = bucket_of(t, datagram);

	for (int w = 0; w < FRAGMENT_WAYS; w++)
		if (bucket[w].datagram == datagram && (bucket[w].held != 0 || !expired(&bucket[w], now)))
			return &bucket[w];
	return NULL;
}

// A place for a datagram that has none: a free one, else the longest unused. NULL while packets wait in all of them.
static struct fragment_entry *make(struct fragment_table *t, uint64_t datagram, uint32_t now)
{
	struct fragment_entry *bucket = bucket_of(t, datagram), *chosen = NULL;

	for (int w = 0; w < FRAGMENT_WAYS; w++) {
		struct fragment_entry *e = &bucket[w];

		if (e->held != 0)
			continue;
		if (e->datagram == 0 || e->datagram == datagram) {
			chosen = e;
			break;
		}
		if (chosen == NULL || now - e->seen > now - chosen->seen)
			chosen = e;
	}
	if (chosen != NULL)
		*chosen = (struct fragment_entry){.datagram = datagram, .seen = now};
	return chosen;
}

void fragment_first(struct fragment_table *t, uint64_t datagram, const struct fragment_flow *flow, uint32_t now)
{
	struct fragment_entry *e = find(t, datagram, now);

	if (e == NULL)
		e = make(t, datagram, now);
	if (e == NULL)
		return; // its later fragments will not be matched: the table is full of others that wait
	e->known = true;
	e->flow = *flow;
	e->seen = now;
}

static bool hold(struct fragment_table *t, struct fragment_entry *e, void *packet)
{
	struct fragment_wait *place;
	uint16_t index = t->free;

	if (index == 0 || t->held >= t->limit || e->count >= FRAGMENT_HELD_EACH)
		return false;
	place = &t->waiting[index - 1];
	t->free = place->next;
	*place = (struct fragment_wait){.packet = packet, .next = e->held};
	e->held = index;
	e->count++;
	t->held++;
	return true;
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
	if (e == NULL && t->held < t->limit)
		e = make(t, datagram, now);
	return e != NULL && hold(t, e, packet) ? FRAGMENT_WAITS : FRAGMENT_NO_ROOM;
}

static void *take_from(struct fragment_table *t, struct fragment_entry *e)
{
	struct fragment_wait *place = &t->waiting[e->held - 1];
	uint16_t index = e->held;

	e->held = place->next;
	e->count--;
	t->held--;
	place->next = t->free;
	t->free = index;
	return place->packet;
}

void *fragment_take(struct fragment_table *t, uint64_t datagram)
{
	struct fragment_entry *bucket = bucket_of(t, datagram);

	for (int w = 0; w < FRAGMENT_WAYS; w++)
		if (bucket[w].datagram == datagram && bucket[w].held != 0)
			return take_from(t, &bucket[w]);
	return NULL;
}

void *fragment_take_late(struct fragment_table *t, uint32_t *at, uint32_t now, uint32_t seconds)
{
	for (; t->held > 0 && *at < FRAGMENT_BUCKETS * FRAGMENT_WAYS; (*at)++) {
		struct fragment_entry *e = &t->entries[*at / FRAGMENT_WAYS][*at % FRAGMENT_WAYS];

		if (e->held != 0 && now - e->seen >= seconds)
			return take_from(t, e);
	}
	return NULL;
}
