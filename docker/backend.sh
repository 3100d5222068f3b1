#!/usr/bin/env bash
# A backend: opens the tunnel, has the vip on its loopback, and answers the client directly.
# The tunnel is opened in user space, because GRE is a module that the machine's kernel may lack.
set -euo pipefail
# shellcheck source=docker/wire.sh
. /usr/local/lib/maglev/wire.sh

default_by "$ROUTER"
ip address replace "$VIP/32" dev lo
ip link show decap0 >/dev/null 2>&1 || ip tuntap add decap0 mode tun
ip link set decap0 up

trap 'kill $(jobs -p)' TERM
python3 -m lab.decap decap0 &
(as_user www-data -- nginx -e stderr -c /etc/maglev/nginx.conf) &
wait -n # one without the other is no backend
