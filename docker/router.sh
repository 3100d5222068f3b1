#!/usr/bin/env bash
# The router: BIRD hears the vip from the nodes, the kernel spreads its packets over them.
set -euo pipefail
# shellcheck source=docker/wire.sh
. /usr/local/lib/maglev/wire.sh

for device in /sys/class/net/*; do
	device=${device##*/}
	[ "$device" != lo ] || continue
	# A forwarder sees packets before a kernel would finish their checksums or cut them to the MTU.
	ethtool -K "$device" tx off tso off gso off gro off >/dev/null
	# The answers come from the vip, whose route is elsewhere. Only the machine's own default can have set this one.
	if [ "$(cat "/proc/sys/net/ipv4/conf/$device/rp_filter")" = 1 ]; then
		echo "$device drops the backends' answers; on the machine: sysctl -w net.ipv4.conf.default.rp_filter=2" >&2
		exit 1
	fi
done
as_user bird net_admin net_bind_service net_raw -- bird -f -c /etc/maglev/bird.conf -s /run/bird/bird.ctl
