//! The objects that a registration writes: the inventory, its plan Secret, and the first status. A
//! new host takes three writes, a known one none. Each call repairs the state that a crash between
//! the writes left.

use std::sync::Arc;

use coordinator_api::inventory::{Approval, KeyClass, MachineInventory, MachineInventorySpec};
use coordinator_api::names::{annotation, label};
use coordinator_api::network::ObservedNetwork;
use coordinator_core::host::facts::{self, Registered};
use coordinator_core::inventory::{Draft, Refresh};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::{StoreError, TRIES, host, is_conflict, open_api, plan_record};
use crate::key::Namespace;

/// Secret with the CAs of TPM vendors, one of which must have certified the TPM of a new host.
pub const AUTHORITIES_SECRET: &str = "tpm-ca";

const KIND: &str = "MachineInventory";
const SECRET: &str = "Secret";

/// A host that has proven its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHost {
    /// `spec.tpmHash`.
    pub tpm_hash: String,
    /// The network that every reprovision replays.
    pub observed_network: Option<ObservedNetwork>,
}

/// Creates the inventory of a host. If another replica has created it a moment ago with the same
/// key, that inventory is the answer.
///
/// # Errors
/// [`StoreError::Taken`] if the inventory of that name has another key, [`StoreError::Request`].
pub async fn create_inventory(
    inventories: &Api<MachineInventory>,
    draft: Draft,
    new: NewHost,
) -> Result<Arc<MachineInventory>, StoreError> {
    let name = draft.name.clone();
    let hash = new.tpm_hash.clone();
    let inventory = render(draft, new);
    match inventories.create(&PostParams::default(), &inventory).await {
        Ok(created) => Ok(Arc::new(created)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = host::read(inventories, &name, None).await?;
            if found.spec.tpm_hash.as_deref() == Some(hash.as_str()) {
                return Ok(Arc::new(found));
            }
            Err(StoreError::Taken { kind: KIND, name, why: "has another key" })
        }
        Err(error) => Err(StoreError::request("create", KIND, &name)(error)),
    }
}

fn render(draft: Draft, new: NewHost) -> MachineInventory {
    let spec = MachineInventorySpec {
        tpm_hash: Some(new.tpm_hash),
        observed_network: new.observed_network,
        network: draft.network,
        ip_address_pools: draft.ip_address_pools,
        ..MachineInventorySpec::default()
    };
    let mut inventory = MachineInventory::new(&draft.name, spec);
    inventory.metadata.labels = Some(draft.labels);
    inventory.metadata.annotations = Some(draft.annotations);
    inventory
}

/// Writes labels and annotations that differ, by the decision `decide`. `known` may be stale: after
/// a conflict the inventory is read and decided again.
pub async fn refresh_metadata(
    client: &Client,
    known: Arc<MachineInventory>,
    decide: impl Fn(&MachineInventory) -> Option<Refresh>,
) -> Result<Arc<MachineInventory>, StoreError> {
    let name = known.name_any();
    let api: Api<MachineInventory> = open_api(client, &*known);
    let mut known = known;
    for _ in 0..TRIES {
        let Some(Refresh { labels, annotations }) = decide(&known) else { return Ok(known) };
        let change = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        match super::patch(client, &*known, "refresh labels of", change).await {
            Ok(written) => return Ok(Arc::new(written)),
            Err(StoreError::Request { source, .. }) if is_conflict(&source) => {
                known = Arc::new(host::read(&api, &name, known.spec.tpm_hash.as_deref()).await?);
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Contended { kind: KIND, name })
}

/// Creates the plan Secret of an inventory, and names it in the status together with the facts of
/// the registration. A lost Secret is recreated, that of another host is emptied, and a Secret that
/// is no plan Secret is never adopted.
pub async fn ensure_plan_secret(
    client: &Client,
    inventory: Arc<MachineInventory>,
    registered: Registered<'_>,
    now: Timestamp,
) -> Result<Arc<MachineInventory>, StoreError> {
    let namespace = Namespace::of(&*inventory);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let hash = inventory.spec.tpm_hash.as_deref();
    let named = inventory.plan().and_then(|plan| plan.secret_ref.as_ref()?.name.clone());
    let name = match named {
        Some(named) if plan_record::adopt(&secrets, &named, hash).await? => named,
        _ => create_plan_secret(&secrets, inventory.name_any(), hash).await?,
    };
    let reference = ObjectReference {
        name: Some(name),
        namespace: Some(namespace.to_string()),
        ..ObjectReference::default()
    };
    host::update_status(client, inventory, now, |status| {
        facts::record_registration(status, reference.clone(), registered);
    })
    .await
}

async fn create_plan_secret(
    secrets: &Api<Secret>,
    name: String,
    hash: Option<&str>,
) -> Result<String, StoreError> {
    match secrets.create(&PostParams::default(), &plan_record::render(&name, hash)).await {
        Ok(_) => {}
        // A crash before the write of the status, or a restore, left the Secret.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            plan_record::adopt(secrets, &name, hash).await?;
        }
        Err(error) => return Err(StoreError::request("create", SECRET, &name)(error)),
    }
    Ok(name)
}

/// Gives the inventory of a host that was never installed to another key by one compare-and-swap.
/// `approval` belongs to the new key.
pub async fn replace_identity(
    client: &Client,
    inventory: &MachineInventory,
    tpm_hash: &str,
    approval: Option<Approval>,
) -> Result<MachineInventory, StoreError> {
    let mut change = json!({ "spec": { "tpmHash": tpm_hash } });
    if let Some(approval) = approval {
        let approval: &str = approval.into();
        change["metadata"] = json!({ "annotations": { annotation::APPROVAL: approval } });
    }
    super::patch(client, inventory, "replace the identity of", change).await
}

/// Updates the label of the class, if it differs.
pub async fn show_class(
    client: &Client,
    inventory: Arc<MachineInventory>,
    class: KeyClass,
) -> Result<Arc<MachineInventory>, StoreError> {
    if KeyClass::of(&inventory) == Some(class) {
        return Ok(inventory);
    }
    let labels = json!({ "metadata": { "labels": { label::IDENTITY_CLASS: class.as_str() } } });
    Ok(Arc::new(super::patch(client, &*inventory, "show the identity class of", labels).await?))
}
