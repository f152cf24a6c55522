//! The `MachineInventory` of a host that registers.

pub mod template;

pub mod admission;
mod identify;
mod install;
mod metadata;
mod unsupported;

use std::collections::BTreeMap;

use coordinator_api::inventory::Approval;
use coordinator_api::names::{annotation, label};
use coordinator_api::network::{Configurator, NetworkTemplate, RegistrationNetwork};
use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt;
use proto::v1alpha1::HostFacts;
use serde_json::Value;

use crate::text::is_name;
pub use identify::{
    Existing, Hardware, Identified, Identity, classify_tpm, identify_host, refuse_key, shut_out,
};
pub use install::{InstallError, install_message, reinstall_device, system_image};
pub use metadata::{ForeseenLabels, Refresh, foresee_labels, refresh_inventory, stale_labels};
use template::Values;
pub use unsupported::{RANDOM_KEY, UnsupportedFields, check_registration};

fn emulates_tpm(registration: &MachineRegistration) -> bool {
    inventory_settings(registration).is_some_and(|registration| registration.emulate_tpm)
}

fn inventory_settings(
    registration: &MachineRegistration,
) -> Option<&coordinator_api::registration::Registration> {
    registration.spec.config.as_ref()?.elemental.as_ref()?.registration.as_ref()
}

/// An inventory to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    pub name: String,
    /// Labels of the registration, and ours.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the registration, and ours.
    pub annotations: BTreeMap<String, String>,
    /// `spec.network` of the registration, unless empty.
    pub network: Option<NetworkTemplate>,
    /// `spec.ipAddressPools` of the registration.
    pub ip_address_pools: BTreeMap<String, Value>,
    /// Parts of the registration that cannot be rendered for this host.
    pub skipped: Vec<Skipped>,
}

/// A label or annotation that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub key: String,
    /// Cause, for a message.
    pub why: String,
}

/// Why a host gets no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "spec.machineName of the MachineRegistration renders to {name:?}, which is no object name: add letters or digits"
    )]
    Name { name: String },
}

/// Template of a registration that names none.
const DEFAULT_NAME: &str = "m-${System Information/UUID}";
/// Template for a host that does not report the values of the registration's template.
const RANDOM_NAME: &str = "m-${Random/UUID}";

/// Renders name, labels and annotations of a new inventory. Labels and annotations that cannot be
/// rendered are left out and listed. `random` feeds the keys below `Random/`; a repeated call with
/// the same bytes renders the same values.
pub fn draft_inventory(
    registration: &MachineRegistration,
    facts: &HostFacts,
    identity: Identity<'_>,
    random: &[u8; 32],
) -> Result<Draft, TemplateError> {
    let values = metadata::template_values(registration, facts, *random);
    let spec = &registration.spec;
    let mut draft = Draft::default();
    draft.name = draft.render_name(spec.machine_name.as_deref().unwrap_or(DEFAULT_NAME), &values)?;
    draft.take_metadata(registration, facts, identity.class, &values);
    if let Some(network) = spec.config.as_ref().and_then(|config| config.network.as_ref()) {
        draft.network = explicit_network(network);
        draft.ip_address_pools.clone_from(&network.ip_addresses);
    }
    draft.annotations.insert(annotation::REGISTRATION.to_owned(), registration.name_any());
    if admission::needs_approval(registration) {
        let pending: &str = Approval::Pending.into();
        draft.annotations.insert(annotation::APPROVAL.to_owned(), pending.to_owned());
    }
    draft.labels.insert(label::MANAGED.to_owned(), "true".to_owned());
    draft.labels.insert(label::IDENTITY_CLASS.to_owned(), identity.class.as_str().to_owned());
    Ok(draft)
}

/// The network of a registration for one host. `None` if it is empty, so that the observed network of
/// the host is replayed.
fn explicit_network(network: &RegistrationNetwork) -> Option<NetworkTemplate> {
    let RegistrationNetwork { configurator, config, ip_addresses: _ } = network;
    let has_config = config.as_ref().is_some_and(|config| !crate::network::is_empty(config));
    (has_config || *configurator != Configurator::None).then(|| network.template())
}

impl Draft {
    /// A host that does not report the values of the template gets a random name, which is the same at
    /// each attempt.
    fn render_name(&mut self, text: &str, values: &Values) -> Result<String, TemplateError> {
        let mut rendered = values.render_template(text);
        if !rendered.missing.is_empty() {
            let why =
                format!("the host does not report {}, so its name is random", rendered.missing.join(", "));
            self.skipped.push(Skipped { key: "spec.machineName".to_owned(), why });
            rendered = values.render_template(RANDOM_NAME);
        }
        let name = template::sanitise_name(&rendered.text);
        if is_name(&name) { Ok(name) } else { Err(TemplateError::Name { name }) }
    }
}

#[cfg(test)]
mod tests;
