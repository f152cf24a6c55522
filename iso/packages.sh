#!/bin/sh
# Installs the missing packages of packages.host; prints nothing if none is missing.
set -eu
list=$(dirname "$0")/packages.host
wanted=$(sed 's/#.*//' "$list" | xargs)
missing=
for package in $wanted; do
	status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || status=
	[ "$status" = 'install ok installed' ] || missing="$missing $package"
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
