#!/bin/sh
# The images of a control plane's static pods as one OCI archive, without a daemon: each is one static binary.
#   archive.sh FILE    with KUBERNETES_BIN and ETCD_BIN in the environment; kubeadm names the images
set -eu
file=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/oci/blobs/sha256"

# blob FILE: moves it to its place by content and prints its descriptor without a media type.
blob() {
  digest=$(sha256sum <"$1" | cut -d ' ' -f 1) size=$(stat -c %s "$1")
  mv "$1" "$work/oci/blobs/sha256/$digest"
  jq -nc --arg digest "sha256:$digest" --argjson size "$size" '{digest: $digest, size: $size}'
}

# image NAME PATH BINARY: an image of that name with the binary at PATH, which is what it runs.
image() {
  mkdir -p "$work/root/$(dirname "$2")"
  install -m 755 "$3" "$work/root/$2"
  tar -C "$work/root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/layer" .
  rm -r "$work/root"
  layer=$(blob "$work/layer")
  # Layers are plain tar files: the squashfs around them compresses, and a guest unpacks them faster.
  echo "$layer" | jq -c --arg path "/$2" '{architecture: "amd64", os: "linux",
    config: {Entrypoint: [$path], Env: ["PATH=/usr/local/bin"]}, rootfs: {type: "layers", diff_ids: [.digest]}}' >"$work/config"
  config=$(blob "$work/config")
  jq -nc --argjson config "$config" --argjson layer "$layer" '{schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: ($config + {mediaType: "application/vnd.oci.image.config.v1+json"}),
    layers: [$layer + {mediaType: "application/vnd.oci.image.layer.v1.tar"}]}' >"$work/manifest"
  blob "$work/manifest" | jq -c --arg name "$1" '. + {mediaType: "application/vnd.oci.image.manifest.v1+json",
    annotations: {"io.containerd.image.name": $name}, platform: {architecture: "amd64", os: "linux"}}' >>"$work/manifests"
}

version=$("$KUBERNETES_BIN/kubeadm" version --output short)
names=$("$KUBERNETES_BIN/kubeadm" config images list --kubernetes-version "$version")
for name in $names; do
  binary=${name##*/} binary=${binary%:*}
  case $binary in
    kube-apiserver | kube-controller-manager | kube-scheduler) image "$name" "usr/local/bin/$binary" "$KUBERNETES_BIN/$binary" ;;
    # Ours may be a later patch release than the one that kubeadm names.
    etcd) image "$name" usr/local/bin/etcd "$ETCD_BIN/etcd" ;;
    pause) image "$name" pause "$KUBERNETES_BIN/pause" ;;
    # Add-ons, which the clusters of the lab do without.
    kube-proxy | coredns) ;;
    *) echo "iso: kubeadm $version wants $name, which is not known" >&2; exit 1 ;;
  esac
done
jq -sc '{schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json", manifests: .}' "$work/manifests" >"$work/oci/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
tar -C "$work/oci" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$file" .
