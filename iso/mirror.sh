#!/bin/sh
# Prints the Debian mirror that this machine already uses, or DEBIAN_MIRROR: no address is written here.
set -eu
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
  sed -n 's/^Debian //p' | head -n 1)}
[ -n "$mirror" ] || { echo "iso: apt knows no Debian mirror: run 'apt-get update', or set DEBIAN_MIRROR" >&2; exit 1; }
echo "$mirror"
