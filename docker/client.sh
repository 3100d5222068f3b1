#!/usr/bin/env bash
# The client: requests to the vip, without end.
set -euo pipefail
# shellcheck source=docker/wire.sh
. /usr/local/lib/maglev/wire.sh

default_by "$ROUTER"
as_user nobody -- python3 client.py "$VIP" 80
