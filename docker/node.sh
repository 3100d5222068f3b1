#!/usr/bin/env bash
# Entrypoint of the node's image: `maglev` with the words given. Before `maglev run` it does what Docker cannot be told:
#   MAGLEV_ROUTER=ADDRESS        the default route, which Docker points at the machine that the containers run on
#   MAGLEV_METRICS=ADDRESS:PORT  where Prometheus may come for what the node shows on 127.0.0.1:PORT only. Socat carries
#                                it inside the node's container: a container of its own would be left in a dead network
#                                namespace whenever the node is started anew
set -euo pipefail

if [ "${1:-}" = run ]; then
	for device in /sys/class/net/*; do
		# A forwarder refuses a port that merges packets.
		[ "${device##*/}" = lo ] || ethtool -K "${device##*/}" gro off lro off
	done
	[ -z "${MAGLEV_ROUTER:-}" ] || ip route replace default via "$MAGLEV_ROUTER"
	if [ -n "${MAGLEV_METRICS:-}" ]; then
		address=${MAGLEV_METRICS%:*} port=${MAGLEV_METRICS##*:}
		socat "TCP-LISTEN:$port,bind=$address,fork,reuseaddr,max-children=16" "TCP:127.0.0.1:$port" &
	fi
fi
exec maglev "$@"
