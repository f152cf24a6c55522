//! Networks of many forms: what is replayed of each.

use std::collections::BTreeSet;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_core::network::{describe_drift, parse_observed};
use proptest::prelude::*;
use proto::v1alpha1 as wire;

use super::network_config;

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
    fn replay_holds_static_addresses_once_without_leases(given in host()) {
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
