#!/bin/sh
# containerd's store with the images of an archive in it. A guest would need minutes to check and unpack them.
#   store.sh ARCHIVE DIRECTORY    with CONTAINERD_BIN in the environment; root needed
# In DIRECTORY, which is /usr/lib/control-plane of an OS image, `files` has what is large, and `containerd` the store with
# links to it: that is what a host copies.
set -eu
archive=$1 directory=$2
work=$(mktemp -d)
address=$work/socket
pid=''
finish() { [ -z "$pid" ] || { kill "$pid"; wait "$pid"; } 2>/dev/null; rm -rf "$work"; }
trap finish EXIT

mkdir -p "$directory/files"
cat >"$work/config.toml" <<END
version = 3
root = '$directory/containerd'
state = '$work/state'
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
  address = '$address'
[ttrpc]
  address = '$work/ttrpc'
END
"$CONTAINERD_BIN/containerd" --config "$work/config.toml" >"$work/log" 2>&1 &
pid=$!
ctr() { "$CONTAINERD_BIN/ctr" --address "$address" --namespace k8s.io "$@"; }
tries=0
until ctr version >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] && kill -0 "$pid" || { tail -n 20 "$work/log" >&2; exit 1; }
  sleep 0.1
done
ctr images import "$archive" >"$work/import" 2>&1 || { cat "$work/import" >&2; exit 1; }
rm -f "$directory/containerd/io.containerd.grpc.v1.introspection/uuid"
kill "$pid" && wait "$pid" || true
pid=''

# Large files move, and a link takes their place.
cd "$directory/containerd"
find . -path './io.containerd.content.v1.content/blobs/sha256/*' -size +1M -o -path '*/snapshots/*/fs' -prune -type d | while read -r path; do
  name=$(echo "${path#./io.containerd.}" | tr / -)
  mv "$path" "$directory/files/$name"
  ln -s "/usr/lib/control-plane/files/$name" "$path"
done
