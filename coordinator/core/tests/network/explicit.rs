//! Networks that an inventory specifies: taken instead of the observed one.

use std::collections::BTreeMap;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_api::network::{Configurator, NetworkTemplate, ObservedNetwork};
use coordinator_core::network::NetworkError;
use serde_json::json;

use super::network_config;

#[test]
fn explicit_network_wins_and_stays_unchanged() {
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
