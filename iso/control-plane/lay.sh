#!/bin/sh
# Lays the files that a control plane needs beside those of a node over a tree of layer.sh.
#   lay.sh TREE    with KUBERNETES_BIN, ETCD_BIN and CONTAINERD_BIN in the environment
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$1
archive=$(mktemp)
trap 'rm -f "$archive"' EXIT
cp -r "$here/root/." "$tree/"
"$here/archive.sh" "$archive"
"$here/store.sh" "$archive" "$tree/usr/lib/control-plane"
# With them an operator restores etcd on the host.
install -m 755 "$ETCD_BIN/etcdctl" "$ETCD_BIN/etcdutl" "$tree/usr/local/bin/"
SYSTEMD_LOG_LEVEL=err chroot "$tree" systemctl --quiet enable control-plane-images.service
