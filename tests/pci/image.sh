#!/usr/bin/env bash
# Makes a Debian 12 machine for QEMU to boot: DIRECTORY/disk.ext4, vmlinuz and initrd.img. As root, a minute.
#   tests/pci/image.sh DIRECTORY [MIRROR]
# It has Debian's packages that a node needs, and a guest agent; the product is mounted at /opt/maglev by 9p.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "tests/pci: only root can make a machine and its network" >&2; exit 1; }

directory=$1 mirror=${2:-http://deb.debian.org/debian}
packages=(
	linux-image-amd64 initramfs-tools zstd systemd-sysv udev kmod qemu-guest-agent
	iproute2 ethtool procps driverctl dpdk pciutils python3 libpcap0.8
	librte-eal23 librte-ethdev23 librte-hash23 librte-ip-frag23 librte-mbuf23 librte-mempool23 librte-net23 librte-rcu23
	librte-ring23 librte-mempool-ring23 librte-net-af-packet23 librte-net-null23 librte-net-pcap23 librte-net-tap23
	librte-net-e1000-23 librte-net-virtio23 librte-net-vmxnet3-23
)
log=$directory/image.log
mkdir -p "$directory"
root=$(mktemp -d "$directory/root.XXXXXX")
cleanup() {
	status=$?
	umount "$root/proc" 2> /dev/null || true
	rm -rf "$root"
	[ $status = 0 ] || { tail -n 20 "$log" >&2; echo "the image was not made; all of the above is in $log" >&2; }
}
trap cleanup EXIT

in_root() { env -i PATH=/usr/sbin:/usr/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$root" "$@"; }
make_image() {
	debootstrap --variant=minbase bookworm "$root" "$mirror"
	# The initrd has what finds the disk and nothing else: the machine is emulated, and unpacks it slowly.
	mkdir -p "$root/etc/initramfs-tools/conf.d"
	echo MODULES=list > "$root/etc/initramfs-tools/conf.d/small"
	printf '%s\n' virtio_pci virtio_blk ext4 > "$root/etc/initramfs-tools/modules"
	printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d" # nothing is started in here
	chmod +x "$root/usr/sbin/policy-rc.d"
	mount -t proc proc "$root/proc"
	in_root apt-get install -y -q --no-install-recommends "${packages[@]}"
	umount "$root/proc"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root/usr/sbin/policy-rc.d"
	echo node > "$root/etc/hostname"
	mkdir -p "$root/opt/maglev"
	echo 'maglev /opt/maglev 9p trans=virtio,ro,cache=loose,msize=262144 0 0' > "$root/etc/fstab"
	cp -L "$root/vmlinuz" "$root/initrd.img" "$directory/"
	rm -f "$directory/disk.ext4"
	truncate -s 2G "$directory/disk.new"
	mkfs.ext4 -q -F -d "$root" "$directory/disk.new"
	mv "$directory/disk.new" "$directory/disk.ext4" # last: it says that all is there
}
make_image > "$log" 2>&1
