#!/bin/sh
# The base tree: trixie's user space and bookworm's kernel, and nothing of ours, so that it is built once and kept.
#   tree.sh DIRECTORY LIST...      the directory is absent before, the lists name packages; root needed
# KERNEL is cloud, or generic with the drivers of real servers; FIRMWARE names packages of non-free-firmware.
set -eu
tree=$1
shift

mirror=$("$(dirname "$0")/mirror.sh")
packages=$(grep -hv '^#' "$@" | paste -sd, -)
components=main
for package in ${FIRMWARE:-}; do packages=$packages,$package components='main non-free-firmware'; done
case ${KERNEL:-cloud} in
  cloud) flavour=cloud-amd64 ;;
  generic) flavour=amd64 ;;
  *) echo "iso: KERNEL is $KERNEL; it is cloud or generic" >&2; exit 1 ;;
esac

# Bookworm is there for its kernel alone: priority 100 never wins over trixie.
pin='mkdir -p "$1/etc/apt/preferences.d" && printf "Package: *\nPin: release n=bookworm\nPin-Priority: 100\n" > "$1/etc/apt/preferences.d/bookworm"'

# QEMU 7.2's emulation crashes trixie's 6.12 as soon as large Go programs run; 6.1 holds. Unpacked, not installed:
# the package would drag in an initramfs generator, and our initramfs is our own.
# (/boot/config-*: kubeadm's preflight reads it. dpkg-deb -x straight into the tree would replace the link /lib by a directory.)
kernel='cd "$1/tmp" && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" &&
  name=$(apt-cache search --names-only "^linux-image-6[.]1[.]0-[0-9]+-'$flavour'$" | cut -d" " -f1 | sort -V | tail -n 1) &&
  apt-get -q -o APT::Sandbox::User=root download "$name" && dpkg-deb -x ./linux-image-*.deb kernel &&
  mv kernel/lib/modules "$1/usr/lib/modules" && mv kernel/boot/vmlinuz-* "$1/boot/vmlinuz" &&
  mv kernel/boot/config-* "$1/boot/" && rm -r kernel linux-image-*.deb &&
  chroot "$1" depmod "$(ls "$1/usr/lib/modules")"'

# The builder's resolv.conf would make every look-up in a guest wait for its time-out.
strip='cd "$1" && rm -rf etc/hostname etc/resolv.conf etc/apt/preferences.d/bookworm var/lib/apt/lists/* var/cache/apt/* var/log/* \
  usr/share/i18n usr/lib/udev/hwdb.bin usr/lib/udev/hwdb.d && ln -s ../run/systemd/resolve/stub-resolv.conf etc/resolv.conf && : > etc/machine-id'

mmdebstrap --mode=root --variant=minbase --format=directory --include="$packages" \
  --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
  --setup-hook="$pin" --customize-hook="$kernel" --customize-hook="$strip" \
  trixie "$tree" "deb $mirror trixie $components" "deb $mirror bookworm main"
