#!/bin/sh
# `make install` into an /opt/maglev that is DIRECTORY: this machine's own /opt stays as it is. As root.
#   tests/pci/product.sh DIRECTORY
set -eu
[ "$(id -u)" = 0 ] || { echo "tests/pci: only root can make a machine and its network" >&2; exit 1; }
mkdir -p "$1" /opt
directory=$(realpath "$1")
exec unshare --mount sh -euc '
	exec 3< "$1"
	mount -t tmpfs tmpfs /opt
	mkdir /opt/maglev
	mount --bind /proc/self/fd/3 /opt/maglev
	make -s install PREFIX=/opt/maglev' sh "$directory"
