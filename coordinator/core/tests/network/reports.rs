//! Reports of networks: parsed in canonical form, without what cannot be
//! replayed.

use coordinator_core::network::{Observation, parse_observed};
use proto::v1alpha1 as wire;
use serde_json::json;

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
            ..Default::default()
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

#[test]
fn parts_that_no_plan_replays_are_told() {
    let mut given = report();
    let bond = given.interfaces[0].bond.as_mut().unwrap();
    bond.unsupported = vec!["use_carrier=0".into(), "x".repeat(65), "a\nb".into()];
    bond.up_delay = 200;
    bond.gratuitous_arp = Some(0);
    (bond.arp_interval, bond.arp_ip_targets) = (500, vec!["192.0.2.1".into(), "192.0.2.2".into()]);
    given.interfaces.push(wire::Interface {
        name: "eno1".into(),
        master: format!("team\n{}", "0".repeat(1000)),
        ..Default::default()
    });
    let network = parse_observed(given).network;
    let bond = network.interfaces[0].bond.as_ref().unwrap();
    assert_eq!((bond.up_delay, bond.gratuitous_arp, bond.arp_interval), (Some(200), Some(0), Some(500)));
    let want = [
        "interface bond0: network-config has no use_carrier=0",
        "interface bond0: network-config has no odd parameter",
        "interface bond0: network-config has no odd parameter",
        "interface bond0: network-config has no arp_interval=500",
        "interface bond0: network-config has no arp_ip_target=192.0.2.1,192.0.2.2",
    ];
    assert_eq!(network.not_replayed[..5], want);
    let master = &network.not_replayed[5];
    assert!(master.starts_with("interface eno1: its master team0") && master.len() == 200, "{master}");
}

#[test]
fn hostile_parameters_of_a_bond_are_refused() {
    type Spoil = fn(&mut wire::Bond);
    let cases: [(&str, Spoil); 4] = [
        ("choice", |bond| bond.ad_select = "a b".into()),
        ("long choice", |bond| bond.fail_over_mac = "x".repeat(33)),
        ("target", |bond| bond.arp_ip_targets = vec!["x".into()]),
        ("targets", |bond| bond.arp_ip_targets = vec!["192.0.2.1".into(); 17]),
    ];
    for (name, spoil) in cases {
        let mut given = report();
        spoil(given.interfaces[0].bond.as_mut().unwrap());
        let Observation { network, dropped } = parse_observed(given);
        assert!(network.interfaces.is_empty() && !dropped.is_empty(), "{name}");
    }
}
