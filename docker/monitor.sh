#!/usr/bin/env bash
# Prometheus, which reads the metrics of both nodes through the router.
set -euo pipefail
# shellcheck source=docker/wire.sh
. /usr/local/lib/maglev/wire.sh

default_by "$ROUTER"
as_user prometheus -- prometheus --config.file=/etc/maglev/prometheus.yml --storage.tsdb.path=/var/lib/prometheus \
	--storage.tsdb.retention.time=1d --log.level=warn
