//! From a host that registers to its `MachineInventory`.

pub mod template;

mod facts;
mod identify;
mod install;
mod judge;
mod refusals;

use std::collections::BTreeMap;

use coordinator_api::names::{annotation, label};
use coordinator_api::network::{Configurator, NetworkTemplate, RegistrationNetwork};
use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt;
use proto::v1alpha1::HostFacts;
use serde_json::Value;

pub use identify::{Existing, Hardware, Identified, Identity, KeyClass, identify_host, refuse_key};
pub use install::{InstallError, install_message};
pub use judge::{Judgement, judge_registration};
pub use refusals::{clear_refusal, forget_refusal, record_refusal};
use template::{Field, Rendered, Values};

fn emulates_tpm(registration: &MachineRegistration) -> bool {
    inventory_settings(registration).is_some_and(|registration| registration.emulate_tpm)
}

fn inventory_settings(
    registration: &MachineRegistration,
) -> Option<&coordinator_api::registration::Registration> {
    registration.spec.config.as_ref()?.elemental.as_ref()?.registration.as_ref()
}

/// An inventory to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// Fixed at creation, never changed.
    pub name: String,
    /// Labels, those of the registration and ours.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the registration.
    pub annotations: BTreeMap<String, String>,
    /// `spec.network`: the registration's, unless empty.
    pub network: Option<NetworkTemplate>,
    /// `spec.ipAddressPools`: the registration's.
    pub ip_address_pools: BTreeMap<String, Value>,
    /// What of the registration could not be rendered for this host.
    pub skipped: Vec<Skipped>,
}

/// A label or annotation that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its key.
    pub key: String,
    /// Cause and next action, for the message.
    pub why: String,
}

/// Why a host gets no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The host does not report what the name is made of. A made-up name would
    /// hide that, and a second registration would make up another one.
    #[error(
        "spec.machineName of the MachineRegistration names {missing}, which this host does not report: use another key ({offered})"
    )]
    Unresolved {
        /// The keys, separated by commas.
        missing: String,
        /// What the host does report, cut.
        offered: String,
    },
    /// What is rendered is no name of a Kubernetes object.
    #[error(
        "spec.machineName of the MachineRegistration renders to {name:?}, which is no object name: add letters or digits"
    )]
    Name {
        /// What was rendered.
        name: String,
    },
}

/// Used when a registration names no template.
const DEFAULT_NAME: &str = "m-${System Information/UUID}";
/// Keys listed in one message.
const MAX_LISTED: usize = 12;

/// Renders name, labels and annotations of a new inventory. `random` feeds the
/// keys below `Random/`: the same bytes give the same values, so that with the
/// hash of the host's key a call that is repeated makes nothing new.
///
/// # Errors
/// [`TemplateError`] when there is no name. Labels and annotations that cannot
/// be rendered are left out and listed.
pub fn draft_inventory(
    registration: &MachineRegistration,
    facts: &HostFacts,
    identity: Identity<'_>,
    random: &[u8; 32],
) -> Result<Draft, TemplateError> {
    let hidden = inventory_settings(registration).is_some_and(|registration| registration.no_smbios);
    let values =
        if hidden { Values::with_random(*random) } else { Values::new(facts::fact_values(facts), *random) };
    let spec = &registration.spec;
    let mut draft = Draft {
        name: render_name(spec.machine_name.as_deref().unwrap_or(DEFAULT_NAME), &values)?,
        ..Draft::default()
    };
    for (key, text) in &spec.machine_inventory_labels {
        draft.take_rendered(key, Field::Label, &values.render_template(text));
    }
    for (key, text) in &spec.machine_inventory_annotations {
        draft.take_rendered(key, Field::Annotation, &values.render_template(text));
    }
    if let Some(network) = spec.config.as_ref().and_then(|config| config.network.as_ref()) {
        draft.network = explicit_network(network);
        draft.ip_address_pools.clone_from(&network.ip_addresses);
    }
    draft.annotations.insert(annotation::REGISTRATION.to_owned(), registration.name_any());
    draft.labels.insert(label::MANAGED.to_owned(), "true".to_owned());
    draft.labels.insert(label::IDENTITY_CLASS.to_owned(), identity.class.as_str().to_owned());
    Ok(draft)
}

/// The network of a registration for one host. An empty one is left
/// out: the host's own is replayed.
fn explicit_network(network: &RegistrationNetwork) -> Option<NetworkTemplate> {
    let RegistrationNetwork { configurator, config, ip_addresses: _ } = network;
    let silent = *configurator == Configurator::None
        && config.as_ref().is_none_or(|config| {
            config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty)
        });
    (!silent).then(|| NetworkTemplate {
        configurator: *configurator,
        ip_addresses: BTreeMap::new(),
        config: config.clone(),
    })
}

impl Draft {
    fn take_rendered(&mut self, key: &str, field: Field, rendered: &Rendered) {
        let why = if !template::is_key(key) {
            "it is no key of a label or annotation".to_owned()
        } else if rendered.missing.is_empty() {
            let (map, text) = match field {
                Field::Label => (&mut self.labels, template::sanitise_label(&rendered.text)),
                Field::Annotation => (&mut self.annotations, template::sanitise_annotation(&rendered.text)),
            };
            map.insert(key.to_owned(), text);
            return;
        } else {
            format!("the host does not report {}", rendered.missing.join(", "))
        };
        self.skipped.push(Skipped { key: key.to_owned(), why });
    }
}

fn render_name(text: &str, values: &Values) -> Result<String, TemplateError> {
    let rendered = values.render_template(text);
    if !rendered.missing.is_empty() {
        let offered: Vec<_> = values.keys().take(MAX_LISTED).collect();
        let offered =
            if offered.is_empty() { "Random/UUID".to_owned() } else { offered.join(", ") + ", …" };
        return Err(TemplateError::Unresolved { missing: rendered.missing.join(", "), offered });
    }
    let name = template::sanitise_name(&rendered.text);
    if template::is_name(&name) { Ok(name) } else { Err(TemplateError::Name { name }) }
}

#[cfg(test)]
mod tests;
