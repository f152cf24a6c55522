#!/bin/sh
# The programs that read what we render (NetworkManager's own parser, cloud-init, netplan) as Debian packages in a tree
# of their own: installed on this machine they would act on its network at the next boot, and bookworm's are too old to
# know the schema. Builds it once into the cache (a minute, 250 MB) and prints its path. Root needed.
set -eu
cache=${BAREMETAL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cluster-api-provider-baremetal}/network-consumers
tree=$cache/$(sha256sum "$0" | cut -c1-16)
if [ -d "$tree" ]; then echo "$tree"; exit; fi

mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
  sed -n 's/^Debian //p' | head -n 1)}
[ -n "$mirror" ] || { echo "apt knows no Debian mirror: run 'apt-get update', or set DEBIAN_MIRROR" >&2; exit 1; }
command -v mmdebstrap >/dev/null || { echo "no mmdebstrap: run 'make packages'" >&2; exit 1; }
mkdir -p "$cache"
work=$(mktemp -d "$cache/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mmdebstrap --mode=root --variant=minbase --format=directory --include=cloud-init,netplan.io,network-manager,systemd \
  --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  trixie "$work/tree" "deb $mirror trixie main" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
# Another test may have been faster.
mv -T "$work/tree" "$tree" 2>/dev/null || [ -d "$tree" ]
echo "$tree"
