//! Networks that a host reported: replayed as they were.

use serde_json::json;

use super::replay;

#[test]
fn each_observed_network_is_replayed_as_it_was() {
    let cases = [
        (
            "one NIC by DHCP, one static with a route, one unused",
            json!({
                "interfaces": [
                    {"name": "enp1s0", "mac": "52:54:00:00:00:01", "mtu": 1500, "dhcp4": true, "acceptRa": true,
                     "addresses": ["10.0.2.15/24", "fec0::5054:ff:fe00:1/64"],
                     "dynamicAddresses": ["10.0.2.15/24", "fec0::5054:ff:fe00:1/64"]},
                    {"name": "enp2s0", "mac": "52:54:00:00:00:02", "mtu": 1500,
                     "addresses": ["192.0.2.7/24", "fe80::1/64"]},
                    {"name": "enp3s0", "addresses": ["fe80::3/64"]}
                ],
                "routes": [
                    {"destination": "0.0.0.0/0", "gateway": "10.0.2.2", "interface": "enp1s0", "metric": 100, "dynamic": true},
                    {"destination": "192.0.2.0/24", "interface": "enp2s0"},
                    {"destination": "198.51.100.0/24", "gateway": "192.0.2.1", "interface": "enp2s0", "metric": 50}
                ],
                "dnsServers": ["10.0.2.3"]
            }),
            Some(
                "version: 2
ethernets:
  enp1s0:
    match:
      macaddress: \"52:54:00:00:00:01\"
    set-name: enp1s0
    dhcp4: true
    accept-ra: true
  enp2s0:
    match:
      macaddress: \"52:54:00:00:00:02\"
    set-name: enp2s0
    addresses:
    - \"192.0.2.7/24\"
    routes:
    - to: \"198.51.100.0/24\"
      via: \"192.0.2.1\"
      metric: 50
    nameservers:
      addresses:
      - \"10.0.2.3\"
",
            ),
        ),
        (
            "a VLAN on a bond of two, default routes of both families",
            json!({
                "interfaces": [
                    {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0A", "mtu": 9000,
                     "bond": {"mode": "802.3ad", "miimon": 100, "lacpRate": "fast", "transmitHashPolicy": "layer3+4"}},
                    {"name": "eno1", "mac": "02:00:00:00:00:0a", "permanentMac": "02:00:00:00:00:0a", "mtu": 9000, "master": "bond0",
                     "addresses": ["192.0.2.99/24"], "dhcp4": true},
                    {"name": "eno2", "mac": "02:00:00:00:00:0a", "permanentMac": "02:00:00:00:00:0b", "mtu": 9000, "master": "bond0"},
                    {"name": "bond0.12", "kind": "vlan", "mac": "02:00:00:00:00:0a", "mtu": 1500, "vlan": {"id": 12, "link": "bond0"},
                     "addresses": ["192.0.2.7/24", "2001:db8::7/64"]}
                ],
                "routes": [
                    {"destination": "default", "gateway": "192.0.2.1"},
                    {"destination": "::/0", "gateway": "fe80::1", "interface": "bond0.12", "metric": 1024},
                    {"destination": "203.0.113.0/24", "interface": "bond0.12"}
                ],
                "dnsServers": ["192.0.2.53", "127.0.0.53"], "searchDomains": ["example.com"]
            }),
            Some(
                "version: 2
ethernets:
  eno1:
    match:
      macaddress: \"02:00:00:00:00:0a\"
    set-name: eno1
    mtu: 9000
  eno2:
    match:
      macaddress: \"02:00:00:00:00:0b\"
    set-name: eno2
    mtu: 9000
bonds:
  bond0:
    interfaces:
    - eno1
    - eno2
    macaddress: \"02:00:00:00:00:0a\"
    parameters:
      mode: \"802.3ad\"
      mii-monitor-interval: 100
      lacp-rate: fast
      transmit-hash-policy: \"layer3+4\"
    mtu: 9000
vlans:
  bond0.12:
    id: 12
    link: bond0
    addresses:
    - \"192.0.2.7/24\"
    - \"2001:db8::7/64\"
    routes:
    - to: \"0.0.0.0/0\"
      via: \"192.0.2.1\"
    - to: \"::/0\"
      via: \"fe80::1\"
    - to: \"203.0.113.0/24\"
      scope: link
    nameservers:
      addresses:
      - \"192.0.2.53\"
      search:
      - example.com
",
            ),
        ),
        (
            "a bridge, and interfaces that containers made",
            json!({"interfaces": [
                {"name": "br0", "kind": "bridge", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/24"]},
                {"name": "eno1", "mac": "02:00:00:00:00:01", "master": "br0"},
                {"name": "vx0", "kind": "vxlan", "addresses": ["10.244.0.0/32"]}
            ]}),
            Some(
                "version: 2
ethernets:
  eno1:
    match:
      macaddress: \"02:00:00:00:00:01\"
    set-name: eno1
bridges:
  br0:
    interfaces:
    - eno1
    macaddress: \"02:00:00:00:00:01\"
    addresses:
    - \"192.0.2.7/24\"
",
            ),
        ),
        (
            "a single address whose gateway has a route of its own",
            json!({
                "interfaces": [{"name": "eno1", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/32"]}],
                "routes": [
                    {"destination": "198.51.100.1/32", "interface": "eno1"},
                    {"destination": "0.0.0.0/0", "gateway": "198.51.100.1", "interface": "eno1"}
                ]
            }),
            Some(
                "version: 2
ethernets:
  eno1:
    match:
      macaddress: \"02:00:00:00:00:01\"
    set-name: eno1
    addresses:
    - \"192.0.2.7/32\"
    routes:
    - to: \"198.51.100.1/32\"
      scope: link
    - to: \"0.0.0.0/0\"
      via: \"198.51.100.1\"
",
            ),
        ),
        (
            "nothing that is configured",
            json!({"interfaces": [{"name": "eno1", "mac": "02:00:00:00:00:01"}]}),
            None,
        ),
        ("nothing at all", json!({}), None),
    ];
    for (name, given, want) in cases {
        assert_eq!(
            replay(given).unwrap_or_else(|error| panic!("{name}: {error}")).as_deref(),
            want,
            "{name}"
        );
    }
}
