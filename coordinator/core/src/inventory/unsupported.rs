//! Check of a `MachineRegistration` for unsupported fields, when it is written and not when a host
//! registers.

use coordinator_api::network::RegistrationNetwork;
use coordinator_api::registration::{Install, MachineRegistration, Registration, Reset};
use kube::ResourceExt as _;

use crate::network::{self, NetworkError};

/// The elemental operator's number for a random key, which every host has.
pub const RANDOM_KEY: i64 = -1;

/// Annotations by which another provider tells its agents how they reach the management cluster. Agents
/// here have no access to it.
const FOREIGN_ANNOTATIONS: [&str; 2] =
    ["baremetal.cluster.io/system-agent-server-url", "baremetal.cluster.io/system-agent-direct"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsupportedFields {
    /// Cause and next action for each field that data, identity or a disk depends on; no host can
    /// register.
    pub refused: Vec<String>,
    /// Fields without effect.
    pub ignored: Vec<&'static str>,
}

impl UnsupportedFields {
    /// The reason why hosts cannot register.
    pub fn refusal(&self) -> Option<String> {
        (!self.refused.is_empty()).then(|| self.refused.join("; "))
    }
}

/// Finds the fields that the API accepts and nothing supports.
pub fn check_registration(registration: &MachineRegistration) -> UnsupportedFields {
    let mut unsupported = UnsupportedFields::default();
    let is_set = |key: &&str| registration.annotations().contains_key(*key);
    unsupported.ignored.extend(FOREIGN_ANNOTATIONS.into_iter().filter(is_set));
    let Some(config) = &registration.spec.config else { return unsupported };
    if let Some(network) = &config.network {
        unsupported.check_network(network);
    }
    let Some(elemental) = &config.elemental else { return unsupported };
    if let Some(settings) = &elemental.registration {
        unsupported.check_settings(settings);
    }
    if let Some(reset) = &elemental.reset {
        unsupported.check_reset(reset);
    }
    if let Some(install) = &elemental.install {
        unsupported.check_install(install);
    }
    if elemental.system_agent.as_ref().is_some_and(|agent| !agent.is_null()) {
        unsupported.ignored.push("spec.config.elemental.system-agent");
    }
    unsupported
}

impl UnsupportedFields {
    fn check_network(&mut self, given: &RegistrationNetwork) {
        const FIELD: &str = "spec.config.network";
        if !given.ip_addresses.is_empty() {
            self.refused.push(format!(
                "{FIELD}.ipAddresses is not supported, no address is claimed from a pool: remove it, and write the addresses of a host into spec.network.ipAddresses of its MachineInventory"
            ));
        }
        match network::template_network(&given.template()) {
            // An operator may write the values of placeholders for each host.
            Ok(_) | Err(NetworkError::Placeholder { .. }) => {}
            Err(NetworkError::Configurator { configurator }) => self.refused.push(format!(
                "{FIELD}.configurator is {configurator}, which is not supported: set it to none and write config as network-config v2 of cloud-init, or to nmconnections and write keyfiles of NetworkManager"
            )),
            Err(error) => self.refused.push(format!("{FIELD}.config: {}", error.text())),
        }
    }

    fn check_settings(&mut self, settings: &Registration) {
        if let Some(auth) = settings.auth.as_deref().filter(|auth| !matches!(*auth, "" | "tpm")) {
            let auth: String = auth.chars().take(32).collect();
            self.refused.push(format!(
                "spec.config.elemental.registration.auth is {auth:?}, which proves no identity: set it to tpm"
            ));
        }
        if settings.no_toolkit {
            self.refused.push(
                "spec.config.elemental.registration.no-toolkit is not supported, hosts are installed by elemental: remove it"
                    .to_owned(),
            );
        }
        for (field, is_set) in [
            ("spec.config.elemental.registration.url", settings.url.is_some()),
            ("spec.config.elemental.registration.ca-cert", settings.ca_cert.is_some()),
            (
                "spec.config.elemental.registration.emulated-tpm-seed",
                settings.emulated_tpm_seed.is_some_and(|seed| seed != RANDOM_KEY),
            ),
        ] {
            if is_set {
                self.ignored.push(field);
            }
        }
    }

    fn check_reset(&mut self, reset: &Reset) {
        if reset.enabled {
            self.refused.push(
                "spec.config.elemental.reset.enabled is not supported, hosts are cleaned by plans: remove it"
                    .to_owned(),
            );
        } else if *reset != Reset::default() {
            self.ignored.push("spec.config.elemental.reset");
        }
    }

    fn check_install(&mut self, install: &Install) {
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        if is_set(&install.iso) {
            self.refused.push(
                "spec.config.elemental.install.iso is not supported: name the image in system-uri".to_owned(),
            );
        }
        let kind = install.snapshotter.as_ref().map_or("", |snapshotter| snapshotter.kind.as_str());
        if !matches!(kind, "" | "loopdevice" | "btrfs") {
            let kind: String = kind.chars().take(32).collect();
            self.refused.push(format!(
                "spec.config.elemental.install.snapshotter.type is {kind:?}: set it to loopdevice or btrfs"
            ));
        }
        for (field, text) in [
            ("spec.config.elemental.install.firmware", &install.firmware),
            ("spec.config.elemental.install.tty", &install.tty),
            ("spec.config.elemental.install.config-dir", &install.config_dir),
        ] {
            if is_set(text) {
                self.ignored.push(field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(config: &Value) -> UnsupportedFields {
        let registration = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": "reg" }, "spec": { "config": config },
        });
        check_registration(&serde_json::from_value(registration).unwrap())
    }

    #[test]
    fn unsupported_fields_are_named() {
        let elemental = |value: Value| json!({ "elemental": value });
        for (config, field) in [
            (json!({ "network": { "configurator": "nmc" } }), "spec.config.network.configurator"),
            (json!({ "network": { "configurator": "nmstate" } }), "spec.config.network.configurator"),
            (json!({ "network": { "configurator": "nmconnections" } }), "spec.config.network.config"),
            (json!({ "network": { "config": { "version": 1 } } }), "spec.config.network.config"),
            (json!({ "network": { "ipAddresses": { "a": {} } } }), "spec.config.network.ipAddresses"),
            (
                elemental(json!({ "registration": { "auth": "mac" } })),
                "spec.config.elemental.registration.auth",
            ),
            (
                elemental(json!({ "registration": { "auth": "sys-uuid" } })),
                "spec.config.elemental.registration.auth",
            ),
            (elemental(json!({ "reset": { "enabled": true } })), "spec.config.elemental.reset.enabled"),
        ] {
            let refusal = check(&config).refusal().unwrap();
            assert!(refusal.starts_with(field), "{refusal}");
        }
    }

    #[test]
    fn annotations_of_another_provider_are_ignored() {
        let url = "baremetal.cluster.io/system-agent-server-url";
        let registration = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": "reg", "annotations": { url: "https://m.example", "note": "rack a" } }, "spec": {},
        });
        let found = check_registration(&serde_json::from_value(registration).unwrap());
        assert_eq!(found, UnsupportedFields { ignored: vec![url], ..UnsupportedFields::default() });
    }

    #[test]
    fn supported_fields_pass() {
        for config in [
            json!(null),
            json!({}),
            json!({ "cloud-config": { "stages": {} } }),
            json!({ "cloud-config": { "users": [] }, "network": { "configurator": "none", "config": {} } }),
            json!({ "network": { "config": { "version": 2, "ethernets": { "a": { "addresses": ["{ip}/24"] } } } } }),
            json!({ "network": { "configurator": "nmconnections", "config": { "a": "[connection]\ntype=ethernet\n" } } }),
            json!({ "elemental": {
                "registration": { "auth": "tpm", "emulate-tpm": true, "emulated-tpm-seed": -1 },
                "reset": Reset::default(), "install": { "device": "/dev/sda", "snapshotter": {} },
            } }),
        ] {
            assert_eq!(check(&config), UnsupportedFields::default(), "{config}");
        }
    }
}
