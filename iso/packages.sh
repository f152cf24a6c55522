#!/bin/sh
# Installs the missing packages of packages.host, and of packages.NAME for each argument NAME; prints nothing if none
# is missing.
set -eu
cd "$(dirname "$0")"
missing=
for list in host "$@"; do
	for package in $(sed 's/#.*//' "packages.$list" | xargs); do
		status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || status=
		[ "$status" = 'install ok installed' ] || missing="$missing $package"
	done
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "these Debian packages are missing, and only root can install them:$missing" >&2
	exit 1
fi
echo "installing$missing…" >&2
apt-get -qq update
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null
