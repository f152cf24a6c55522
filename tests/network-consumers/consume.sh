#!/bin/sh
# Gives one case to all consumers: network-config, connections/*.nmconnection and kernel-arguments in, what they made
# of it out.
#   consume.sh TREE DIRECTORY     in a mount namespace of its own: nothing is written into the tree
set -eu
if [ $# = 2 ]; then
  tree=$1 directory=$2
  cp "$0" "$directory/consume.sh"
  export tree directory
  exec unshare --mount sh -c '
    mount --bind "$directory" "$tree/tmp"
    mount -t tmpfs none "$tree/etc/netplan"
    mount -t tmpfs none "$tree/run"
    exec chroot "$tree" env -i PATH=/usr/sbin:/usr/bin sh -eu /tmp/consume.sh'
fi

cd /tmp
if [ -f network-config ]; then
  cloud-init schema --schema-type network-config --config-file network-config
  for kind in netplan networkd network-manager; do
    cloud-init devel net-convert --network-data network-config --kind yaml --distro debian --output-kind "$kind" --directory "$kind"
  done
  # cloud-init writes by netplan's library, which knows no other directory.
  cp /etc/netplan/50-cloud-init.yaml netplan/etc/netplan/
  netplan generate --root-dir /tmp/netplan
fi
if [ -f network_data.json ]; then
  # Lines of NAME,MAC: the cards of the host.
  set -- $(sed 's/^/--mac /' cards)
  cloud-init devel net-convert --network-data network_data.json --kind network_data.json "$@" --distro debian \
    --output-kind netplan --directory openstack
  mkdir -p openstack/etc/netplan
  cp /etc/netplan/50-cloud-init.yaml openstack/etc/netplan/
  netplan generate --root-dir /tmp/openstack
fi
if [ -f kernel-arguments ]; then
  xargs /usr/lib/systemd/systemd-network-generator <kernel-arguments
  cp -r /run/systemd/network kernel
fi
mkdir nm
for file in connections/*.nmconnection; do
  [ -e "$file" ] || continue
  # Reads by the library of the daemon, checks, and writes what it has understood.
  nmcli --offline connection modify connection.autoconnect-priority 0 <"$file" >"nm/${file#*/}"
done
