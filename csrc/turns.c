#include "turns.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "quotas.h"

enum {
	TOGETHER = 16, // turns of a member that are put in order at once, so that its loop is worth its beginning
	DIGIT = 256,
};

// A member that plays. It has its k-th turn in the first round r with r * weight >= k * largest.
struct player {
	uint64_t due;   // round of its next turn, from 1 on
	uint32_t gap;   // rounds from turn to turn, or one more
	uint32_t rest;  // what the gap leaves of the largest weight
	uint32_t slack; // due * weight - turn * largest, below the weight
	uint32_t weight;
	uint32_t left;  // turns until its quota is reached
	uint16_t position;
};

struct game {
	struct player *players;
	uint32_t count;
	uint32_t size;
	uint64_t total, largest; // of the weights
};

// A turn of the last rounds, where members reach their quotas.
struct late_turn {
	uint64_t due;
	uint16_t position;
};

static void advance(struct player *p)
{
	bool longer = p->slack < p->rest;

	p->due += p->gap + longer;
	p->slack += (longer ? p->weight : 0) - p->rest;
}

static bool equal_weights(const struct maglev_member *members, uint32_t count)
{
	uint32_t weight = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (weight == 0)
			weight = members[i].weight;
		if (members[i].weight != 0 && members[i].weight != weight)
			return false;
	}
	return true;
}

// One round over and over: who is early in it has the turn more that is left at the end, and so the larger quota.
static void order_of_equals(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *order)
{
	uint32_t round = 0;

	for (uint32_t i = 0; i < count && round < size; i++)
		if (members[i].weight != 0)
			order[round++] = (uint16_t)i;
	for (uint32_t done = round; done < size; done *= 2) // as many rounds again as there are
		memcpy(order + done, order, (done < size - done ? done : size - done) * sizeof(*order));
}

// The turns of the rounds [first, end), none beyond a quota, to `order`: counted by round, then each to its place.
// Returns how many. `places` has room for a number per round.
static uint32_t order_rounds(struct game *g, uint64_t first, uint64_t end, uint32_t *places, uint16_t *order)
{
	uint32_t turns = 0;

	memset(places, 0, (end - first) * sizeof(*places));
	for (uint32_t i = 0; i < g->count; i++)
		for (struct player p = g->players[i]; p.due < end; advance(&p))
			places[p.due - first]++;
	for (uint64_t round = 0; round < end - first; round++) {
		uint32_t of_round = places[round];

		places[round] = turns;
		turns += of_round;
	}
	for (uint32_t i = 0; i < g->count; i++) {
		struct player p = g->players[i];

		for (; p.due < end; advance(&p), p.left--)
			order[places[p.due - first]++] = p.position;
		g->players[i] = p;
	}
	return turns;
}

// Stable, by the round, a digit at a time and only those that the last round has.
static struct late_turn *sort_late(struct late_turn *turns, struct late_turn *spare, uint32_t count, uint64_t last)
{
	for (uint32_t shift = 0; last != 0; last /= DIGIT, shift += 8) {
		uint32_t places[DIGIT + 1] = {0};
		struct late_turn *sorted = spare;

		for (uint32_t i = 0; i < count; i++)
			places[(turns[i].due >> shift) % DIGIT + 1]++;
		for (uint32_t digit = 0; digit < DIGIT; digit++)
			places[digit + 1] += places[digit];
		for (uint32_t i = 0; i < count; i++)
			sorted[places[(turns[i].due >> shift) % DIGIT]++] = turns[i];
		spare = turns;
		turns = sorted;
	}
	return turns;
}

// What is left once nobody is more than two turns from the quota: few turns, perhaps millions of rounds apart.
static int order_late(struct game *g, uint32_t turns, uint16_t *order)
{
	struct late_turn *memory = malloc((2 * (size_t)turns + 1) * sizeof(*memory)), *sorted;
	uint64_t last = 0;
	uint32_t count = 0;

	if (memory == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->count; i++)
		for (struct player *p = &g->players[i]; p->left > 0; advance(p), p->left--) {
			memory[count++] = (struct late_turn){p->due, p->position};
			last = p->due > last ? p->due : last;
		}
	sorted = sort_late(memory, memory + turns, turns, last);
	for (uint32_t i = 0; i < turns; i++)
		order[i] = sorted[i].position;
	free(memory);
	return 0;
}

// In the first size * largest / total rounds credit alone keeps everybody within the quota.
static int order_by_weight(struct game *g, uint16_t *order)
{
	uint64_t end = g->size * g->largest / g->total + 1, turns = (uint64_t)TOGETHER * g->count;
	uint64_t together = turns * g->largest / g->total + 1;
	uint32_t *places, done = 0;

	together = together < end ? together : end;
	places = malloc(together * sizeof(*places));
	if (places == NULL)
		return -ENOMEM;
	for (uint64_t first = 1; first < end; first += together)
		done += order_rounds(g, first, first + together < end ? first + together : end, places, order + done);
	free(places);
	return order_late(g, g->size - done, order + done);
}

static int begin(struct game *g, const struct maglev_member *members, uint32_t count)
{
	uint32_t *quotas = malloc(count * sizeof(*quotas));
	int rc = quotas != NULL ? quotas_deal(members, count, g->size, quotas) : -ENOMEM;

	for (uint32_t i = 0; i < count; i++) {
		g->total += members[i].weight;
		g->largest = members[i].weight > g->largest ? members[i].weight : g->largest;
	}
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		uint32_t weight = members[i].weight;
		struct player p = {.weight = weight, .position = (uint16_t)i, .left = quotas[i]};

		if (weight == 0)
			continue;
		p.gap = (uint32_t)(g->largest / weight);
		p.rest = (uint32_t)(g->largest % weight);
		advance(&p);
		g->players[g->count++] = p;
	}
	free(quotas);
	return rc;
}

int turns_order(const struct maglev_member *members, uint32_t count, uint32_t size, uint16_t *order)
{
	struct game g = {.size = size};
	int rc = -ENOMEM;

	if (equal_weights(members, count)) {
		order_of_equals(members, count, size, order);
		return 0;
	}
	g.players = malloc(count * sizeof(*g.players));
	if (g.players != NULL)
		rc = begin(&g, members, count);
	if (rc == 0)
		rc = order_by_weight(&g, order);
	free(g.players);
	return rc;
}
