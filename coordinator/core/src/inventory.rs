//! From a host that registers to its `MachineInventory`.

pub mod template;

pub mod admission;
mod identify;
mod install;
mod judge;
mod metadata;

use std::collections::BTreeMap;

use coordinator_api::inventory::Approval;
use coordinator_api::names::{annotation, label};
use coordinator_api::network::{Configurator, NetworkTemplate, RegistrationNetwork};
use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt;
use proto::v1alpha1::HostFacts;
use serde_json::Value;

pub use identify::{Existing, Hardware, Identified, Identity, KeyClass, identify_host, refuse_key, shut_out};
pub use install::{InstallError, install_message, reinstall_device, system_image};
pub use judge::{Judgement, RANDOM_KEY, judge_registration};
pub use metadata::{Refresh, refresh_inventory};
use template::Values;

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
    pub key: String,
    /// Cause and next action, for the message.
    pub why: String,
}

/// Why a host gets no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
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
/// Used when the host does not report what its name is made of.
const RANDOM_NAME: &str = "m-${Random/UUID}";

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

/// The network of a registration for one host. An empty one is left
/// out: the host's own is replayed.
fn explicit_network(network: &RegistrationNetwork) -> Option<NetworkTemplate> {
    let RegistrationNetwork { configurator, config, ip_addresses: _ } = network;
    let silent = *configurator == Configurator::None
        && config.as_ref().is_none_or(|config| {
            config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty)
        });
    (!silent).then(|| network.template())
}

impl Draft {
    /// A host that does not report what its name is made of gets a random name,
    /// the same at each try.
    fn render_name(&mut self, text: &str, values: &Values) -> Result<String, TemplateError> {
        let mut rendered = values.render_template(text);
        if !rendered.missing.is_empty() {
            let why =
                format!("the host does not report {}, so its name is random", rendered.missing.join(", "));
            self.skipped.push(Skipped { key: "spec.machineName".to_owned(), why });
            rendered = values.render_template(RANDOM_NAME);
        }
        let name = template::sanitise_name(&rendered.text);
        if template::is_name(&name) { Ok(name) } else { Err(TemplateError::Name { name }) }
    }
}

#[cfg(test)]
mod tests;
