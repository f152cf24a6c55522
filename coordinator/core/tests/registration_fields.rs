//! What becomes of each field of a `MachineRegistration`: nothing is accepted
//! and ignored without a word.

use std::collections::BTreeSet;

use coordinator_api::registration::{MachineRegistration, MachineRegistrationSpec};
use coordinator_core::inventory::check_registration;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

/// What becomes of a field.
enum Fate {
    /// Where it takes effect.
    Used(&'static str),
    /// With this value no host registers; the message names the field.
    Refused(&'static str),
    /// With this value the condition `FieldsIgnored` names the field.
    Warned(&'static str),
}

use Fate::{Refused, Used, Warned};

const INSTALL: &str = "the install command of the live system";
const NAMING: &str = "name, labels and annotations of the inventory";
const ADMISSION: &str = "which hosts are taken";

const FIELDS: &[(&str, &[Fate])] = &[
    ("spec.approval", &[Used(ADMISSION)]),
    ("spec.labelPrefix", &[Used(NAMING)]),
    ("spec.machineInventoryAnnotations", &[Used(NAMING)]),
    ("spec.machineInventoryLabels", &[Used(NAMING)]),
    ("spec.machineName", &[Used(NAMING)]),
    ("spec.maxHosts", &[Used(ADMISSION)]),
    ("spec.newHostsPerMinute", &[Used(ADMISSION)]),
    ("spec.token", &[Used("the token's Secret")]),
    ("spec.tokenExpiresAt", &[Used(ADMISSION)]),
    ("spec.config.cloud-config", &[Used("user-data, or stages of yip")]),
    ("spec.config.network.config", &[Used("spec.network of the inventory")]),
    ("spec.config.network.configurator", &[Used("spec.network of the inventory"), Refused("\"nmstate\"")]),
    ("spec.config.network.ipAddresses", &[Used("spec.ipAddressPools of the inventory")]),
    ("spec.config.elemental.system-agent", &[Warned("{}")]),
    ("spec.config.elemental.install.allow-erase", &[Used(INSTALL)]),
    ("spec.config.elemental.install.config-dir", &[Warned("\"/x\"")]),
    ("spec.config.elemental.install.config-urls", &[Used(INSTALL)]),
    ("spec.config.elemental.install.debug", &[Used(INSTALL)]),
    ("spec.config.elemental.install.device", &[Used(INSTALL)]),
    ("spec.config.elemental.install.device-selector[].key", &[Used(INSTALL)]),
    ("spec.config.elemental.install.device-selector[].operator", &[Used(INSTALL)]),
    ("spec.config.elemental.install.device-selector[].values", &[Used(INSTALL)]),
    ("spec.config.elemental.install.disable-boot-entry", &[Used(INSTALL)]),
    ("spec.config.elemental.install.eject-cd", &[Used(INSTALL)]),
    ("spec.config.elemental.install.firmware", &[Warned("\"efi\"")]),
    ("spec.config.elemental.install.iso", &[Refused("\"https://c.example/a.iso\"")]),
    ("spec.config.elemental.install.no-format", &[Used(INSTALL)]),
    ("spec.config.elemental.install.poweroff", &[Used(INSTALL)]),
    ("spec.config.elemental.install.reboot", &[Used(INSTALL)]),
    ("spec.config.elemental.install.snapshotter.maxSnaps", &[Used(INSTALL)]),
    ("spec.config.elemental.install.snapshotter.type", &[Used(INSTALL), Refused("\"zfs\"")]),
    ("spec.config.elemental.install.system-uri", &[Used(INSTALL)]),
    ("spec.config.elemental.install.tty", &[Warned("\"ttyS0\"")]),
    (
        "spec.config.elemental.registration.auth",
        &[Used("the seed ISO"), Refused("\"mac\""), Refused("\"sys-uuid\"")],
    ),
    ("spec.config.elemental.registration.ca-cert", &[Warned("\"x\"")]),
    ("spec.config.elemental.registration.emulate-tpm", &[Used(ADMISSION)]),
    ("spec.config.elemental.registration.emulated-tpm-seed", &[Used("-1 is a random key"), Warned("1")]),
    ("spec.config.elemental.registration.https-proxy", &[Used("the seed ISO")]),
    ("spec.config.elemental.registration.labels", &[Used(NAMING)]),
    ("spec.config.elemental.registration.no-proxy", &[Used("the seed ISO")]),
    ("spec.config.elemental.registration.no-smbios", &[Used(NAMING)]),
    ("spec.config.elemental.registration.no-toolkit", &[Refused("true")]),
    ("spec.config.elemental.registration.url", &[Warned("\"x\"")]),
    ("spec.config.elemental.reset.config-urls", &[Warned("[\"x\"]")]),
    ("spec.config.elemental.reset.debug", &[Warned("true")]),
    ("spec.config.elemental.reset.disable-boot-entry", &[Warned("true")]),
    ("spec.config.elemental.reset.enabled", &[Refused("true")]),
    ("spec.config.elemental.reset.poweroff", &[Warned("true")]),
    ("spec.config.elemental.reset.reboot", &[Warned("false")]),
    ("spec.config.elemental.reset.reset-oem", &[Warned("false")]),
    ("spec.config.elemental.reset.reset-persistent", &[Warned("false")]),
    ("spec.config.elemental.reset.system-uri", &[Warned("\"x\"")]),
];

fn list_leaves(path: &str, schema: &Value, leaves: &mut BTreeSet<String>) {
    let members = schema["properties"].as_object().into_iter().flatten();
    for (name, member) in members.clone() {
        list_leaves(&format!("{path}.{name}"), member, leaves);
    }
    let items = &schema["items"];
    if items["properties"].is_object() {
        list_leaves(&format!("{path}[]"), items, leaves);
    } else if members.count() == 0 {
        leaves.insert(path.to_owned());
    }
}

#[test]
fn every_field_is_played() {
    let crd = serde_json::to_value(MachineRegistration::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut leaves = BTreeSet::new();
    list_leaves("spec", schema, &mut leaves);
    let listed: BTreeSet<_> = FIELDS.iter().map(|(field, _)| (*field).to_owned()).collect();
    let missing: Vec<_> = leaves.difference(&listed).collect();
    assert!(missing.is_empty(), "say what becomes of {missing:?}: used, refused or warned of");
    let gone: Vec<_> = listed.difference(&leaves).collect();
    assert!(gone.is_empty(), "{gone:?} are no fields");
}

fn with_field(field: &str, value: &str) -> MachineRegistration {
    let value: Value = serde_json::from_str(value).unwrap();
    let path = field.split('.').skip(1).collect::<Vec<_>>();
    let spec = path.into_iter().rev().fold(value, |inner, name| json!({ name: inner }));
    let spec: MachineRegistrationSpec = serde_json::from_value(spec).unwrap();
    MachineRegistration::new("rack", spec)
}

#[test]
fn what_is_not_used_is_named() {
    for (field, cases) in FIELDS {
        for case in *cases {
            match case {
                Used(place) => assert!(!place.is_empty(), "{field}"),
                Refused(value) => {
                    let refusal = check_registration(&with_field(field, value)).refusal().unwrap_or_default();
                    assert!(refusal.starts_with(field) && refusal.contains(": "), "{field}: {refusal:?}");
                }
                Warned(value) => {
                    let unsupported = check_registration(&with_field(field, value));
                    assert!(
                        unsupported.ignored.iter().any(|ignored| field.starts_with(ignored)),
                        "{field}: {unsupported:?}"
                    );
                }
            }
        }
    }
}
