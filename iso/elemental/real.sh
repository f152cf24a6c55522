#!/bin/sh
# The real CLI in place of the stand-in: its features, its initrd, and what Debian has in other places than SUSE. The
# tree then is one of upstream's: EFI only, and no agent in it.
#   real.sh TREE CLI
set -eu
# Mounts of its own: whatever becomes of this script, the tree can be removed.
[ -n "${UNSHARED:-}" ] || UNSHARED=1 exec unshare --mount --propagation private "$0" "$@"
here=$(cd "$(dirname "$0")" && pwd)
tree=$1 cli=$2
version=$(ls "$tree/usr/lib/modules")

install -m 755 "$cli" "$tree/usr/bin/elemental"
cp -r --remove-destination "$here/real/." "$tree/"
bootloader=$tree/usr/lib/elemental/bootloader
mkdir -p "$bootloader"
cp "$tree/usr/lib/shim/shimx64.efi.signed" "$bootloader/shimx64.efi"
cp "$tree/usr/lib/shim/mmx64.efi.signed" "$bootloader/mmx64.efi"
cp "$tree/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" "$bootloader/grubx64.efi"
ln -sf grub-editenv "$tree/usr/bin/grub2-editenv"

# The name of the kernel says its version. Another initrd here would be taken for its own.
mv "$tree/boot/vmlinuz" "$tree/boot/vmlinuz-$version"
rm -f "$tree"/boot/init*
# Devices that the initrd has seen already start nothing.
SYSTEMD_LOG_LEVEL=err chroot "$tree" systemctl --quiet add-wants multi-user.target 'run-os\x2dimages.mount' qemu-guest-agent.service
for directory in proc sys dev; do mount --bind "/$directory" "$tree/$directory"; done
chroot "$tree" elemental init --force elemental-rootfs elemental-sysroot grub-config grub-default-bootargs \
  cloud-config-essentials elemental-setup boot-assessment
# It ends well also where dracut failed.
[ -s "$tree/boot/elemental.initrd-$version" ] || { echo "elemental init made no initrd" >&2; exit 1; }

# A forced check races with the mounts of Debian's initrd, and SELinux is not there.
sed -i -e 's/ fsck.mode=force fsck.repair=yes//; s/ security=selinux//; s/ enforcing=0//' \
  -e 's/console=ttyS0 /console=ttyS0,115200 systemd.gpt_auto=0'"$EMULATED"' /' "$tree/etc/elemental/bootargs.cfg"
