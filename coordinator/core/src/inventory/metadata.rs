//! Labels and annotations of an inventory: the facts of the host, overridden by the labels and
//! annotations of the registration.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::inventory::{KeyClass, MachineInventory};
use coordinator_api::names::{annotation, label};
use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt as _;
use proto::v1alpha1::{HostFacts, OperatingSystem};

use super::template::{self, Values};
use super::{Draft, Skipped, inventory_settings};

/// Prefix of the facts of a host, unless the registration has another one.
const DEFAULT_PREFIX: &str = "elemental.cattle.io";
const NO_PREFIX: &str = "-";
/// Prefixes of keys that are written only at creation, because operators and controllers change them.
const OURS: [&str; 2] = ["baremetal.cluster.io/", "baremetal.alauda.io/"];

/// Changed labels and annotations of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refresh {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

pub(super) fn template_values(
    registration: &MachineRegistration,
    facts: &HostFacts,
    random: [u8; 32],
) -> Values {
    let is_hidden = inventory_settings(registration).is_some_and(|settings| settings.no_smbios);
    if is_hidden {
        Values::with_random(random)
    } else {
        Values::new(proto::facts::fact_values(facts), random)
    }
}

impl Draft {
    /// Sets the labels and annotations.
    pub(super) fn take_metadata(
        &mut self,
        registration: &MachineRegistration,
        facts: &HostFacts,
        class: KeyClass,
        values: &Values,
    ) {
        let spec = &registration.spec;
        let stated = inventory_settings(registration).map(|settings| &settings.labels);
        for (key, text) in stated.into_iter().flatten() {
            if let Some(key) = self.check_key(&prefixed(registration, key)) {
                self.labels.insert(key, template::sanitise_label(text));
            }
        }
        for (key, text) in system_annotations(facts, class) {
            if let Some(key) = self.check_key(&prefixed(registration, key)) {
                self.annotations.insert(key, template::sanitise_annotation(&text));
            }
        }
        for (key, text) in &spec.machine_inventory_labels {
            if let Some(text) = self.render_value(key, text, values) {
                self.labels.insert(key.clone(), template::sanitise_label(&text));
            }
        }
        for (key, text) in &spec.machine_inventory_annotations {
            if let Some(text) = self.render_value(key, text, values) {
                self.annotations.insert(key.clone(), template::sanitise_annotation(&text));
            }
        }
    }

    /// Skips an invalid key, because the API server would reject the inventory.
    fn check_key(&mut self, key: &str) -> Option<String> {
        if template::is_key(key) {
            return Some(key.to_owned());
        }
        let why = "the key is not valid for a label or annotation".to_owned();
        self.skipped.push(Skipped { key: key.to_owned(), why });
        None
    }

    fn render_value(&mut self, key: &str, text: &str, values: &Values) -> Option<String> {
        self.check_key(key)?;
        let rendered = values.render_template(text);
        if rendered.missing.is_empty() {
            return Some(rendered.text);
        }
        let why = format!("the host does not report {}", rendered.missing.join(", "));
        self.skipped.push(Skipped { key: key.to_owned(), why });
        None
    }
}

fn prefixed(registration: &MachineRegistration, key: &str) -> String {
    match registration.spec.label_prefix.as_deref().unwrap_or(DEFAULT_PREFIX) {
        "" | NO_PREFIX => key.to_owned(),
        prefix => format!("{prefix}/{key}"),
    }
}

/// The annotations that the elemental operator's client sends. Unknown facts are left out.
fn system_annotations(facts: &HostFacts, class: KeyClass) -> Vec<(&'static str, String)> {
    let os = facts.operating_system.clone().unwrap_or_default();
    let OperatingSystem { name, version, version_id, id, pretty_name, image, cpe_name } = os;
    let auth = match class {
        KeyClass::Emulated => "emulated-tpm",
        KeyClass::Hardware | KeyClass::Unverified => "tpm",
    };
    let mut stated = vec![
        ("reg-version", facts.agent_version.clone()),
        ("os.name", name),
        ("os.version", version),
        ("os.version-id", version_id),
        ("os.id", id),
        ("os.pretty-name", pretty_name),
        ("os.image", image),
        ("os.cpe-name", cpe_name),
        ("registration-ip", facts.registration_address.clone()),
    ];
    // An agent that reports no facts shows no class either.
    if stated.iter().any(|(_, text)| !text.is_empty()) {
        stated.push(("auth", auth.to_owned()));
    }
    stated.retain(|(_, text)| !text.is_empty() && text.len() <= 1024);
    stated
}

/// What registration and host render now.
fn draft_again(registration: &MachineRegistration, inventory: &MachineInventory, facts: &HostFacts) -> Draft {
    let class = KeyClass::of(inventory).unwrap_or(KeyClass::Emulated);
    let mut random = [0; 32];
    // New hosts draw random values from the hash, too.
    if let Some(hash) = &inventory.spec.tpm_hash {
        let _ = hex::decode_to_slice(hash, &mut random);
    }
    let values = template_values(registration, facts, random);
    let mut now = Draft::default();
    now.take_metadata(registration, facts, class, &values);
    now
}

/// The labels and annotations that registration and host now render differently; `None` if there is
/// none. Random values stay, as do keys that the registration no longer names.
pub fn refresh_inventory(
    registration: &MachineRegistration,
    inventory: &MachineInventory,
    facts: &HostFacts,
) -> Option<Refresh> {
    let now = draft_again(registration, inventory, facts);
    let spec = &registration.spec;
    // Pools select by labels. Root on a host that was given to a tenant could state the facts of another
    // pool, so that its labels are the operator's from then on.
    let labels = if keeps_labels(inventory) { Texts::new() } else { now.labels };
    let refresh = Refresh {
        labels: select_changed(labels, inventory.labels(), &spec.machine_inventory_labels),
        annotations: select_changed(
            now.annotations,
            inventory.annotations(),
            &spec.machine_inventory_annotations,
        ),
    };
    debug_assert!(!refresh.annotations.contains_key(annotation::APPROVAL));
    (refresh != Refresh::default()).then_some(refresh)
}

/// The labels that [`refresh_inventory`] does not write, because the host was claimed.
pub fn stale_labels(
    registration: &MachineRegistration,
    inventory: &MachineInventory,
    facts: &HostFacts,
) -> BTreeMap<String, String> {
    if !keeps_labels(inventory) {
        return Texts::new();
    }
    let now = draft_again(registration, inventory, facts);
    select_changed(now.labels, inventory.labels(), &registration.spec.machine_inventory_labels)
}

/// Labels of the hosts of a registration, as far as they are known before a host registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeseenLabels {
    /// Labels with the same value on each host.
    pub fixed: BTreeMap<String, String>,
    /// Keys of the labels whose value the host states, or is drawn.
    pub stated: BTreeSet<String>,
}

/// The label of the class of a host's key is in neither set.
pub fn foresee_labels(registration: &MachineRegistration) -> ForeseenLabels {
    let (mut nothing, values) = (Draft::default(), Values::with_random([0; 32]));
    nothing.take_metadata(registration, &HostFacts::default(), KeyClass::Emulated, &values);
    let states_facts = !inventory_settings(registration).is_some_and(|settings| settings.no_smbios);
    let is_stated = |text: &str| {
        template::is_random(text) || (states_facts && !values.render_template(text).missing.is_empty())
    };
    let templates = registration.spec.machine_inventory_labels.iter();
    let stated = templates.filter(|(key, text)| template::is_key(key) && is_stated(text));
    let mut stated: BTreeSet<_> = stated.map(|(key, _)| key.clone()).collect();
    let mut fixed = nothing.labels;
    fixed.retain(|key, _| !stated.contains(key));
    for ours in [label::MANAGED, label::IDENTITY_CLASS] {
        stated.remove(ours);
        fixed.remove(ours);
    }
    fixed.insert(label::MANAGED.to_owned(), "true".to_owned());
    ForeseenLabels { fixed, stated }
}

type Texts = BTreeMap<String, String>;

/// The host is claimed, or a plan was written for it. The status tells so of hosts whose plans are older than the
/// annotation, and the annotation tells so after a restore without status.
fn keeps_labels(inventory: &MachineInventory) -> bool {
    inventory.claim().is_some()
        || inventory.annotations().contains_key(annotation::HAD_PLAN)
        || inventory.plan().is_some_and(|plan| plan.generation.is_some())
}

fn select_changed(new: Texts, old: &Texts, templates: &Texts) -> Texts {
    let changed = new.into_iter().filter(|(key, text)| {
        let is_drawn = templates.get(key).is_some_and(|text| template::is_random(text));
        let is_ours = OURS.iter().any(|prefix| key.starts_with(prefix));
        old.get(key) != Some(text) && !is_ours && !(is_drawn && old.contains_key(key))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn registration(spec: &Value) -> MachineRegistration {
        let object = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
            "metadata": { "name": "reg" }, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn inventory(labels: &Value, annotations: &Value) -> MachineInventory {
        let object = json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
            "metadata": { "name": "a", "labels": labels, "annotations": annotations },
            "spec": { "tpmHash": "07".repeat(32) },
        });
        serde_json::from_value(object).unwrap()
    }

    fn facts() -> HostFacts {
        let os = OperatingSystem { name: "Lab".into(), image: "os:v1".into(), ..Default::default() };
        HostFacts {
            hostname: "host a".into(),
            operating_system: Some(os),
            agent_version: "1.0".into(),
            registration_address: "192.0.2.1".into(),
            ..HostFacts::default()
        }
    }

    fn drafted(spec: &Value) -> Draft {
        let (registration, mut draft) = (registration(spec), Draft::default());
        let values = template_values(&registration, &facts(), [7; 32]);
        draft.take_metadata(&registration, &facts(), KeyClass::Emulated, &values);
        draft
    }

    #[test]
    fn labels_of_a_claimed_host_are_the_operators() {
        let registration = registration(
            &json!({ "machineInventoryLabels": { "rack": "${System Data/Host/Name}", "zone": "b" } }),
        );
        let refreshed = |annotations: &Value, status: Value| {
            let mut inventory = inventory(&json!({ "zone": "a" }), annotations);
            inventory.status = serde_json::from_value(status).unwrap();
            refresh_inventory(&registration, &inventory, &facts()).unwrap()
        };
        let held = json!({ annotation::POOL: "workers" });
        assert_eq!(refreshed(&held, json!({})).labels["zone"], "b", "a pool holds hosts without a plan");
        let plan = json!({ "plan": { "id": "clean-1", "generation": 1 } });
        for (name, annotations, status) in [
            ("by its status", json!({}), plan),
            ("restored without status", json!({ annotation::HAD_PLAN: "true" }), json!(null)),
            ("restored with its owner", json!({ annotation::OWNER_BAREMETAL_MACHINE: "m-1" }), json!(null)),
        ] {
            let claimed = refreshed(&annotations, status);
            assert_eq!(claimed.labels, Texts::new(), "{name}");
            assert!(!claimed.annotations.is_empty(), "{name}: the facts of the host are shown");
        }
    }

    #[test]
    fn labels_that_a_claimed_host_keeps_are_stale() {
        let spec = json!({ "machineInventoryLabels": {
            "rack": "${Runtime/Hostname}", "zone": "b", "drawn": "${Random/Hex/8}", "lost": "${Product/UUID}",
        } });
        let stale = |labels: Value, status: Value| {
            let mut inventory = inventory(&labels, &json!({}));
            inventory.status = serde_json::from_value(status).unwrap();
            stale_labels(&registration(&spec), &inventory, &facts())
        };
        let plan = json!({ "plan": { "id": "clean-1", "generation": 1 } });
        let current = json!({ "rack": "host-a", "zone": "b", "drawn": "kept", "lost": "kept" });
        let other = json!({ "rack": "r1", "zone": "b", "drawn": "kept" });
        assert_eq!(stale(other.clone(), json!({})), Texts::new(), "it is written");
        assert_eq!(stale(current, plan.clone()), Texts::new());
        assert_eq!(stale(other, plan), Texts::from([("rack".to_owned(), "host-a".to_owned())]));
    }

    #[test]
    fn labels_of_hosts_to_come_are_foreseen() {
        let templates = json!({
            "zone": "a b", "rack": "${Runtime/Hostname}", "drawn": "x${Random/Hex/8}", "Bad/Key": "c",
            "elemental.cattle.io/managed": "no",
        });
        let foresee = |hides_facts: bool| {
            let settings = json!({ "no-smbios": hides_facts, "labels": { "site": "s", "zone": "z" } });
            let config = json!({ "elemental": { "registration": settings } });
            foresee_labels(&registration(&json!({
                "labelPrefix": "-", "machineInventoryLabels": templates, "config": config,
            })))
        };
        let fixed = [("elemental.cattle.io/managed", "true"), ("site", "s"), ("zone", "a-b")];
        let fixed = fixed.map(|(key, text)| (key.to_owned(), text.to_owned()));
        for (hides_facts, stated) in [(false, &["drawn", "rack"][..]), (true, &["drawn"])] {
            let stated = stated.iter().map(|key| (*key).to_owned()).collect();
            assert_eq!(foresee(hides_facts), ForeseenLabels { fixed: fixed.clone().into(), stated });
        }
    }

    #[test]
    fn host_states_what_upstream_states() {
        let labels =
            json!({ "config": { "elemental": { "registration": { "labels": { "rack": "a b" } } } } });
        for (prefix, want) in
            [(None, "elemental.cattle.io/"), (Some("example.com"), "example.com/"), (Some("-"), "")]
        {
            let mut spec = labels.clone();
            spec["labelPrefix"] = json!(prefix);
            let draft = drafted(&spec);
            assert_eq!(
                draft.labels.get(&format!("{want}rack")).map(String::as_str),
                Some("a-b"),
                "{prefix:?}"
            );
            for (key, value) in [
                ("os.name", "Lab"),
                ("os.image", "os:v1"),
                ("reg-version", "1.0"),
                ("registration-ip", "192.0.2.1"),
                ("auth", "emulated-tpm"),
            ] {
                let found = draft.annotations.get(&format!("{want}{key}")).map(String::as_str);
                assert_eq!(found, Some(value), "{prefix:?} {key}");
            }
            assert_eq!(draft.annotations.len(), 5, "what is unknown is left out");
        }
        let own = json!({ "machineInventoryAnnotations": { "elemental.cattle.io/os.name": "mine" } });
        assert_eq!(drafted(&own).annotations["elemental.cattle.io/os.name"], "mine");
    }

    #[test]
    fn refresh_writes_what_has_changed() {
        let spec = json!({
            "machineInventoryLabels": {
                "name": "${Runtime/Hostname}", "drawn": "${Random/Hex/8}", "lost": "${Product/UUID}",
                "baremetal.cluster.io/mine": "x",
            },
        });
        let stated = json!({
            "elemental.cattle.io/os.name": "Lab", "elemental.cattle.io/os.image": "os:v1",
            "elemental.cattle.io/reg-version": "1.0", "elemental.cattle.io/registration-ip": "192.0.2.1",
            "elemental.cattle.io/auth": "emulated-tpm",
        });
        let mut older = stated.clone();
        older["elemental.cattle.io/os.image"] = json!("os:v0");
        let kept = json!({ "name": "host-a", "drawn": "kept", "lost": "kept", "other": "kept" });
        for (name, labels, annotations, want) in [
            ("nothing", &kept, &stated, vec![]),
            ("another image", &kept, &older, vec!["elemental.cattle.io/os.image"]),
            ("another host name", &json!({ "name": "b", "drawn": "kept" }), &stated, vec!["name"]),
            ("a new template", &json!({ "name": "host-a" }), &stated, vec!["drawn"]),
        ] {
            let refresh = refresh_inventory(&registration(&spec), &inventory(labels, annotations), &facts());
            let refresh = refresh.unwrap_or_default();
            let keys: Vec<_> = refresh.labels.keys().chain(refresh.annotations.keys()).collect();
            assert_eq!(keys, want.iter().collect::<Vec<_>>(), "{name}");
        }
    }
}
