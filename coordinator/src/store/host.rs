//! `MachineInventory`: the claim in its annotations, the facts in its status.

use std::sync::Arc;

use coordinator_api::conditions::ConditionUpdate;
use coordinator_api::inventory::{AllocationState, Claim, MachineInventory, MachineInventoryStatus};
use coordinator_api::names::{annotation, finalizer, kind};
use coordinator_core::host::conditions::{Told, project_conditions};
use coordinator_core::host::identity::{KnownIdentity, recall_identity};
use coordinator_core::ids::Uid;
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use proto::plan::PlanId;
use serde_json::{Value, json};

use super::{
    StoreError, TRIES, diff, is_conflict, is_not_found, open_api, status, with_finalizer, without_finalizer,
};

const KIND: &str = "MachineInventory";

/// Claims the host for a machine by one compare-and-swap. The finalizer is added with the claim, so
/// that a deletion by hand does not lose the owner of a host.
///
/// # Errors
/// Conflict if the inventory has changed, because another machine may own it.
pub async fn claim(
    client: &Client,
    inventory: &MachineInventory,
    claim: &Claim,
    reuse_group: Option<&str>,
) -> Result<(), StoreError> {
    let state: &str = AllocationState::Allocated.into();
    let owner_kind = (claim.kind != kind::BAREMETAL_MACHINE).then_some(&claim.kind);
    let mut annotations = json!({
        annotation::OWNER_BAREMETAL_MACHINE: claim.baremetal_machine,
        annotation::OWNER_KIND: owner_kind,
        annotation::OWNER_UID: claim.uid,
        annotation::OWNER_MACHINE: claim.machine,
        annotation::OWNER_CLUSTER: claim.cluster,
        annotation::POOL: claim.pool,
        annotation::CLAIM_GENERATION: claim.generation.to_string(),
        annotation::ALLOCATION_STATE: state,
        annotation::ABANDONED: null,
        annotation::RETRY_PLAN: null,
    });
    if let Some(group) = reuse_group {
        annotations[annotation::NODE_REUSE_GROUP] = json!(group);
    }
    keep_identity(&mut annotations, inventory);
    let finalizers = with_finalizer(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch(client, inventory, "claim", &annotations, Some(finalizers)).await.map(drop)
}

/// Updates the UID of a claim whose names are right.
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

/// Keeps the identity of the host beside the status, before a tenant has root on it.
fn keep_identity(annotations: &mut Value, inventory: &MachineInventory) {
    if let Some(text) = KnownIdentity::of(inventory).render() {
        annotations[annotation::HOST_IDENTITY] = json!(text);
    }
}

/// Removes the claim. The annotation of the pool stays, as in the systems that this one replaces.
pub async fn release(
    client: &Client,
    inventory: &MachineInventory,
    state: AllocationState,
) -> Result<(), StoreError> {
    let state: &str = state.into();
    let mut annotations = json!({
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
    // The clean has made a new key.
    keep_identity(&mut annotations, inventory);
    let finalizers = without_finalizer(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch(client, inventory, "release", &annotations, Some(finalizers)).await.map(drop)
}

/// Keeps the owner, so that no machine gets the host until it is cleaned.
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

/// Records the allocation state if another one is shown. A `clusterctl move` waits while a plan is in flight.
pub async fn mark(
    client: &Client,
    inventory: &MachineInventory,
    state: AllocationState,
) -> Result<(), StoreError> {
    if inventory.allocation_state() == state {
        return Ok(());
    }
    let mut annotations = json!({ annotation::ALLOCATION_STATE: <&str>::from(state) });
    // The state says nothing about a plan of an operator that a free host executes.
    if state != AllocationState::Available {
        let in_flight = matches!(state, AllocationState::Preparing | AllocationState::Reprovisioning);
        annotations[annotation::BLOCK_MOVE] = json!(in_flight.then_some("a plan is in flight"));
    }
    patch(client, inventory, "mark", &annotations, None).await.map(drop)
}

/// Lets `clusterctl move` wait for a plan, and records the allocation state if the plan belongs to
/// a machine. The annotation names the plan, so that another plan changes the version of the
/// inventory and an announcement on the former version fails. The record of the first plan is an
/// annotation, because a restore without status must not give the labels back to the host (decision 18).
pub async fn begin_plan(
    client: &Client,
    inventory: &MachineInventory,
    plan: &PlanId,
    state: Option<AllocationState>,
) -> Result<MachineInventory, StoreError> {
    let mut annotations = json!({
        annotation::BLOCK_MOVE: format!("plan {plan} is in flight"),
        annotation::HAD_PLAN: "true",
    });
    if let Some(state) = state {
        annotations[annotation::ALLOCATION_STATE] = json!(<&str>::from(state));
    }
    keep_identity(&mut annotations, inventory);
    patch(client, inventory, "begin a plan on", &annotations, None).await
}

/// Removes the request for an operator's plan, which was announced.
pub async fn forget_custom_plan(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::CUSTOM_PLAN: null });
    patch(client, inventory, "end the request of a plan on", &annotations, None).await.map(drop)
}

/// Removes the request for another clean of an abandoned host, which was announced.
pub async fn forget_retry(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::RETRY_PLAN: null });
    patch(client, inventory, "end the request of a clean on", &annotations, None).await.map(drop)
}

/// Records the boot that a reboot ends. From then on the host is asked to reboot.
pub async fn begin_reboot(
    client: &Client,
    inventory: &MachineInventory,
    boot: &str,
) -> Result<(), StoreError> {
    let annotations = json!({ annotation::REBOOTING_FROM: boot });
    patch(client, inventory, "request a reboot of", &annotations, None).await.map(drop)
}

/// Removes the request of a reboot, because the host runs another boot.
pub async fn finish_reboot(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::REBOOT: null, annotation::REBOOTING_FROM: null });
    patch(client, inventory, "end the request of a reboot of", &annotations, None).await.map(drop)
}

/// Removes the request to remove a journal that the host does not state any more.
pub async fn end_journal_request(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::FORGET_JOURNAL: null });
    patch(client, inventory, "end the request about the journal of", &annotations, None).await.map(drop)
}

/// Removes the request of an install, because the disk was installed again.
pub async fn forget_reinstall(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::REINSTALL: null });
    patch(client, inventory, "end the request of an install on", &annotations, None).await.map(drop)
}

/// Lets `clusterctl move` continue.
pub async fn allow_move(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::BLOCK_MOVE: null });
    patch(client, inventory, "allow the move of", &annotations, None).await.map(drop)
}

/// # Errors
/// Conflict if the inventory has changed, because another pool may hold it.
pub async fn hold_in_pool(
    client: &Client,
    inventory: &MachineInventory,
    pool: &str,
) -> Result<(), StoreError> {
    let annotations = json!({ annotation::POOL: pool });
    patch(client, inventory, "record the pool of", &annotations, None).await.map(drop)
}

/// Gives the inventory to a `BareMetalHost` by one compare-and-swap. No pool holds it any more.
///
/// # Errors
/// Conflict if the inventory has changed, because another host may own it.
pub async fn take(client: &Client, inventory: &MachineInventory, host: &str) -> Result<(), StoreError> {
    let annotations = json!({ annotation::OWNER_BARE_METAL_HOST: host, annotation::POOL: null });
    patch(client, inventory, "take", &annotations, None).await.map(drop)
}

/// Gives the inventory back, so that pools and other hosts may have it.
pub async fn give_back(client: &Client, inventory: &MachineInventory) -> Result<(), StoreError> {
    let annotations = json!({ annotation::OWNER_BARE_METAL_HOST: null });
    patch(client, inventory, "give back", &annotations, None).await.map(drop)
}

/// Makes the whole network that was reported last the intended one, so that parts that the host
/// lost do not stay.
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

/// Changes the facts of a host, projects its conditions, and writes the difference, if there is
/// one. `known` may be stale: after a conflict the object is read and the change is applied again.
pub async fn update_status(
    client: &Client,
    known: Arc<MachineInventory>,
    now: Timestamp,
    change: impl Fn(&mut MachineInventoryStatus),
) -> Result<Arc<MachineInventory>, StoreError> {
    let name = known.name_any();
    let inventories: Api<MachineInventory> = open_api(client, &*known);
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

/// Writes the status once, with the precondition of the object that the decision has read, so that
/// a stale decision is not announced.
pub async fn change_status(
    client: &Client,
    known: &MachineInventory,
    now: Timestamp,
    change: impl FnOnce(&mut MachineInventoryStatus),
) -> Result<(), StoreError> {
    status::write_status(client, known, &project_status(known, now, change)).await.map(drop)
}

/// Writes the conditions that differ. An update of `told` replaces the condition that follows from
/// the stored facts.
pub async fn write_conditions(
    client: &Client,
    known: &MachineInventory,
    told: impl IntoIterator<Item = ConditionUpdate>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut changed = known.clone();
    project_conditions(&mut changed, Told::Decided(told.into_iter().collect()), now);
    status::write_status(client, known, changed.status.get_or_insert_default()).await.map(drop)
}

fn project_status(
    known: &MachineInventory,
    now: Timestamp,
    change: impl FnOnce(&mut MachineInventoryStatus),
) -> MachineInventoryStatus {
    let mut changed = known.clone();
    recall_identity(&mut changed);
    change(changed.status.get_or_insert_default());
    project_conditions(&mut changed, Told::Kept, now);
    changed.status.unwrap_or_default()
}

/// Reads an inventory, which must have the identity `tpm_hash` if one is given.
pub async fn read(
    inventories: &Api<MachineInventory>,
    name: &str,
    tpm_hash: Option<&str>,
) -> Result<MachineInventory, StoreError> {
    let found = inventories.get_opt(name).await.map_err(StoreError::request("get", KIND, name))?;
    let found =
        found.filter(|inventory| tpm_hash.is_none() || inventory.spec.tpm_hash.as_deref() == tpm_hash);
    found.ok_or_else(|| StoreError::Gone { kind: KIND, name: name.to_owned() })
}

/// Marks an inventory if two live hosts have its identity. An operator removes the mark.
pub async fn quarantine(
    inventories: &Api<MachineInventory>,
    known: &MachineInventory,
    why: &str,
) -> Result<Arc<MachineInventory>, StoreError> {
    let name = known.name_any();
    // The precondition is the UID and not the version, so that the mark is written whatever else
    // changed.
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
