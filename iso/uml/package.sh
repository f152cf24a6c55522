#!/bin/sh
# Prints the directory of the package user-mode-linux for the CPU of this machine. Linux before 6.13 does not know the
# registers of AMX: on a CPU with AMX it is the package of a later Debian release, with the C library that it needs.
#   package.sh CACHE      the directory that keeps it
set -eu
cache=$1
release=forky
directory=$cache/user-mode-linux-$release

grep --quiet --word-regexp amx_tile /proc/cpuinfo || { echo /usr; exit 0; }
[ ! -d "$directory" ] || { echo "$directory"; exit 0; }
mirror=$("$(dirname "$0")/../mirror.sh")
work=$directory.new
rm -rf "$work"
mkdir -p "$work/lists" "$work/uml/bin"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$work/sources.list"
from_release() {
	apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o "Dir::State::Lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o APT::Sandbox::User=root "$@" >&2
}
from_release update
(cd "$work" && from_release download user-mode-linux libc6)
for package in "$work"/*.deb; do dpkg-deb --extract "$package" "$work/root"; done
mkdir -p "$work/uml/lib" "$work/uml/share/doc"
mv "$work/root/usr/lib/uml" "$work/uml/lib/"
mv "$work/root/usr/share/doc/user-mode-linux" "$work/uml/share/doc/"
libraries=$work/root/usr/lib/x86_64-linux-gnu
mv "$libraries/ld-linux-x86-64.so.2" "$libraries/libc.so.6" "$work/root/usr/bin/linux.uml" "$work/uml/bin/"
# The kernel starts itself again, so that its C library cannot be named on a command line.
patchelf --set-interpreter "$directory/bin/ld-linux-x86-64.so.2" --set-rpath "$directory/bin" "$work/uml/bin/linux.uml"
mv "$work/uml" "$directory"
rm -rf "$work"
echo "$directory"
