// Any packet as a router's report about the way to a backend: what is read of it, and what is remembered.

#include "fuzz.h"

#include "path_mtu.h"

static void check_report(const struct packet_view *v, const struct path_mtu_report *r)
{
	const uint8_t *end = v->ip + (v->ip_length < v->available ? v->ip_length : v->available);
	uint16_t least = r->address_length == 4 ? PATH_MTU_LEAST4 : PATH_MTU_LEAST6;

	must(r->address_length == view_address_length(v));
	must(r->source > v->ip + v->l4 && r->source + r->address_length <= end);
	must(r->destination > v->ip + v->l4 && r->destination + r->address_length <= end);
	must(memcmp(r->source, view_destination(v), r->address_length) == 0);
	must(r->mtu >= least);
}

static void check_memory(struct input *in)
{
	uint16_t generation = 1 + (uint16_t)take(in, 1), mtu = (uint16_t)take(in, 2), other = (uint16_t)take(in, 2);
	uint32_t now = (uint32_t)take(in, 4), pause = (uint32_t)take(in, 2);
	uint64_t word = 0;

	must(path_mtu_get(&word, generation, now) == 0);
	if (mtu == 0 || other == 0)
		return;
	must(path_mtu_lower(&word, generation, mtu, now));
	must(path_mtu_get(&word, generation, now) == mtu);
	must(path_mtu_get(&word, generation + 1, now) == 0);
	must(path_mtu_get(&word, generation, now + pause) == (pause < PATH_MTU_SECONDS ? mtu : 0));
	must(path_mtu_lower(&word, generation, other, now) == (other < mtu));
	must(path_mtu_get(&word, generation, now) == (other < mtu ? other : mtu));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct path_mtu_report report;
	struct packet_view v;
	struct frame f;

	check_memory(&in);
	f = take_frame(&in);
	if (parse_ip(f.bytes, f.available, f.length, &v) == PARSE_OK && parse_transport(&v) == PARSE_OK &&
	    path_mtu_read(&v, &report))
		check_report(&v, &report);
	free(f.bytes);
	return 0;
}
