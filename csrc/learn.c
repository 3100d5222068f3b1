#include "learn.h"

static bool sent_by_us(const struct backend *backend, const struct path_mtu_report *report)
{
	return memcmp(encap_source(&backend->outer), report->source, report->address_length) == 0;
}

static uint16_t port_mtu(const struct worker *w, const struct backend *backend)
{
	uint64_t hop = __atomic_load_n(&w->next_hops[backend->next_hop].word, __ATOMIC_RELAXED);

	return w->egress[hop >> 48 & (MAX_PORTS - 1)].mtu;
}

enum reason learn_path_mtu(const struct worker *w, const struct state *s, const struct packet_view *v)
{
	struct path_mtu_report report;
	const struct backend_address *at;
	enum reason reason = GO_ON;
	uint32_t count;

	if (s == NULL || !path_mtu_read(v, &report))
		return GO_ON;
	// One address may be two backends': one that left and has flows, and one of another name.
	for (count = state_backends_at(s, report.destination, report.address_length, &at); count > 0; count--, at++) {
		const struct backend *backend = &s->backends[at->index];

		if (!sent_by_us(backend, &report))
			continue;
		if (report.mtu < port_mtu(w, backend) &&
		    path_mtu_lower(&w->path_mtus[at->index], backend->generation, report.mtu, w->now))
			reason = REASON_path_mtu_lowered;
		else if (reason == GO_ON)
			reason = REASON_path_mtu_kept;
	}
	return reason;
}
