#!/usr/bin/env bash
# Makes the image IMAGE of Debian 12 by debootstrap, for machines that reach Debian's mirror but no registry.
#   docker/base-image.sh IMAGE [MIRROR]
# The image trusts the certificate authorities that were added to this machine: who needs one to reach a package
# index here needs it in a container, too.
set -euo pipefail

image=$1 mirror=${2:-http://deb.debian.org/debian}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
rm -f "$root.log"
cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar -C "$root" -c . | docker import --change 'CMD ["bash"]' - "$image"
