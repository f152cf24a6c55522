//! The one Secret that holds plans for a host, and its announcement.

use coordinator_api::inventory::{AllocationState, MachineInventory};
use coordinator_api::names::{annotation, plan_secret};
use coordinator_core::plan::Stored;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use proto::plan::{Kind, Secret};
use serde_json::json;

use super::{StoreError, claim, registration};

/// One key of a Secret and the version it was read at.
#[derive(Debug)]
pub struct Read {
    /// The value; `None` where the Secret lacks the key.
    pub value: Option<Secret>,
    /// Precondition of the next write.
    pub resource_version: String,
}

/// Reads one key of a Secret by name; `None` when there is no such Secret.
///
/// # Errors
/// When Kubernetes cannot be asked.
pub async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<Option<Read>, StoreError> {
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), namespace);
    let secret = api.get_opt(name).await.map_err(StoreError::of("read", "Secret", name))?;
    Ok(secret.map(|mut secret| {
        let value = secret.data.as_mut().and_then(|data| data.remove(key));
        let resource_version = secret.resource_version().unwrap_or_default();
        Read { value: value.map(|ByteString(value)| Secret::new(value)), resource_version }
    }))
}

/// Writes a plan. The results of the plan before are blanked in the same
/// write: an old success must not pass as the new one's. A Secret that was not
/// there (`read` is `None`) is made.
///
/// # Errors
/// Conflict when the Secret has changed since it was read.
pub async fn write(
    client: &Client,
    inventory: &MachineInventory,
    stored: &Stored,
    read: Option<&Read>,
) -> Result<(), StoreError> {
    let name = secret_name(inventory);
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), &inventory.namespace().unwrap_or_default());
    let kind = stored.plan.kind.as_str();
    let Some(read) = read else {
        let mut secret = registration::plan_secret(inventory, &name);
        secret.annotations_mut().insert(annotation::PLAN_TYPE.to_owned(), kind.to_owned());
        let plan = ByteString(stored.bytes.expose().to_vec());
        secret.data = Some([(plan_secret::PLAN.to_owned(), plan)].into());
        let done = api.create(&PostParams::default(), &secret).await;
        return done.map(drop).map_err(StoreError::of("make the plan", "Secret", &name));
    };
    let blank = ByteString(vec![]);
    let patch = json!({
        "metadata": {
            "resourceVersion": read.resource_version,
            "annotations": { annotation::PLAN_TYPE: kind },
        },
        "data": {
            plan_secret::PLAN: ByteString(stored.bytes.expose().to_vec()),
            plan_secret::APPLIED_CHECKSUM: blank,
            plan_secret::APPLIED_OUTPUT: blank,
            plan_secret::FAILED_CHECKSUM: blank,
            plan_secret::FAILED_OUTPUT: blank,
            plan_secret::FAILURE_COUNT: ByteString(b"0".to_vec()),
        },
    });
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map(drop).map_err(StoreError::of("write the plan to", "Secret", &name))
}

/// Announces a plan on the inventory: what every stream watches. Announced
/// once: from a stale cache it would take back what the host has reported
/// since, and nobody reports it again.
///
/// # Errors
/// Conflict when the inventory has changed.
pub async fn announce(
    client: &Client,
    inventory: &MachineInventory,
    stored: &Stored,
) -> Result<(), StoreError> {
    let state = match stored.plan.kind {
        Kind::Clean => AllocationState::Preparing,
        Kind::Reprovision | Kind::Custom => AllocationState::Reprovisioning,
    };
    let marked = claim::mark(client, inventory, state).await?;
    let patch = json!({
        "metadata": { "resourceVersion": marked.resource_version() },
        "status": {
            "plan": {
                "checksum": stored.checksum,
                "state": null,
                "id": stored.plan.id.as_str(),
                "generation": stored.plan.generation.0,
                "owner": stored.owner,
                "message": null,
            }
        }
    });
    let api: Api<MachineInventory> =
        Api::namespaced(client.clone(), &inventory.namespace().unwrap_or_default());
    let name = inventory.name_any();
    let done = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map(drop).map_err(StoreError::of("announce the plan on", "MachineInventory", &name))
}

fn secret_name(inventory: &MachineInventory) -> String {
    let named =
        inventory.plan().and_then(|plan| plan.secret_ref.as_ref()).and_then(|secret| secret.name.clone());
    named.unwrap_or_else(|| inventory.name_any())
}
