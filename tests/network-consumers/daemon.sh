#!/bin/sh
# Starts the real NetworkManager on cards of its own and lets it bring up the connections of host/etc; what it made of
# them is left as addresses, routes (both JSON of ip) and resolv.conf.
#   daemon.sh TREE DIRECTORY     DIRECTORY/cards has a line 'NAME MAC' for each card
# All of it is in namespaces of its own, and ends with them: nothing of this machine's network is touched.
set -eu
tree=$1 directory=$2
if [ "${3:-}" != inside ]; then
  exec unshare --mount --net --pid --fork --kill-child sh "$0" "$tree" "$directory" inside
fi

# It takes a read-only /sys for a container without udev.
mount -t sysfs -o ro none "$tree/sys"
mount -t proc none "$tree/proc"
mount --rbind /dev "$tree/dev"
for path in run tmp var/lib/NetworkManager etc/NetworkManager/system-connections etc/NetworkManager/conf.d; do
  mount -t tmpfs none "$tree/$path"
done
ip link set lo up
while read -r name mac; do
  ip link add "$name" type veth peer name "peer-$name"
  ip link set "$name" address "$mac"
  ip link set "peer-$name" up
done <"$directory/cards"
cp --preserve=mode "$directory"/host/etc/NetworkManager/system-connections/* "$tree/etc/NetworkManager/system-connections/"
# The other ends of the cables are no cards of the host, and what has no connection gets none.
cat >"$tree/etc/NetworkManager/conf.d/cards.conf" <<'END'
[main]
no-auto-default=*
[keyfile]
unmanaged-devices=interface-name:peer-*
END
mkdir "$tree/run/dbus"
chroot "$tree" dbus-daemon --system --fork --nopidfile
chroot "$tree" NetworkManager --no-daemon >"$directory/log" 2>&1 &
chroot "$tree" nm-online --quiet --wait-for-startup --timeout=60 || { tail -n 40 "$directory/log" >&2; exit 1; }
ip -json address show >"$directory/addresses"
ip -json -4 route show >"$directory/routes"
cat "$tree/run/NetworkManager/resolv.conf" >"$directory/resolv.conf" 2>/dev/null || : no resolvers
