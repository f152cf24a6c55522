#!/bin/sh
# Builds the lab's images into the cache, each under a key of everything that goes in, and prints where they are.
#   build.sh tree      the base tree (minutes, once)
#   build.sh os        v1.squashfs, v2.squashfs and os-images.iso, the disk that brings them to a guest
#   build.sh cluster   os-images.iso with an OS image for each Kubernetes release, which holds the images of a control plane
#   build.sh iso       the live base ISO
# The last line is the path: of the tree, of the directory that holds os-images.iso, of the ISO. Root needed.
#   AGENT              the static baremetal-agent (os, iso)
#   KUBERNETES_BIN     directory with kubelet and kubeadm (os, iso)
#   EARLIER_BIN        another release of KUBERNETES_BIN, where there is to be one (cluster); both hold all commands of a control plane
#   ETCD_BIN           directory with etcd (cluster)
#   CONTAINERD_BIN     directory with containerd, containerd-shim-runc-v2, ctr (os, iso)
#   ELEMENTAL          the real CLI; without it the stand-in of iso/elemental is in the images
#   IMAGE_REPO         name of the images in os-release, default lab.example/os
#   KERNEL             cloud by default, whose drivers are those of virtual machines; generic for real servers; uml for
#                      hosts that are processes (tests/uml)
#   FIRMWARE           Debian packages of firmware for them, such as "firmware-bnx2x firmware-qlogic"
#   NETWORK            networkd by default; networkmanager for NetworkManager
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${BAREMETAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-baremetal}/iso
repository=${IMAGE_REPO:-lab.example/os}
export KERNEL="${KERNEL:-cloud}" FIRMWARE="${FIRMWARE:-}" NETWORK="${NETWORK:-networkd}"
# Under emulation mitigations protect nothing and cost a fifth of the CPU time; a real server has them. The counters of
# emulated CPUs are found unsynchronized, although they are one: a program that asks for the time would ask a device.
[ "$KERNEL" != cloud ] || EMULATED=' mitigations=off nokaslr tsc=reliable'
export EMULATED="${EMULATED:-}"
[ "$KERNEL" != uml ] || UML=$("$here/uml/package.sh" "$cache")
export UML="${UML:-}"
started=$(date +%s)

say() { echo "iso: [$(($(date +%s) - started))s] $*" >&2; }
die() { say "$*"; exit 1; }
# The key depends on file contents and names, never on times, so that a fresh checkout finds the same cache.
digest() { (cd "$1" && shift && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-16; }
content() { sha256sum "$@" | cut -d' ' -f1; }

# keep NAME: moves the finished work directory to its place; a half-written directory is never visible.
keep() { mv -T "$work" "$cache/$1" 2>/dev/null || { [ -d "$cache/$1" ] && rm -rf "$work"; }; }
begin() { mkdir -p "$cache"; work=$(mktemp -d "$cache/.work.XXXXXX"); trap 'rm -rf "$work"' EXIT; trap 'exit 1' INT TERM HUP; }
# prune PREFIX KEEP: the newest few stay; agents change often, images are large.
prune() { ls -dt "$cache/$1"-* 2>/dev/null | tail -n +"$(($2 + 1))" | xargs -r rm -rf; }

need() { for tool in "$@"; do command -v "$tool" >/dev/null || die "no $tool: install the packages of iso/packages.host"; done; }

base_tree() {
  lists="packages.guest${ELEMENTAL:+ elemental/packages.guest}"
  case $NETWORK in
    networkd) ;;
    networkmanager) lists="$lists packages.networkmanager" ;;
    *) die "NETWORK is $NETWORK; it is networkd or networkmanager" ;;
  esac
  # A tree for User Mode Linux differs in a later layer alone.
  case $KERNEL in uml) drivers=cloud ;; *) drivers=$KERNEL ;; esac
  # shellcheck disable=SC2086  # a list
  base_key=$({ digest "$here" tree.sh $lists; echo "$drivers $FIRMWARE"; } | sha256sum | cut -c1-16)
  base=$cache/tree-$base_key
  if [ -d "$base" ]; then say "base tree: cached ($base_key)"; return; fi
  need mmdebstrap
  begin
  say "base tree: mmdebstrap, one and a half minutes on a quiet machine"
  # shellcheck disable=SC2086
  (cd "$here" && KERNEL=$drivers ./tree.sh "$work/tree" $lists) >"$cache/tree.log" 2>&1 || { tail -n 20 "$cache/tree.log" >&2; die "mmdebstrap failed: $cache/tree.log"; }
  mv "$work/tree" "$work.done" && rm -rf "$work" && work=$work.done
  keep "tree-$base_key"
  prune tree 3
  say "base tree: built ($(du -sh "$base" | cut -f1))"
}

# The common part of the OS images and the ISO: one key, and one merged tree that is made only when it is needed.
inputs() {
  : "${AGENT:?set AGENT to the static baremetal-agent}" "${KUBERNETES_BIN:?}" "${CONTAINERD_BIN:?}"
  for file in "$AGENT" "$KUBERNETES_BIN/kubelet" "$KUBERNETES_BIN/kubeadm" "$CONTAINERD_BIN/containerd" ${ELEMENTAL:+"$ELEMENTAL"}; do
    [ -f "$file" ] || die "$file is missing"
  done
  base_tree
  key=$({
    echo "$base_key $repository $KERNEL"
    digest "$here" build.sh burn.sh layer.sh init grub-live.cfg root elemental
    [ "$KERNEL" != uml ] || { digest "$here" uml; content "$UML/bin/linux.uml"; }
    digest "$here/../systemd" .
    content "$AGENT" "$KUBERNETES_BIN/kubelet" "$KUBERNETES_BIN/kubeadm" "$CONTAINERD_BIN/containerd" \
      "$CONTAINERD_BIN/containerd-shim-runc-v2" "$CONTAINERD_BIN/ctr" ${ELEMENTAL:+"$ELEMENTAL"}
  } | sha256sum | cut -c1-16)
}

# squash TAG FILE: the merged tree under the name of one image.
squash() {
  rm -f "$work/tree/usr/lib/os-release" "$work/tree/etc/os-release"
  {
    grep -v '^IMAGE' "$base/usr/lib/os-release"
    echo "IMAGE=\"$repository:$1\""
    echo "IMAGE_REPO=\"$repository\""
    echo "IMAGE_TAG=\"$1\""
  } >"$work/tree/etc/os-release"
  mksquashfs "$work/tree" "$2" -quiet -no-progress -noappend -comp zstd -Xcompression-level 3 >&2
  say "$1: squashed ($(du -h "$2" | cut -f1))"
}

os() {
  inputs
  if [ -d "$cache/os-$key" ]; then say "OS images: cached ($key)"; echo "$cache/os-$key"; return; fi
  need mksquashfs cpio zstd busybox xorriso
  begin
  "$here/layer.sh" "$base" "$work/tree"
  say "OS images: tree with agent and units laid"
  squash v1 "$work/v1.squashfs"
  squash v2 "$work/v2.squashfs"
  rm -rf "$work/tree"
  disk
  keep "os-$key"
  prune os 3
  echo "$cache/os-$key"
}

# disk: the squashed images as os-images.iso. An ISO file system: read-only by nature, and made without root or a size
# to guess. -iso-level 3 for large files.
disk() {
  mkdir "$work/disk" && mv "$work"/*.squashfs "$work/disk/"
  xorriso -as mkisofs -quiet -iso-level 3 -r -V OS_IMAGES -o "$work/os-images.iso" "$work/disk" \
    >"$cache/os-images.log" 2>&1 || { tail "$cache/os-images.log" >&2; die "xorriso failed"; }
  rm -rf "$work/disk"
}

# The images of `os` have no part of a control plane in them: it is large, and only these are booted for one.
cluster() {
  inputs
  : "${ETCD_BIN:?}"
  key=$({
    echo "$key"
    digest "$here" control-plane
    for name in kubelet kubeadm kube-apiserver kube-controller-manager kube-scheduler pause; do
      content ${EARLIER_BIN:+"$EARLIER_BIN/$name"} "$KUBERNETES_BIN/$name"
    done
    content "$ETCD_BIN/etcd" "$ETCD_BIN/etcdctl" "$ETCD_BIN/etcdutl"
  } | sha256sum | cut -c1-16)
  if [ -d "$cache/cluster-$key" ]; then say "OS images with control planes: cached ($key)"; echo "$cache/cluster-$key"; return; fi
  need mksquashfs cpio zstd busybox xorriso jq
  begin
  for release in ${EARLIER_BIN:+"$EARLIER_BIN"} "$KUBERNETES_BIN"; do
    KUBERNETES_BIN=$release "$here/layer.sh" "$base" "$work/tree"
    KUBERNETES_BIN=$release "$here/control-plane/lay.sh" "$work/tree"
    version=$("$release/kubeadm" version --output short)
    squash "$version" "$work/$version.squashfs"
    rm -rf "$work/tree"
  done
  disk
  keep "cluster-$key"
  prune cluster 2
  echo "$cache/cluster-$key"
}

iso() {
  inputs
  made=$cache/live-$key/base.iso
  if [ -f "$made" ]; then say "live ISO: cached, $(du -h "$made" | cut -f1): $made"; echo "$made"; return; fi
  need mksquashfs cpio zstd busybox xorriso grub-mkimage mcopy mkfs.vfat ${ELEMENTAL:+rsync}
  begin
  "$here/layer.sh" "$base" "$work/tree"
  if [ -n "${ELEMENTAL:-}" ]; then stock_iso; else lab_iso; fi
  keep "live-$key"
  prune live 3
  say "live ISO: built, $(du -h "$made" | cut -f1): $made"
  echo "$made"
}

# The ISO as upstream makes it, without files of ours.
stock_iso() {
  say "live ISO: elemental build-iso"
  "$ELEMENTAL" build-iso "dir:$work/tree" --bootloader-in-rootfs --name base --output "$work" \
    --extra-cmdline 'console=tty1 console=ttyS0,115200 systemd.gpt_auto=0 scsi_mod.scan=sync'"$EMULATED" \
    -x '-comp zstd -Xcompression-level 3' >"$cache/build-iso.log" 2>&1 || { tail "$cache/build-iso.log" >&2; die "elemental build-iso failed: $cache/build-iso.log"; }
  rm -rf "$work/tree"
}

lab_iso() {
  say "live ISO: tree with agent and units laid"
  loader=$work/cd/boot/x86_64/loader
  mkdir -p "$loader"
  squash live "$loader/rootfs.squashfs"
  cp -L "$work/tree/boot/vmlinuz" "$loader/linux"
  cp -L "$work/tree/boot/initrd" "$loader/initrd"
  rm -rf "$work/tree"
  sed "s/ @EMULATED@/$EMULATED/" "$here/grub-live.cfg" >"$work/grub.cfg"
  "$here/burn.sh" "$work/cd" "$work/grub.cfg" "$work/base.iso" >"$cache/burn.log" 2>&1 || { tail "$cache/burn.log" >&2; die "burn.sh failed: $cache/burn.log"; }
  rm -rf "$work/cd" "$work/grub.cfg"
}

case ${1:-} in
  tree) base_tree; echo "$base" ;;
  os) os ;;
  cluster) cluster ;;
  iso) iso ;;
  *) sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
