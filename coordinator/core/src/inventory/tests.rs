use coordinator_api::inventory::KeyClass;
use serde_json::json;

use super::*;

fn drafted(network: &Value) -> Draft {
    let registration: MachineRegistration = serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1",
        "kind": "MachineRegistration",
        "metadata": { "name": "reg", "namespace": "fleet" },
        "spec": { "machineName": "m-${Random/Hex/8}", "config": { "network": network } },
    }))
    .unwrap();
    let identity = Identity { hash: "h", class: KeyClass::Hardware };
    draft_inventory(&registration, &HostFacts::default(), identity, &[7; 32]).unwrap()
}

#[test]
fn inventory_takes_network_of_its_registration() {
    let config = json!({ "version": 2, "ethernets": { "a": { "addresses": ["{inside}/24"] } } });
    let pool = json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "pool" });
    let draft = drafted(&json!({
        "configurator": "none", "config": config, "ipAddresses": { "inside": pool },
    }));
    let network = draft.network.unwrap();
    assert_eq!(network.configurator, Configurator::None);
    assert_eq!(network.config, Some(config));
    assert!(network.ip_addresses.is_empty(), "a pool is no address");
    assert_eq!(draft.ip_address_pools, BTreeMap::from([("inside".to_owned(), pool)]));
}

#[test]
fn registration_without_network_leaves_it_to_host() {
    for (name, network, want) in [
        ("no network", json!(null), None),
        ("an empty one", json!({}), None),
        ("as the API server defaults it", json!({ "configurator": "none", "ipAddresses": {} }), None),
        ("an empty configuration", json!({ "configurator": "none", "config": {} }), None),
        ("another language", json!({ "configurator": "nmstate", "config": {} }), Some(Configurator::Nmstate)),
    ] {
        let network = drafted(&network).network.map(|network| network.configurator);
        assert_eq!(network, want, "{name}");
    }
}
