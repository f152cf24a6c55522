#!/bin/sh
# The real CLI in place of the stand-in, as far as it was tried by hand (README.md): EFI only, Debian's names bent to SUSE's.
#   real.sh TREE CLI
set -eu
tree=$1 cli=$2
packages='dracut dracut-live dracut-network xorriso mtools shim-signed grub-efi-amd64-signed lvm2 rsync acl attr parted dmidecode eject'
for directory in proc sys dev; do mount --bind "/$directory" "$tree/$directory"; done
trap 'for directory in proc sys dev; do umount "$tree/$directory"; done' EXIT
# The look-ups of apt need a resolver; the guest must not inherit it.
cp --remove-destination /etc/resolv.conf "$tree/etc/resolv.conf"
chroot "$tree" sh -euc "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install $packages && apt-get clean"
install -m 755 "$cli" "$tree/usr/bin/elemental"
mkdir -p "$tree/usr/lib/elemental/bootloader" "$tree/oem" "$tree/system"
cp "$tree"/usr/lib/shim/shimx64.efi.signed "$tree/usr/lib/elemental/bootloader/shimx64.efi"
cp "$tree"/usr/lib/shim/mmx64.efi.signed "$tree/usr/lib/elemental/bootloader/mmx64.efi"
cp "$tree"/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed "$tree/usr/lib/elemental/bootloader/grubx64.efi"
ln -sf grub-editenv "$tree/usr/bin/grub2-editenv"
chroot "$tree" elemental init --force elemental-rootfs elemental-sysroot grub-config grub-default-bootargs dracut-config \
  cloud-config-essentials cloud-config-defaults elemental-setup boot-assessment
rm -rf "$tree/etc/resolv.conf" "$tree"/var/lib/apt/lists/*
: >"$tree/etc/resolv.conf"
