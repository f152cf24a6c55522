#!/bin/sh
# Lays the files of this project over a copy of the base tree: configuration, binaries, units, the initramfs. Seconds, not minutes.
#   layer.sh BASE DIRECTORY    with AGENT, KUBERNETES_BIN, CONTAINERD_BIN, NETWORK, perhaps ELEMENTAL in the environment
set -eu
here=$(cd "$(dirname "$0")" && pwd)
base=$1 tree=$2

# Hard links: nothing is copied, and every file below is replaced, never written in place. (The real CLI does.)
if [ -n "${ELEMENTAL:-}" ]; then cp -a "$base" "$tree"; else cp -al "$base" "$tree"; fi
cp -r --remove-destination "$here/root/." "$tree/"
install -m 755 "$KUBERNETES_BIN/kubelet" "$KUBERNETES_BIN/kubeadm" "$tree/usr/bin/"
install -m 755 "$CONTAINERD_BIN/containerd" "$CONTAINERD_BIN/containerd-shim-runc-v2" "$CONTAINERD_BIN/ctr" "$tree/usr/bin/"
mkdir -p "$tree/opt/cni" "$tree/oem" "$tree/system" "$tree/etc/kubernetes" "$tree/var/log/journal"
mkdir -p "$tree/var/lib/cloud" "$tree/var/lib/kubelet" "$tree/var/lib/containerd" "$tree/var/lib/etcd"
ln -sfn ../../usr/lib/cni "$tree/opt/cni/bin"

enable() { SYSTEMD_LOG_LEVEL=err chroot "$tree" systemctl --quiet enable "$@"; }
case $NETWORK in
  networkd) enable systemd-networkd.service ;;
  networkmanager)
    enable NetworkManager.service
    sed -i 's/renderers: .*/renderers: [network-manager]/; s/activators: .*/activators: [network-manager]/' "$tree/etc/cloud/cloud.cfg"
    ;;
esac
enable systemd-resolved.service containerd.service kubelet.service 'run-os\x2dimages.mount'
mask() { SYSTEMD_LOG_LEVEL=err chroot "$tree" systemctl --quiet mask "$@"; }
# Nothing that wakes up by itself: emulated seconds are dear.
mask apt-daily.timer apt-daily-upgrade.timer \
  dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service systemd-hwdb-update.service ldconfig.service \
  modprobe@drm.service modprobe@fuse.service modprobe@configfs.service modprobe@efi_pstore.service systemd-pstore.service \
  sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount

# With the real CLI the images are as upstream's: no agent in them, it comes with the seed.
if [ -n "${ELEMENTAL:-}" ]; then exec "$here/elemental/real.sh" "$tree" "$ELEMENTAL"; fi
cp -r --remove-destination "$here/elemental/root/." "$tree/"
install -m 755 "$here/elemental/elemental" "$tree/usr/bin/elemental"
sed "s/ @EMULATED@/$EMULATED/" "$here/elemental/grub.cfg" >"$tree/usr/lib/elemental/grub.cfg"
install -D -m 755 "$AGENT" "$tree/usr/bin/baremetal-agent"
install -m 644 "$here"/../systemd/*.service "$here"/../systemd/*.mount "$tree/usr/lib/systemd/system/"
for unit in kubelet containerd; do
  install -D -m 644 "$here/../systemd/baremetal-agent-gate.conf" "$tree/usr/lib/systemd/system/$unit.service.d/20-baremetal-agent.conf"
done
install -d "$tree/usr/libexec/elemental-checker"
ln -sfn ../../bin/baremetal-agent "$tree/usr/libexec/elemental-checker/baremetal-agent"
install -d -m 700 "$tree/var/lib/baremetal-agent"
# The page instead of a login.
mask getty@tty1.service serial-getty@ttyS0.service
enable baremetal-agent-boot.service baremetal-agent-register.service baremetal-agent.service \
  baremetal-agent-alive.service baremetal-agent-console@tty1.service baremetal-agent-console@ttyS0.service elemental-boot-assessment.service
[ "$KERNEL" != uml ] || "$here/uml/lay.sh" "$tree"

# The initramfs: busybox, our init, and the modules in the order insmod needs them: those of disks and of media, with
# the virtual ones of a BMC, of emulated hosts and of real ones, as far as the kernel has them.
drivers='virtio_pci virtio_blk virtio_scsi sd_mod sr_mod ata_piix isofs squashfs overlay loop ext4
  ahci nvme vmd megaraid_sas mpt3sas mpi3mr smartpqi hpsa aacraid xhci_pci ehci_pci uhci_hcd usb_storage uas'
version=$(ls "$tree/usr/lib/modules")
ram=$(mktemp -d)
mkdir -p "$ram/bin" "$ram/dev" "$ram/proc" "$ram/sys" "$ram/run" "$ram/modules"
install -m 755 "$(command -v busybox)" "$ram/bin/busybox"
install -m 755 "$here/init" "$ram/init"
for module in $drivers; do
  chroot "$tree" modprobe -q -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++' | while read -r path; do
  cp "$tree$path" "$ram/modules/"
  basename "$path" >>"$ram/modules/order"
done
(cd "$ram" && find . -print0 | LC_ALL=C sort -z | cpio --quiet -0 -o -H newc -R 0:0 | zstd -q -3) >"$tree/boot/initrd"
rm -rf "$ram"
