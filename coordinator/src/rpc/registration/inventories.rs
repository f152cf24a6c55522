//! The inventory of a host that has proven its key.

use std::sync::Arc;

use coordinator_api::explain::EventReason;
use coordinator_api::inventory::{Approval, MachineInventory};
use coordinator_api::network::ObservedNetwork;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::inventory::admission::needs_approval;
use coordinator_core::inventory::{self, Existing, Hardware, Identified, Identity, Skipped};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use sha2::{Digest as _, Sha256};

use super::admission::admit_host;
use crate::ca::HostKey;
use crate::rpc::{Context, RpcError, describe_inventory, refuse_shut_out};
use crate::store::StoreError;
use crate::store::registration::{self as store, NewHost};
use crate::telemetry::chain;
use crate::tls::Challenge;

/// The report of a proven host.
pub(super) struct Reported<'a> {
    pub(super) challenge: &'a Challenge,
    pub(super) key: &'a HostKey,
    pub(super) facts: &'a wire::HostFacts,
    pub(super) network: Option<ObservedNetwork>,
    pub(super) hardware: &'a Hardware,
}

/// The refusal of a host without a ready registration, whose install settings are unknown.
pub(super) fn refuse_closed() -> RpcError {
    RpcError::from_refusal(Refusal::UnknownToken, "the registration of this host is not ready any more")
}

/// Finds or creates the inventory of a proven key.
pub(super) async fn ensure_inventory(
    context: &Context,
    registration: Option<&MachineRegistration>,
    reported: Reported<'_>,
) -> Result<Arc<MachineInventory>, RpcError> {
    let Reported { challenge, key, facts, network, hardware } = reported;
    if let Some(known) = context.cached_inventory(key) {
        return refuse_shut_out(known);
    }
    let registration = registration.ok_or_else(refuse_closed)?;
    if let Some(refusal) = inventory::check_registration(registration).refusal() {
        let next = format!("correct the MachineRegistration {}", registration.name_any());
        return Err(RpcError::refused_with(Refusal::BadTemplate, refusal, next));
    }
    let identity = Identity { hash: &key.tpm_hash, class: challenge.class };
    let random = Sha256::digest(&challenge.public_key).into();
    let mut draft = inventory::draft_inventory(registration, facts, identity, &random)
        .map_err(|error| RpcError::from_refusal(Refusal::BadTemplate, error.to_string()))?;
    let named = context.caches.inventories.get(&ObjectRef::new(&draft.name).within(&key.namespace));
    let existing = Existing { by_key: None, by_name: named.as_deref() };
    match inventory::identify_host(existing, identity, hardware, registration) {
        Identified::Refused(refusal) => Err(RpcError::from_refusal(refusal, describe_inventory(&draft.name))),
        Identified::Known(known) => Ok(Arc::new(known.clone())),
        Identified::Replaced(named) => replace_identity(context, registration, named, key).await,
        Identified::Create => {
            admit_host(context, registration, key).await?;
            let name = draft.name.clone();
            let skipped = std::mem::take(&mut draft.skipped);
            let new = NewHost { tpm_hash: key.tpm_hash.clone(), observed_network: network };
            let api = context.inventory_api(&key.namespace);
            let created = store::create_inventory(&api, draft, new).await;
            let created = created.map_err(|error| explain_creation(error, &name))?;
            warn_skipped(context, &created, &skipped);
            Ok(created)
        }
    }
}

/// Warns of templates that name a value that this host does not report.
fn warn_skipped(context: &Context, created: &MachineInventory, skipped: &[Skipped]) {
    if skipped.is_empty() {
        return;
    }
    let told: Vec<_> = skipped.iter().map(|skipped| format!("{}: {}", skipped.key, skipped.why)).collect();
    let note = format!(
        "{}; next: correct the MachineRegistration (`baremetal-agent facts` prints what the host offers), or nothing",
        told.join("; ")
    );
    context.events.publish(created, EventReason::TemplateUnresolved, &note);
}

/// Gives the inventory the new key of a host that lost its key in an interrupted install.
async fn replace_identity(
    context: &Context,
    registration: &MachineRegistration,
    named: &MachineInventory,
    key: &HostKey,
) -> Result<Arc<MachineInventory>, RpcError> {
    let approval = needs_approval(registration).then_some(Approval::Pending);
    let replaced = store::replace_identity(&context.client, named, &key.tpm_hash, approval).await?;
    let note = format!(
        "{} was never installed and registers again with another key and the same hardware: the key was replaced; next: none, unless another host pretends to be this one",
        named.name_any()
    );
    context.events.publish(&replaced, EventReason::IdentityReplaced, &note);
    tracing::warn!(name = named.name_any(), "identity replaced, the host was never installed");
    Ok(Arc::new(replaced))
}

/// Refuses the host if the API server refused the inventory itself, because then the templates of the
/// registration rendered an invalid object.
fn explain_creation(error: StoreError, name: &str) -> RpcError {
    let is_invalid = matches!(
        &error,
        StoreError::Request { source, .. }
            if matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 422))
    );
    if !is_invalid {
        return error.into();
    }
    tracing::warn!(error = chain(&error), "cannot create inventory, the API server refused the object");
    RpcError::refused_with(
        Refusal::BadTemplate,
        format!("the API server did not accept the inventory {name}"),
        "correct spec.machineName, machineInventoryLabels and machineInventoryAnnotations of the MachineRegistration; the coordinator's log has the cause",
    )
}
