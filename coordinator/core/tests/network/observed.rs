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

/// The lines of a replay that begin with one of these words.
fn lines(network: serde_json::Value, words: &[&str]) -> String {
    let text = replay(network).unwrap().unwrap();
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- "));
    let found: Vec<_> = lines.filter(|line| words.iter().any(|word| line.starts_with(word))).collect();
    found.join("; ")
}

#[test]
fn gateway_outside_the_subnets_gets_a_route() {
    let nic =
        |addresses: &[&str]| json!({"name": "eno1", "mac": "02:00:00:00:00:01", "addresses": addresses});
    let route =
        |to: &str, via: &str| json!({"destination": to, "gateway": via, "interface": "eno1", "onLink": true});
    let direct = |to: &str| json!({"destination": to, "interface": "eno1"});
    for (name, addresses, routes, want) in [
        (
            "IPv4",
            ["203.0.113.7/32"],
            vec![route("0.0.0.0/0", "198.51.100.1")],
            "to: \"198.51.100.1/32\"; scope: link; to: \"0.0.0.0/0\"; via: \"198.51.100.1\"",
        ),
        (
            "IPv6",
            ["2001:db8::7/128"],
            vec![route("::/0", "2001:db8:ff::1")],
            "to: \"2001:db8:ff::1/128\"; scope: link; to: \"::/0\"; via: \"2001:db8:ff::1\"",
        ),
        (
            "two routes by one gateway",
            ["203.0.113.7/32"],
            vec![route("0.0.0.0/0", "198.51.100.1"), route("10.0.0.0/8", "198.51.100.1")],
            "to: \"198.51.100.1/32\"; scope: link; to: \"0.0.0.0/0\"; via: \"198.51.100.1\"; to: \"10.0.0.0/8\"; via: \"198.51.100.1\"",
        ),
        (
            "a route that is there",
            ["203.0.113.7/32"],
            vec![route("0.0.0.0/0", "198.51.100.1"), direct("198.51.100.0/24")],
            "to: \"0.0.0.0/0\"; via: \"198.51.100.1\"; to: \"198.51.100.0/24\"; scope: link",
        ),
        (
            "a subnet",
            ["198.51.100.7/24"],
            vec![route("0.0.0.0/0", "198.51.100.1")],
            "to: \"0.0.0.0/0\"; via: \"198.51.100.1\"",
        ),
    ] {
        let network = json!({"interfaces": [nic(&addresses)], "routes": routes});
        assert_eq!(lines(network, &["to:", "via:", "scope:"]), want, "{name}");
    }
}

#[test]
fn bond_with_dhcp_keeps_its_mtu() {
    let network = json!({"interfaces": [
        {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0a", "mtu": 9000, "dhcp4": true, "bond": {"mode": "802.3ad"}},
        {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "mtu": 9000, "master": "bond0"},
        {"name": "eno2", "permanentMac": "02:00:00:00:00:0b", "mtu": 9000, "master": "bond0"},
        {"name": "eno3", "mac": "02:00:00:00:00:0c", "mtu": 1500, "dhcp4": true},
        {"name": "bond0.20", "kind": "vlan", "mtu": 9000, "vlan": {"id": 20, "link": "bond0"}, "addresses": ["192.0.2.7/24"]}
    ]});
    let want = "eno1:; mtu: 9000; eno2:; mtu: 9000; eno3:; bond0:; mtu: 9000; bond0.20:; mtu: 9000";
    assert_eq!(lines(network, &["eno1:", "eno2:", "eno3:", "bond0:", "bond0.20:", "mtu:"]), want);
}

#[test]
fn parameters_of_a_bond_are_in_both_languages() {
    let spec = |bond: serde_json::Value| coordinator_api::inventory::MachineInventorySpec {
        observed_network: Some(
            serde_json::from_value(json!({"interfaces": [
                {"name": "bond0", "kind": "bond", "mac": "02:00:00:00:00:0a", "dhcp4": true, "bond": bond},
                {"name": "eno1", "permanentMac": "02:00:00:00:00:0a", "master": "bond0"}
            ]}))
            .unwrap(),
        ),
        ..Default::default()
    };
    let common = json!({"mode": "802.3ad", "miimon": 100, "lacpRate": "fast", "transmitHashPolicy": "layer3+4",
        "upDelay": 200, "downDelay": 300, "adSelect": "bandwidth", "minLinks": 2, "failOverMac": "active",
        "primaryReselect": "failure", "gratuitousArp": 0});
    let network = coordinator_core::network::host_network(&spec(common)).unwrap();
    let config = network.network_config.unwrap();
    let parameters = "    parameters:
      mode: \"802.3ad\"
      mii-monitor-interval: 100
      lacp-rate: fast
      transmit-hash-policy: \"layer3+4\"
      up-delay: 200
      down-delay: 300
      primary-reselect-policy: failure
      ad-select: bandwidth
      min-links: 2
      fail-over-mac-policy: active
      gratuitous-arp: 0
";
    assert!(config.contains(parameters) && !config.contains('#'), "{config}");
    let keyfile = String::from_utf8(network.connections["bond0"].expose().to_vec()).unwrap();
    let group = "[bond]\nmode=802.3ad\nmiimon=100\nlacp_rate=fast\nxmit_hash_policy=layer3+4\nupdelay=200\ndowndelay=300\nprimary_reselect=failure\nad_select=bandwidth\nmin_links=2\nfail_over_mac=active\nnum_grat_arp=0\n";
    assert!(keyfile.contains(group), "{keyfile}");

    let other = json!({"mode": "active-backup", "arpInterval": 500, "arpIpTargets": ["192.0.2.1", "192.0.2.2"],
        "arpValidate": "all", "arpAllTargets": "all", "resendIgmp": 5, "packetsPerMember": 0,
        "learnPacketInterval": 3, "allMembersActive": true});
    let network = coordinator_core::network::host_network(&spec(other)).unwrap();
    let config = network.network_config.unwrap();
    assert!(config.starts_with("# Only NetworkManager does this: bond0: arp_interval=500\n"), "{config}");
    assert!(config.contains("    parameters:\n      mode: active-backup\n    dhcp4: true\n"), "{config}");
    let keyfile = String::from_utf8(network.connections["bond0"].expose().to_vec()).unwrap();
    let group = "[bond]\nmode=active-backup\narp_interval=500\narp_ip_target=192.0.2.1,192.0.2.2\narp_validate=all\narp_all_targets=all\nresend_igmp=5\npackets_per_slave=0\nlp_interval=3\nall_slaves_active=1\n";
    assert!(keyfile.contains(group), "{keyfile}");
}
