#!/bin/sh
# Makes a tree one that boots in User Mode Linux: its kernel is the program linux.uml, with modules of that. What UML
# lacks and a node needs is in root/.
#   lay.sh DIRECTORY      a tree of layer.sh
#   UML                   what package.sh prints
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$1
rm -rf "$tree/usr/lib/modules" "$tree/boot"
mkdir -p "$tree/boot" "$tree/usr/lib/modules"
cp -r "$UML/lib/uml/modules/." "$tree/usr/lib/modules/"
version=$(ls "$tree/usr/lib/modules")
chroot "$tree" depmod "$version"
install -m 755 "$UML/bin/linux.uml" "$tree/boot/vmlinuz"
# kubeadm's preflight reads it.
zcat "$UML/share/doc/user-mode-linux/config.gz" >"$tree/boot/config-$version"
cp -r --remove-destination "$here/root/." "$tree/"
for unit in lab-firmware.service lab-guest-agent.service; do SYSTEMD_LOG_LEVEL=err chroot "$tree" systemctl --quiet enable "$unit"; done
