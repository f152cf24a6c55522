#!/bin/sh
# An ISO of the layout of `elemental build-iso`, and BIOS boot beside it: label COS_LIVE, an EFI partition appended
# behind the ISO's own, which is a volume of its own, and both in a GUID partition table.
#   burn.sh TREE GRUB_CFG ISO    TREE has /boot/x86_64/loader/{linux,initrd,rootfs.squashfs}
set -eu
tree=$1 menu=$2 iso=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/efi/EFI/BOOT" "$tree/EFI/BOOT" "$tree/boot/grub2"

# Both images look for the menu in the ISO, by its label.
cat >"$work/early.cfg" <<'END'
search --no-floppy --label --set=root COS_LIVE
set prefix=($root)/boot/grub2
configfile ($root)/EFI/BOOT/grub.cfg
END
modules='part_gpt part_msdos iso9660 fat search search_label normal configfile linux serial terminal all_video test echo'
grub-mkimage -O x86_64-efi -o "$work/efi/EFI/BOOT/BOOTX64.EFI" -c "$work/early.cfg" -p /EFI/BOOT $modules
grub-mkimage -O i386-pc-eltorito -o "$tree/boot/grub2/eltorito.img" -c "$work/early.cfg" -p /boot/grub2 biosdisk $modules
cp "$menu" "$tree/EFI/BOOT/grub.cfg"
cp "$menu" "$work/efi/EFI/BOOT/grub.cfg"
cp "$work/efi/EFI/BOOT/BOOTX64.EFI" "$tree/EFI/BOOT/"

# In steps of 4 MiB, as the toolkit has it.
size=$(($(du -sk "$work/efi" | cut -f1) / 4096 * 4 + 4))
truncate -s "${size}M" "$work/efi.img"
mkfs.vfat -n COS_GRUB "$work/efi.img"
mcopy -s -i "$work/efi.img" "$work/efi/EFI" ::

xorriso -volid COS_LIVE -padding 0 -outdev "$iso" -map "$tree" / -chmod 0755 / -- \
  -boot_image grub bin_path=/boot/grub2/eltorito.img -boot_image grub grub2_boot_info=on \
  -boot_image grub grub2_mbr=/usr/lib/grub/i386-pc/boot_hybrid.img -boot_image any next \
  -append_partition 2 0xef "$work/efi.img" -boot_image any cat_path=/boot/boot.catalog -boot_image any cat_hidden=on \
  -boot_image any efi_path=--interval:appended_partition_2:all:: -boot_image any platform_id=0xef \
  -boot_image any appended_part_as=gpt -boot_image any partition_offset=16
