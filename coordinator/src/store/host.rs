//! `MachineInventory`: the claim in its annotations, the facts in its status.

use std::sync::Arc;

use coordinator_api::conditions::ConditionUpdate;
use coordinator_api::inventory::{AllocationState, MachineInventory, MachineInventoryStatus};
use coordinator_api::names::{annotation, finalizer, kind};
use coordinator_core::assignment::ClaimNames;
use coordinator_core::demand::MachineKey;
use coordinator_core::host::conditions::project_conditions;
use coordinator_core::ids::Uid;
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use proto::plan::PlanId;
use serde_json::{Value, json};

use super::{StoreError, TRIES, diff, is_conflict, is_not_found, status, with_finalizer, without_finalizer};

const KIND: &str = "MachineInventory";

/// Makes the host the machine's own: one compare-and-swap. The finalizer comes
/// with it: a delete by hand must not lose the record of who owns a host.
///
/// # Errors
/// Conflict when the inventory has changed: another machine may own it.
pub async fn claim(
    client: &Client,
    inventory: &MachineInventory,
    machine: &MachineKey,
    names: &ClaimNames,
) -> Result<(), StoreError> {
    let state: &str = AllocationState::Allocated.into();
    let owner_kind = (machine.kind != kind::BAREMETAL_MACHINE).then_some(machine.kind);
    let mut annotations = json!({
        annotation::OWNER_BAREMETAL_MACHINE: machine.name,
        annotation::OWNER_KIND: owner_kind,
        annotation::OWNER_UID: machine.uid.as_ref().map(Uid::as_str),
        annotation::OWNER_MACHINE: names.machine,
        annotation::OWNER_CLUSTER: names.cluster,
        annotation::POOL: names.pool,
        annotation::CLAIM_GENERATION: names.generation.to_string(),
        annotation::ALLOCATION_STATE: state,
        annotation::ABANDONED: null,
        annotation::RETRY_PLAN: null,
    });
    if let Some(group) = &names.reuse_group {
        annotations[annotation::NODE_REUSE_GROUP] = json!(group);
    }
    let finalizers = with_finalizer(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch(client, inventory, "claim", &annotations, Some(finalizers)).await.map(drop)
}

/// Updates the UID of a claim whose names hold.
pub async fn adopt(client: &Client, inventory: &MachineInventory, uid: &Uid) -> Result<(), StoreError> {
    let annotations = json!({ annotation::OWNER_UID: uid.as_str() });
    let finalizers = with_finalizer(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch(client, inventory, "adopt the claim on", &annotations, Some(finalizers)).await.map(drop)
}

/// Adds the finalizer to a host that a machine holds.
pub async fn protect(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let finalizers = with_finalizer(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch(client, inventory, "protect", &json!({}), Some(finalizers)).await.map(drop)
}

/// Removes the claim. The annotation of the pool stays, as the seeds' systems
/// have it.
pub async fn release(
    client: &Client,
    inventory: &MachineInventory,
    state: AllocationState,
) -> Result<(), StoreError> {
    let state: &str = state.into();
    let annotations = json!({
        annotation::OWNER_BAREMETAL_MACHINE: null,
        annotation::OWNER_KIND: null,
        annotation::OWNER_UID: null,
        annotation::OWNER_MACHINE: null,
        annotation::OWNER_CLUSTER: null,
        annotation::CLAIM_GENERATION: null,
        annotation::ABANDONED: null,
        annotation::RETRY_PLAN: null,
        annotation::BLOCK_MOVE: null,
        annotation::ALLOCATION_STATE: state,
    });
    let finalizers = without_finalizer(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch(client, inventory, "release", &annotations, Some(finalizers)).await.map(drop)
}

/// Keeps the owner and gives the host to no machine until it was cleaned.
pub async fn abandon(
    client: &Client,
    inventory: &MachineInventory,
    now: Timestamp,
) -> Result<(), StoreError> {
    let state: &str = AllocationState::Unavailable.into();
    let annotations = json!({
        annotation::ABANDONED: now.to_string(),
        annotation::ALLOCATION_STATE: state,
        annotation::BLOCK_MOVE: null,
    });
    patch(client, inventory, "abandon", &annotations, None).await.map(drop)
}

/// Records the allocation state. A move waits while a plan is in flight.
pub async fn mark(
    client: &Client,
    inventory: &MachineInventory,
    state: AllocationState,
) -> Result<(), StoreError> {
    let text: &str = state.into();
    let in_flight = matches!(state, AllocationState::Preparing | AllocationState::Reprovisioning);
    let annotations = json!({
        annotation::ALLOCATION_STATE: text,
        annotation::BLOCK_MOVE: in_flight.then_some("a plan is in flight"),
    });
    patch(client, inventory, "mark", &annotations, None).await.map(drop)
}

/// Has `clusterctl move` wait for a plan, and records the allocation state where the plan is of a
/// machine. The plan is named: another one is another version of the inventory, so that nothing is
/// announced by what was read before.
pub async fn begin_plan(
    client: &Client,
    inventory: &MachineInventory,
    plan: &PlanId,
    state: Option<AllocationState>,
) -> Result<MachineInventory, StoreError> {
    let mut annotations = json!({ annotation::BLOCK_MOVE: format!("plan {plan} is in flight") });
    if let Some(state) = state {
        annotations[annotation::ALLOCATION_STATE] = json!(<&str>::from(state));
    }
    patch(client, inventory, "begin a plan on", &annotations, None).await
}

/// The plan that an operator wants run was announced.
pub async fn forget_custom_plan(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::CUSTOM_PLAN: null });
    patch(client, inventory, "end the request of a plan on", &annotations, None).await.map(drop)
}

/// Another clean of an abandoned host was announced.
pub async fn forget_retry(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::RETRY_PLAN: null });
    patch(client, inventory, "end the request of a clean on", &annotations, None).await.map(drop)
}

/// Records that a reboot ends this boot of the host, which is asked to from then on.
pub async fn begin_reboot(
    client: &Client,
    inventory: &MachineInventory,
    boot: &str,
) -> Result<(), StoreError> {
    let annotations = json!({ annotation::REBOOTING_FROM: boot });
    patch(client, inventory, "request a reboot of", &annotations, None).await.map(drop)
}

/// The host runs another boot.
pub async fn finish_reboot(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::REBOOT: null, annotation::REBOOTING_FROM: null });
    patch(client, inventory, "end the request of a reboot of", &annotations, None).await.map(drop)
}

/// The disk was installed again.
pub async fn forget_reinstall(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::REINSTALL: null });
    patch(client, inventory, "end the request of an install on", &annotations, None).await.map(drop)
}

/// Lets `clusterctl move` go on.
pub async fn allow_move(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::BLOCK_MOVE: null });
    patch(client, inventory, "allow the move of", &annotations, None).await.map(drop)
}

/// Records which pool holds the host.
///
/// # Errors
/// Conflict when the inventory has changed: another pool may hold it.
pub async fn hold_in_pool(
    client: &Client,
    inventory: &MachineInventory,
    pool: &str,
) -> Result<(), StoreError> {
    let annotations = json!({ annotation::POOL: pool });
    patch(client, inventory, "record the pool of", &annotations, None).await.map(drop)
}

/// Makes the inventory that of a `BareMetalHost`: one compare-and-swap. No pool
/// holds it any more.
///
/// # Errors
/// Conflict when the inventory has changed: another host may own it.
pub async fn take(client: &Client, inventory: &MachineInventory, host: &str) -> Result<(), StoreError> {
    let annotations = json!({ annotation::OWNER_BARE_METAL_HOST: host, annotation::POOL: null });
    patch(client, inventory, "take", &annotations, None).await.map(drop)
}

/// Lets pools and other hosts have the inventory.
pub async fn give_back(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::OWNER_BARE_METAL_HOST: null });
    patch(client, inventory, "give back", &annotations, None).await.map(drop)
}

/// Makes the network that was reported last the intended one, whole: what the
/// host has no more must not stay.
pub async fn accept_network(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let mut change = json!({ "metadata": { "annotations": { annotation::ACCEPT_OBSERVED_NETWORK: null } } });
    let observed = inventory.status.as_ref().and_then(|status| status.observed_network.as_ref());
    if let Some(observed) = observed {
        let old = inventory.spec.observed_network.as_ref().map_or(json!({}), |old| json!(old));
        if let Some(network) = diff(&old, &json!(observed)) {
            change["spec"] = json!({ "observedNetwork": network });
        }
    }
    super::patch(client, inventory, "accept the network of", change).await.map(drop)
}

async fn patch(
    client: &Client,
    inventory: &MachineInventory,
    verb: &'static str,
    annotations: &Value,
    finalizers: Option<Vec<String>>,
) -> Result<MachineInventory, StoreError> {
    let mut metadata = json!({ "annotations": annotations });
    if let Some(finalizers) = finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    super::patch(client, inventory, verb, json!({ "metadata": metadata })).await
}

/// Changes the facts of a host, projects its conditions, and writes what
/// differs: no request when nothing does. `known` may be stale: a conflict
/// reads the object and applies the change again.
pub async fn update_status(
    client: &Client,
    known: Arc<MachineInventory>,
    now: Timestamp,
    change: impl Fn(&mut MachineInventoryStatus),
) -> Result<Arc<MachineInventory>, StoreError> {
    let name = known.name_any();
    let inventories: Api<MachineInventory> =
        Api::namespaced(client.clone(), &known.namespace().unwrap_or_default());
    let mut known = known;
    for _ in 0..TRIES {
        let status = project_status(&known, now, &change);
        match status::write_status(client, &*known, &status).await {
            Ok(Some(written)) => return Ok(Arc::new(written)),
            Ok(None) => return Ok(known),
            Err(StoreError::Request { source, .. }) if is_not_found(&source) => {
                return Err(StoreError::Gone { kind: KIND, name });
            }
            Err(StoreError::Request { source, .. }) if is_conflict(&source) => {
                known = Arc::new(read(&inventories, &name, known.spec.tpm_hash.as_deref()).await?);
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Contended { kind: KIND, name })
}

/// Writes the status once, with the precondition of the object as it was
/// decided on: a stale decision must not be announced.
pub async fn change_status(
    client: &Client,
    known: &MachineInventory,
    now: Timestamp,
    change: impl FnOnce(&mut MachineInventoryStatus),
) -> Result<(), StoreError> {
    status::write_status(client, known, &project_status(known, now, change)).await.map(drop)
}

/// Writes the conditions where they differ. `told` replaces what the stored
/// facts tell.
pub async fn write_conditions(
    client: &Client,
    known: &MachineInventory,
    told: impl IntoIterator<Item = ConditionUpdate>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut changed = known.clone();
    project_conditions(&mut changed, told, now);
    status::write_status(client, known, &changed.status.unwrap_or_default()).await.map(drop)
}

fn project_status(
    known: &MachineInventory,
    now: Timestamp,
    change: impl FnOnce(&mut MachineInventoryStatus),
) -> MachineInventoryStatus {
    let mut changed = known.clone();
    change(changed.status.get_or_insert_default());
    project_conditions(&mut changed, None, now);
    changed.status.unwrap_or_default()
}

/// Reads an inventory, which must have the identity `tpm_hash` where one is
/// given.
pub async fn read(
    inventories: &Api<MachineInventory>,
    name: &str,
    tpm_hash: Option<&str>,
) -> Result<MachineInventory, StoreError> {
    let found = inventories.get_opt(name).await.map_err(StoreError::request("get", KIND, name))?;
    let same = |inventory: &MachineInventory| {
        tpm_hash.is_none_or(|hash| inventory.spec.tpm_hash.as_deref() == Some(hash))
    };
    found.filter(same).ok_or_else(|| StoreError::Gone { kind: KIND, name: name.to_owned() })
}

/// Marks an inventory whose identity two live hosts claim; an operator removes
/// the mark.
pub async fn quarantine(
    inventories: &Api<MachineInventory>,
    known: &MachineInventory,
    why: &str,
) -> Result<Arc<MachineInventory>, StoreError> {
    let name = known.name_any();
    // By UID and not by version: whatever else changed, this mark must stand.
    let patch = json!({ "metadata": {
        "uid": known.uid(),
        "annotations": { (annotation::QUARANTINED): why },
    } });
    match inventories.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(written) => Ok(Arc::new(written)),
        Err(error) if is_not_found(&error) || is_conflict(&error) => {
            Err(StoreError::Gone { kind: KIND, name })
        }
        Err(error) => Err(StoreError::request("quarantine", KIND, &name)(error)),
    }
}
