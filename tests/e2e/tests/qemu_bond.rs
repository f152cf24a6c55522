//! A real host with a VLAN on a bond, where no DHCP answers, by systemd-networkd.

use guest::Network;

#[test]
fn real_host_keeps_its_vlan_on_a_bond() {
    e2e::bonded_host::run(Network::Networkd).unwrap();
}
