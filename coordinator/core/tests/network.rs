//! Networks of hosts: what is accepted, replayed and reported.

// Tables are long, and a helper that cannot unwrap hides the case.
#![allow(clippy::unwrap_used, clippy::panic, clippy::too_many_lines, clippy::missing_panics_doc)]

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_api::network::{Configurator, NetworkTemplate, ObservedNetwork};
use coordinator_core::network::{NetworkError, Observation, describe_drift, host_network, parse_observed};
use proptest::prelude::*;
use proto::v1alpha1 as wire;
use serde_json::{Value, json};

fn replay(network: Value) -> Result<Option<String>, NetworkError> {
    network_config(&MachineInventorySpec {
        observed_network: Some(serde_json::from_value(network).unwrap()),
        ..Default::default()
    })
}

fn network_config(spec: &MachineInventorySpec) -> Result<Option<String>, NetworkError> {
    host_network(spec).map(|network| network.network_config)
}

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

#[test]
fn a_network_that_cannot_work_is_refused_and_the_interface_named() {
    let nic = |extra: Value| {
        let mut nic = json!({"name": "eno1", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.7/24"]});
        nic.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        nic
    };
    let missing = |interface: &str, role, missing: &str| NetworkError::InterfaceMissing {
        interface: interface.into(),
        role,
        missing: missing.into(),
    };
    let value = |place: &str, value: &str, wanted| NetworkError::Value {
        place: place.into(),
        value: value.into(),
        wanted,
    };
    let route = |extra: Value| {
        let mut route = json!({"destination": "198.51.100.0/24", "interface": "eno1"});
        route.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"interfaces": [nic(json!({}))], "routes": [route]})
    };
    let destination = "198.51.100.0/24".parse().unwrap();
    let cases = [
        (
            "no MAC",
            json!({"interfaces": [nic(json!({"mac": "00:00:00:00:00:00"}))]}),
            NetworkError::MacMissing { interface: "eno1".into() },
        ),
        (
            "bad MAC",
            json!({"interfaces": [nic(json!({"mac": "02:00"}))]}),
            value("interface eno1", "02:00", "MAC address of six octets"),
        ),
        (
            "bad address",
            json!({"interfaces": [nic(json!({"addresses": ["192.0.2.7"]}))]}),
            value("interface eno1", "192.0.2.7", "address with a prefix length"),
        ),
        (
            "name that is none",
            json!({"interfaces": [nic(json!({"name": "a\nb"}))]}),
            value("interfaces", "a\nb", "name of an interface (1 to 15 of a-z A-Z 0-9 - _ . : @)"),
        ),
        (
            "name twice",
            json!({"interfaces": [nic(json!({})), nic(json!({}))]}),
            NetworkError::Duplicate { place: "interfaces".into(), value: "eno1".into() },
        ),
        (
            "MAC twice",
            json!({"interfaces": [nic(json!({})), nic(json!({"name": "eno2", "addresses": ["192.0.2.8/24"]}))]}),
            NetworkError::Duplicate { place: "interface eno2".into(), value: "02:00:00:00:00:01".into() },
        ),
        (
            "address twice",
            json!({"interfaces": [nic(json!({})), nic(json!({"name": "eno2", "mac": "02:00:00:00:00:02"}))]}),
            NetworkError::Duplicate { place: "interface eno2".into(), value: "192.0.2.7".into() },
        ),
        (
            "master gone",
            json!({"interfaces": [nic(json!({"master": "bond0"}))]}),
            missing("eno1", "master", "bond0"),
        ),
        (
            "parent gone",
            json!({"interfaces": [nic(json!({"kind": "vlan", "vlan": {"id": 1, "link": "eno9"}}))]}),
            missing("eno1", "parent", "eno9"),
        ),
        (
            "a bond of none",
            json!({"interfaces": [nic(json!({"kind": "bond"}))]}),
            missing("eno1", "member", "(none names it as master)"),
        ),
        (
            "primary that is no member",
            json!({"interfaces": [nic(json!({"kind": "bond", "bond": {"mode": "active-backup", "primary": "eno9"}})),
                               {"name": "eno2", "mac": "02:00:00:00:00:02", "master": "eno1"}]}),
            missing("eno1", "primary", "eno9"),
        ),
        (
            "VLAN id",
            json!({"interfaces": [nic(json!({"kind": "vlan", "vlan": {"id": 4095, "link": "eno1"}}))]}),
            value("interface eno1", "4095", "VLAN id (1 to 4094)"),
        ),
        (
            "MTU of a VLAN",
            json!({"interfaces": [nic(json!({})), {"name": "v", "kind": "vlan", "mtu": 9000, "vlan": {"id": 1, "link": "eno1"}}]}),
            NetworkError::Mtu { interface: "v".into(), mtu: 9000, parent: "eno1".into(), parent_mtu: 1500 },
        ),
        (
            "gateway elsewhere",
            route(json!({"gateway": "203.0.113.1"})),
            NetworkError::GatewayUnreachable {
                interface: "eno1".into(),
                gateway: "203.0.113.1".parse().unwrap(),
            },
        ),
        (
            "gateway of the other family",
            route(json!({"gateway": "fe80::1"})),
            NetworkError::Family {
                interface: "eno1".into(),
                destination,
                gateway: "fe80::1".parse().unwrap(),
            },
        ),
        (
            "route without interface",
            route(json!({"interface": "eno9"})),
            NetworkError::RouteWithoutInterface { destination },
        ),
        (
            "resolver",
            json!({"interfaces": [nic(json!({}))], "dnsServers": ["a b"]}),
            value("dnsServers", "a b", "IP address"),
        ),
        (
            "search domain",
            json!({"interfaces": [nic(json!({}))], "searchDomains": ["a\nb"]}),
            value("searchDomains", "a\nb", "domain"),
        ),
    ];
    for (name, given, want) in cases {
        assert_eq!(replay(given), Err(want), "{name}");
    }
}

#[test]
fn an_explicit_network_wins_and_is_taken_as_it_is() {
    let observed: ObservedNetwork = serde_json::from_value(json!({
        "interfaces": [{"name": "eno1", "mac": "02:00:00:00:00:01", "dhcp4": true}]
    }))
    .unwrap();
    let seen = "version: 2\nethernets:\n  eno1:\n    match:\n      macaddress: \"02:00:00:00:00:01\"\n    set-name: eno1\n    dhcp4: true\n";
    let version2 = json!({"version": 2, "ethernets": {"eno1": {"addresses": ["{inventory-ip}/24"], "x": "{", "z": "{ }"}}});
    let filled = |indent: &str| {
        format!(
            "{indent}ethernets:\n{indent}  eno1:\n{indent}    addresses:\n{indent}    - \"192.0.2.7/24\"\n{indent}    x: \"{{\"\n{indent}    z: \"{{ }}\"\n{indent}version: 2\n"
        )
    };
    let cases = [
        ("nothing said", Configurator::None, None, Ok(Some(seen.to_owned()))),
        ("an empty map", Configurator::None, Some(json!({})), Ok(Some(seen.to_owned()))),
        ("version 2", Configurator::None, Some(version2.clone()), Ok(Some(filled("")))),
        (
            "netplan's form",
            Configurator::None,
            Some(json!({"network": version2})),
            Ok(Some(format!("network:\n{}", filled("  ")))),
        ),
        ("version 1", Configurator::None, Some(json!({"version": 1})), Err(NetworkError::NotVersion2)),
        ("a list", Configurator::None, Some(json!(["a"])), Err(NetworkError::NotVersion2)),
        (
            "nmstate",
            Configurator::Nmstate,
            Some(json!({"version": 2})),
            Err(NetworkError::Configurator { configurator: "nmstate" }),
        ),
        (
            "nothing to fill in",
            Configurator::None,
            Some(json!({"version": 2, "a": "{b}"})),
            Err(NetworkError::Placeholder { name: "b".into() }),
        ),
        (
            "something that is no address",
            Configurator::None,
            Some(json!({"version": 2, "a": "{bad}"})),
            Err(NetworkError::Value {
                place: "spec.network.ipAddresses".into(),
                value: "x".into(),
                wanted: "IP address",
            }),
        ),
    ];
    for (name, configurator, given, want) in cases {
        let ip_addresses =
            BTreeMap::from([("inventory-ip".into(), "192.0.2.7".into()), ("bad".into(), "x".into())]);
        let spec = MachineInventorySpec {
            network: Some(NetworkTemplate { configurator, ip_addresses, config: given }),
            observed_network: Some(observed.clone()),
            ..Default::default()
        };
        assert_eq!(network_config(&spec), want, "{name}");
    }
    assert_eq!(network_config(&MachineInventorySpec::default()), Ok(None));
}

fn report() -> wire::ObservedNetwork {
    wire::ObservedNetwork {
        interfaces: vec![wire::Interface {
            name: "bond0".into(),
            mac: "02:00:00:00:00:0A".into(),
            permanent_mac: "00:00:00:00:00:00".into(),
            mtu: 1500,
            addresses: vec!["192.0.2.7/24".into(), "fe80::1/64".into(), "2001:DB8::7/64".into()],
            dynamic_addresses: vec!["2001:db8::7/64".into(), "fe80::1/64".into()],
            kind: "bond".into(),
            accept_ra: true,
            bond: Some(wire::Bond { mode: "802.3ad".into(), miimon: 100, ..Default::default() }),
            ..Default::default()
        }],
        routes: vec![wire::Route {
            destination: "198.51.100.9/24".into(),
            gateway: "192.0.2.1".into(),
            interface: "bond0".into(),
            metric: 0,
            dynamic: false,
        }],
        dns_servers: vec!["127.0.0.53".into(), "192.0.2.53".into()],
        search_domains: vec!["example.com".into()],
        connections: std::iter::once(("bond0".into(), "[connection]\ntype=bond\n".into())).collect(),
    }
}

#[test]
fn report_is_parsed_in_canonical_form() {
    assert_eq!(
        serde_json::to_value(parse_observed(report()).network).unwrap(),
        json!({
            "interfaces": [{
                "name": "bond0", "mac": "02:00:00:00:00:0a", "mtu": 1500, "kind": "bond", "acceptRa": true,
                "addresses": ["192.0.2.7/24", "2001:db8::7/64"], "dynamicAddresses": ["2001:db8::7/64"],
                "bond": {"mode": "802.3ad", "miimon": 100}
            }],
            "routes": [{"destination": "198.51.100.0/24", "gateway": "192.0.2.1", "interface": "bond0"}],
            "dnsServers": ["192.0.2.53"], "searchDomains": ["example.com"],
            "connections": {"bond0": "[connection]\ntype=bond\n"}
        })
    );
}

#[test]
fn what_cannot_be_replayed_is_dropped_alone() {
    type Spoil = fn(&mut wire::ObservedNetwork);
    fn interface(name: &str) -> wire::Interface {
        wire::Interface { name: name.into(), ..Default::default() }
    }
    // What is spoiled, by what, and what is left: interfaces, addresses of the
    // first, routes, resolvers, search domains, keyfiles.
    let cases: [(&str, Spoil, [usize; 6]); 16] = [
        ("nothing", |_| {}, [1, 2, 1, 1, 1, 1]),
        (
            "interfaces",
            |network| network.interfaces.extend((0..256).map(|index| interface(&format!("a{index}")))),
            [256, 2, 1, 1, 1, 1],
        ),
        ("routes", |network| network.routes = vec![network.routes[0].clone(); 1025], [1, 2, 1024, 1, 1, 1]),
        ("resolvers", |network| network.dns_servers = vec!["192.0.2.1".into(); 33], [1, 2, 1, 32, 1, 1]),
        ("scoped resolver", |network| network.dns_servers.push("fe80::1%eth0".into()), [1, 2, 1, 1, 1, 1]),
        ("search domain", |network| network.search_domains.push("a b".into()), [1, 2, 1, 1, 1, 1]),
        (
            "keyfiles",
            |network| drop(network.connections.insert("z".into(), "x".repeat(256 * 1024))),
            [1, 2, 1, 1, 1, 1],
        ),
        (
            "unreadable keyfile",
            |network| drop(network.connections.insert("a".into(), "type=ethernet".into())),
            [1, 2, 1, 1, 1, 1],
        ),
        (
            "address",
            |network| network.interfaces[0].addresses.push("fe80::1%2/64".into()),
            [1, 2, 1, 1, 1, 1],
        ),
        ("name twice", |network| network.interfaces.push(network.interfaces[0].clone()), [1, 2, 1, 1, 1, 1]),
        ("name", |network| network.interfaces.push(interface("../x")), [1, 2, 1, 1, 1, 1]),
        (
            "kind",
            |network| network.interfaces.push(wire::Interface { kind: "ovs".into(), ..interface("b") }),
            [1, 2, 1, 1, 1, 1],
        ),
        (
            "bond mode",
            |network| {
                network.interfaces[0].bond = Some(wire::Bond { mode: "a\nb".into(), ..Default::default() });
            },
            [0, 0, 0, 1, 1, 1],
        ),
        (
            "VLAN of a dropped VLAN",
            |network| {
                for (name, link) in [("v", "w"), ("w", "none")] {
                    let vlan = Some(wire::Vlan { id: 1, link: link.into() });
                    network.interfaces.push(wire::Interface { kind: "vlan".into(), vlan, ..interface(name) });
                }
            },
            [1, 2, 1, 1, 1, 1],
        ),
        ("route", |network| network.routes[0].interface = "eno9".into(), [1, 2, 0, 1, 1, 1]),
        ("destination", |network| network.routes[0].destination = "default".into(), [1, 2, 0, 1, 1, 1]),
    ];
    for (name, spoil, want) in cases {
        let mut given = report();
        spoil(&mut given);
        let Observation { network, dropped } = parse_observed(given);
        let addresses = network.interfaces.first().map_or(0, |interface| interface.addresses.len());
        let left = [
            network.interfaces.len(),
            addresses,
            network.routes.len(),
            network.dns_servers.len(),
            network.search_domains.len(),
            network.connections.len(),
        ];
        assert_eq!((left, dropped.is_empty()), (want, name == "nothing"), "{name}: {dropped:?}");
    }
}

#[test]
fn dropped_master_leaves_its_member() {
    let mut given = report();
    let member = wire::Interface { name: "eno1".into(), master: "team0".into(), ..Default::default() };
    given.interfaces.push(member);
    let Observation { network, dropped } = parse_observed(given);
    assert_eq!((network.interfaces[1].master.as_deref(), dropped.len()), (None, 1));
}

type Change = fn(&mut Value);

#[test]
fn only_what_was_meant_to_stay_counts_as_drift() {
    let intended = json!({
        "interfaces": [
            {"name": "eno1", "mac": "02:00:00:00:00:01", "dhcp4": true, "addresses": ["10.0.0.5/24"], "dynamicAddresses": ["10.0.0.5/24"]},
            {"name": "eno2", "mac": "02:00:00:00:00:02", "mtu": 9000, "addresses": ["192.0.2.7/24"]},
            {"name": "eno3", "mac": "02:00:00:00:00:03"},
            {"name": "v12", "kind": "vlan", "vlan": {"id": 12, "link": "eno2"}},
            {"name": "bond0", "kind": "bond", "bond": {"mode": "802.3ad"}}
        ],
        "routes": [{"destination": "198.51.100.0/24", "gateway": "192.0.2.1", "interface": "eno2", "metric": 5},
                   {"destination": "0.0.0.0/0", "gateway": "192.0.2.1", "interface": "eno2"}],
        "dnsServers": ["10.0.0.1"]
    });
    let cases: [(&str, Change, Option<&str>); 12] = [
        ("nothing", |_| {}, None),
        (
            "another lease and its resolver",
            |n| {
                n["interfaces"][0]["addresses"] = json!(["10.0.0.9/24"]);
                n["interfaces"][0]["dynamicAddresses"] = json!(["10.0.0.9/24"]);
                n["dnsServers"] = json!(["10.0.0.2"]);
            },
            None,
        ),
        ("an unused card gone, an unused one new", |n| n["interfaces"][2]["name"] = json!("eno4"), None),
        (
            "an advertised route",
            |n| n["routes"].as_array_mut().unwrap().push(json!({"destination": "::/0", "dynamic": true})),
            None,
        ),
        (
            "another form of the same routes",
            |n| {
                let connected = json!({"destination": "192.0.2.0/24", "gateway": "", "interface": "eno2"});
                n["routes"].as_array_mut().unwrap().push(connected);
                n["routes"][1]["destination"] = json!("default");
            },
            None,
        ),
        (
            "VLAN",
            |n| n["interfaces"][3]["vlan"]["id"] = json!(13),
            Some("v12: VLAN is 13 of eno2 instead of 12 of eno2"),
        ),
        (
            "bond",
            |n| n["interfaces"][4]["bond"]["mode"] = json!("balance-rr"),
            Some("bond0: mode is balance-rr instead of 802.3ad"),
        ),
        (
            "a static address",
            |n| n["interfaces"][1]["addresses"] = json!(["192.0.2.8/24"]),
            Some("eno2: address 192.0.2.7/24 is gone; eno2: address 192.0.2.8/24 is new"),
        ),
        (
            "a lease frozen",
            |n| {
                n["interfaces"][0]["dhcp4"] = json!(false);
                n["interfaces"][0]["dynamicAddresses"] = json!([]);
            },
            Some("eno1: IPv4 comes no longer from DHCP; eno1: address 10.0.0.5/24 is new"),
        ),
        (
            "the route",
            |n| n["routes"] = json!([]),
            Some(
                "route 0.0.0.0/0 via 192.0.2.1 dev eno2 is gone; route 198.51.100.0/24 via 192.0.2.1 dev eno2 is gone",
            ),
        ),
        (
            "another card, another MTU",
            |n| {
                n["interfaces"][1]["mac"] = json!("02:00:00:00:00:09");
                n["interfaces"][1]["mtu"] = json!(1500);
            },
            Some(
                "eno2: MAC address is 02:00:00:00:00:09 instead of 02:00:00:00:00:02; eno2: MTU is 1500 instead of 9000",
            ),
        ),
        (
            "an interface",
            |n| drop(n["interfaces"].as_array_mut().unwrap().remove(1)),
            Some("interface eno2 is gone"),
        ),
    ];
    for (name, change, want) in cases {
        let mut later = intended.clone();
        change(&mut later);
        let network = |value: Value| serde_json::from_value(value).unwrap();
        assert_eq!(describe_drift(&network(intended.clone()), &network(later)).as_deref(), want, "{name}");
    }
}

#[test]
fn a_long_list_of_changes_is_cut_and_counted() {
    let addresses: Vec<_> = (1..=20).map(|host| format!("192.0.2.{host}/32")).collect();
    let with = |addresses: Vec<String>| {
        serde_json::from_value(json!({"interfaces": [{"name": "a", "addresses": addresses}]})).unwrap()
    };
    let message = describe_drift(&with(addresses), &with(vec!["198.51.100.1/32".into()])).unwrap();
    assert!(message.ends_with("; and 13 more"), "{message}");
}

prop_compose! {
    fn nic(index: u8)(
        fixed in prop::collection::btree_set(1..100u8, 0..4),
        leased in prop::collection::btree_set(100..200u8, 0..3),
        dhcp4: bool,
        mtu in prop::sample::select(vec![0u32, 1500, 9000]),
        master in prop::sample::select(vec!["", "", "bond0"]),
    ) -> wire::Interface {
        let net = |host: &u8| format!("10.{index}.0.{host}/24");
        let leased: Vec<_> = leased.iter().map(net).collect();
        wire::Interface {
            name: format!("eno{index}"),
            mac: format!("02:00:00:00:00:{index:02X}"),
            permanent_mac: format!("02:00:00:00:01:{index:02x}"),
            mtu,
            addresses: fixed.iter().map(net).chain(leased.iter().cloned()).chain([format!("fe80::{index}/64")]).collect(),
            dynamic_addresses: leased,
            master: master.into(),
            dhcp4,
            ..Default::default()
        }
    }
}

prop_compose! {
    fn host()(nics in (nic(1), nic(2), nic(3)), id in 1..4095u32, link in 1..4usize, routes in 0..3usize) -> wire::ObservedNetwork {
        let mut interfaces = vec![nics.0, nics.1, nics.2];
        if interfaces.iter().any(|nic| nic.master == "bond0") {
            interfaces.push(wire::Interface {
                name: "bond0".into(), kind: "bond".into(), addresses: vec!["10.9.0.1/24".into()], mtu: 9000, ..Default::default()
            });
        }
        interfaces.push(wire::Interface {
            name: "v".into(), kind: "vlan".into(), addresses: vec!["2001:db8::1/64".into()],
            vlan: Some(wire::Vlan { id, link: format!("eno{link}") }), ..Default::default()
        });
        let route = |index: usize| wire::Route {
            destination: format!("198.51.{index}.0/24"), gateway: "2001:db8::2".into(), interface: "v".into(), ..Default::default()
        };
        let routes = (0..routes).map(|index| wire::Route { destination: format!("2001:db8:{index}::/48"), ..route(index) }).collect();
        wire::ObservedNetwork { interfaces, routes, ..Default::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_replay_holds_each_static_address_once_and_no_lease(given in host()) {
        let taken = parse_observed(given.clone()).network;
        prop_assert_eq!(describe_drift(&taken, &taken), None);
        let spec = MachineInventorySpec { observed_network: Some(taken), ..Default::default() };
        let text = network_config(&spec).unwrap().unwrap();
        let rendered: serde_norway::Value = serde_norway::from_str(&text).unwrap();
        let mut found = Vec::new();
        for kind in ["ethernets", "bonds", "vlans"] {
            for (name, device) in rendered[kind].as_mapping().into_iter().flatten() {
                let name = name.as_str().unwrap();
                let source = given.interfaces.iter().find(|interface| interface.name == name).unwrap();
                if kind == "ethernets" {
                    prop_assert_eq!(device["match"]["macaddress"].as_str(), Some(source.permanent_mac.as_str()));
                    prop_assert_eq!(device["set-name"].as_str(), Some(name));
                }
                prop_assert_eq!(device["dhcp4"].as_bool().unwrap_or(false), source.dhcp4 && source.master.is_empty());
                found.extend(device["addresses"].as_sequence().into_iter().flatten().map(|a| a.as_str().unwrap().to_owned()));
            }
        }
        let unique: BTreeSet<_> = found.iter().cloned().collect();
        prop_assert_eq!(unique.len(), found.len());
        let want = given.interfaces.iter().filter(|interface| interface.master.is_empty()).flat_map(|interface| {
            interface.addresses.iter().filter(|a| !a.starts_with("fe80") && !interface.dynamic_addresses.contains(a)).cloned()
        });
        prop_assert_eq!(unique, want.collect::<BTreeSet<_>>());
    }
}
