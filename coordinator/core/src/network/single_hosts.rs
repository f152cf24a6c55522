//! Networks of single hosts in a seed ISO. A live system finds its network by a MAC address or
//! its SMBIOS UUID, because it needs the network before it can ask the coordinator.

use std::collections::BTreeSet;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::network::{NetworkTemplate, ObservedInterface, RegistrationNetwork};
use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::Value;

use super::{HostNetwork, LiveNetwork, explicit, host_network, parse_mac};

/// Bound of all networks in bytes, because each seed ISO holds them in memory.
const HOSTS_BYTES: usize = 4 * 1024 * 1024;

/// The network of one host, with the keys by which the host is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SingleHost {
    macs: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    network: LiveNetwork,
    #[serde(skip)]
    template: Option<NetworkTemplate>,
}

/// The networks exceed their bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the networks of {count} MachineInventories have more than {HOSTS_BYTES} bytes: divide the hosts between several MachineRegistrations"
)]
pub struct TooManyHosts {
    count: usize,
}

/// The network of the live system of a host: `spec.network`, or the keyfiles of
/// `spec.observedNetwork`. `None` if the live system detects its network, if the network cannot
/// be rendered (the condition of the inventory says so), and if no key identifies the host.
pub fn single_host(inventory: &MachineInventory) -> Option<SingleHost> {
    let spec = &inventory.spec;
    let template = spec
        .network
        .clone()
        .filter(|template| template.config.as_ref().is_some_and(|config| !explicit::is_empty(config)));
    let keyfiles = spec.observed_network.as_ref().is_some_and(|network| !network.connections.is_empty());
    if template.is_none() && !keyfiles {
        return None;
    }
    let network = host_network(spec).ok()?;
    let macs = find_macs(inventory, &network);
    let uuid = find_uuid(inventory);
    let network = LiveNetwork::of_host(network)?;
    (uuid.is_some() || !macs.is_empty()).then_some(SingleHost { macs, uuid, network, template })
}

fn find_uuid(inventory: &MachineInventory) -> Option<String> {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    let reported = host.and_then(|host| host.system_uuid.as_ref());
    let uuid = inventory.annotations().get(annotation::SYSTEM_UUID).or(reported)?;
    Some(uuid.trim().to_lowercase()).filter(|uuid| !uuid.is_empty())
}

/// MAC addresses of the reported cards, and of the cards that the network configures.
fn find_macs(inventory: &MachineInventory, network: &HostNetwork) -> BTreeSet<String> {
    let reported = inventory.spec.observed_network.iter().flat_map(|network| &network.interfaces);
    let cards = reported.filter(|interface| interface.is_card());
    let config = network.network_config.as_deref().unwrap_or("");
    let config: Value = crate::yaml::from_yaml(config).unwrap_or(Value::Null);
    let ethernets = config.get("network").unwrap_or(&config).get("ethernets").and_then(Value::as_object);
    let configured = ethernets.into_iter().flat_map(|ethernets| ethernets.values());
    let configured = configured.filter_map(|card| card.get("match")?.get("macaddress")?.as_str());
    let macs = cards.filter_map(ObservedInterface::card_mac).chain(configured);
    macs.filter_map(|mac| parse_mac("interfaces", Some(mac)).ok().flatten()).collect()
}

/// The file of a seed ISO; `None` if it would be empty. A host with the network of the
/// registration is left out, because the seed ISO has that network already.
pub fn render_single_hosts<'a>(
    hosts: impl IntoIterator<Item = &'a SingleHost>,
    registration: &MachineRegistration,
) -> Result<Option<String>, TooManyHosts> {
    let shared = registration.spec.config.as_ref().and_then(|config| config.network.as_ref());
    let shared = shared.map(RegistrationNetwork::template);
    let hosts = hosts.into_iter().filter(|host| host.template.is_none() || host.template != shared);
    let hosts: Vec<_> = hosts.collect();
    if hosts.is_empty() {
        return Ok(None);
    }
    let text = serde_json::json!({ "hosts": hosts }).to_string();
    if text.len() > HOSTS_BYTES { Err(TooManyHosts { count: hosts.len() }) } else { Ok(Some(text)) }
}

#[cfg(test)]
mod tests {
    use coordinator_api::registration::Config;
    use serde_json::json;

    use super::*;

    fn inventory(spec: &Value) -> MachineInventory {
        let object = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
            "metadata": { "name": "h", "namespace": "fleet" }, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn static_card(mac: &str, address: &str) -> Value {
        let card = json!({ "match": { "macaddress": mac }, "addresses": [address] });
        json!({ "config": { "version": 2, "ethernets": { "eno1": card } } })
    }

    fn registration(network: Option<&Value>) -> MachineRegistration {
        let mut registration = MachineRegistration::default();
        let network = network.map(|network| serde_json::from_value(network.clone()).unwrap());
        registration.spec.config = Some(Config { network, ..Config::default() });
        registration
    }

    #[test]
    fn hosts_are_found_by_cards_and_uuid() {
        type Case<'a> = (&'a str, Value, Option<&'a str>, Option<&'a [&'a str]>);
        let keyfile = "[connection]\ntype=ethernet\ninterface-name=eno2\n[ethernet]\nmac-address=02:00:00:00:00:0B\n[ipv4]\nmethod=auto\n";
        let observed = json!({
            "interfaces": [
                { "name": "eno1", "mac": "02:00:00:00:00:01", "permanentMac": "02-00-00-00-00-0A" },
                { "name": "bond0", "mac": "02:00:00:00:00:01", "kind": "bond" },
            ],
            "connections": { "eno2": keyfile },
        });
        let plain = json!({ "interfaces": [{ "name": "eno1", "mac": "02:00:00:00:00:01", "dhcp4": true }] });
        let explicit = static_card("02:00:00:00:00:0C", "192.0.2.7/24");
        let unbound = json!({ "config": { "version": 2, "ethernets": { "eno1": { "dhcp4": true } } } });
        let broken = json!({ "config": { "version": 1 } });
        let cases: [Case<'_>; 8] = [
            ("nothing", json!({}), Some("U-1"), None),
            ("reported, without keyfiles", json!({ "observedNetwork": plain }), Some("U-1"), None),
            (
                "imported keyfiles",
                json!({ "observedNetwork": observed }),
                None,
                Some(&["02:00:00:00:00:0a", "02:00:00:00:00:0b"]),
            ),
            ("explicit", json!({ "network": explicit }), None, Some(&["02:00:00:00:00:0c"])),
            ("explicit, by UUID", json!({ "network": unbound.clone() }), Some(" U-1"), Some(&[])),
            ("explicit, by nothing", json!({ "network": unbound }), None, None),
            ("explicit, empty", json!({ "network": {} }), Some("U-1"), None),
            ("not rendered", json!({ "network": broken }), Some("U-1"), None),
        ];
        for (name, spec, uuid, want) in cases {
            let mut given = inventory(&spec);
            if let Some(uuid) = uuid {
                given.annotations_mut().insert(annotation::SYSTEM_UUID.into(), uuid.into());
            }
            let found = single_host(&given);
            let macs = found.as_ref().map(|host| host.macs.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(macs.as_deref(), want, "{name}");
            if let Some(host) = found {
                assert_eq!(host.uuid.as_deref(), uuid.map(|_| "u-1"), "{name}");
            }
        }
    }

    #[test]
    fn file_contains_only_host_specific_networks() {
        let own = |address: &str| {
            single_host(&inventory(&json!({ "network": static_card("02:00:00:00:00:0c", address) }))).unwrap()
        };
        let hosts = [own("192.0.2.7/24"), own("192.0.2.8/24")];
        assert_eq!(render_single_hosts([], &registration(None)), Ok(None));
        let shared = registration(Some(&static_card("02:00:00:00:00:0c", "192.0.2.7/24")));
        let text = render_single_hosts(&hosts, &shared).unwrap().unwrap();
        assert!(text.contains("192.0.2.8/24") && !text.contains("192.0.2.7/24"), "{text}");
        let text = render_single_hosts(&hosts, &registration(None)).unwrap().unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["hosts"][0]["macs"], json!(["02:00:00:00:00:0c"]));
        let config = read["hosts"][0]["network"]["network-config"].as_str().unwrap();
        assert!(config.contains("192.0.2.7/24"), "{config}");
        let many = vec![own("192.0.2.9/24"); HOSTS_BYTES / text.len() * 3];
        let error = render_single_hosts(&many, &registration(None)).err().unwrap();
        assert!(error.to_string().contains("several MachineRegistrations"), "{error}");
    }
}
