//! The infrastructure machine of any kind: its choice, its finalizer, its providerID.

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::{annotation, finalizer};
use coordinator_core::assignment::is_claimed_by;
use coordinator_core::demand::Demand;
use coordinator_core::host::HostRecord;
use coordinator_core::ids::HostName;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{Object, StoreError, open_api, patch, with_finalizer, without_finalizer};

/// Records the host that the machine will claim, and adds the finalizer. The precondition prevents
/// the choice of a second host from a stale cache, and of another host than the one that the
/// machine has claimed already.
///
/// # Errors
/// Conflict if the machine has changed, or holds a host already.
pub async fn choose<K: Object>(
    client: &Client,
    machine: &K,
    demand: &Demand,
    host: &HostName,
) -> Result<(), StoreError> {
    if demand.host.as_ref() != Some(host) {
        check_unclaimed(client, machine, demand).await?;
    }
    let metadata = json!({
        "annotations": { annotation::MACHINE_INVENTORY: host.as_str() },
        "finalizers": with_finalizer(machine.finalizers(), finalizer::BAREMETAL_MACHINE),
    });
    patch(client, machine, "choose a host for", json!({ "metadata": metadata })).await.map(drop)
}

/// Adds the finalizer to a machine that holds a host.
///
/// # Errors
/// Conflict when the machine has changed.
pub async fn protect<K: Object>(client: &Client, machine: &K) -> Result<(), StoreError> {
    let finalizers = with_finalizer(machine.finalizers(), finalizer::BAREMETAL_MACHINE);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, machine, "protect", change).await.map(drop)
}

/// Removes the finalizer, unless the machine holds the host that it names, because the cache may
/// not have seen the claim yet.
///
/// # Errors
/// Conflict if the machine holds its host, or has changed.
pub async fn remove_finalizer<K: Object>(
    client: &Client,
    machine: &K,
    demand: &Demand,
    change: Value,
) -> Result<(), StoreError> {
    check_unclaimed(client, machine, demand).await?;
    drop_finalizer(client, machine, change).await
}

/// Reads from the API server whether the machine holds the host that it names.
async fn check_unclaimed<K: Object>(client: &Client, machine: &K, demand: &Demand) -> Result<(), StoreError> {
    let Some(host) = &demand.host else { return Ok(()) };
    let inventories: Api<MachineInventory> = open_api(client, machine);
    let found = inventories.get_opt(host.as_str()).await;
    let found = found.map_err(StoreError::request("get", "MachineInventory", host.as_str()))?;
    let record = found.as_ref().and_then(HostRecord::parse);
    if record.is_some_and(|record| !record.is_abandoned && is_claimed_by(&record, demand)) {
        return Err(StoreError::Changed { kind: "MachineInventory", name: host.to_string() });
    }
    Ok(())
}

/// Removes the finalizer with the change that belongs to it. The caller makes sure that no host is
/// lost.
///
/// # Errors
/// Conflict when the machine has changed.
pub async fn drop_finalizer<K: Object>(
    client: &Client,
    machine: &K,
    mut change: Value,
) -> Result<(), StoreError> {
    let finalizers = without_finalizer(machine.finalizers(), finalizer::BAREMETAL_MACHINE);
    change["metadata"]["finalizers"] = json!(finalizers);
    patch(client, machine, "remove the finalizer of", change).await.map(drop)
}

/// Writes the providerID once, by the change of the kind.
///
/// # Errors
/// Terminal if the machine has another providerID.
pub async fn set_provider_id<K: Object>(
    client: &Client,
    machine: &K,
    change: Value,
) -> Result<(), StoreError> {
    patch(client, machine, "set spec.providerID of", change).await.map(drop)
}

/// Clears the operator's request for another clean.
///
/// # Errors
/// Conflict when the machine has changed.
pub async fn clear_retry<K: Object>(client: &Client, machine: &K) -> Result<(), StoreError> {
    if !machine.annotations().contains_key(annotation::RETRY_PLAN) {
        return Ok(());
    }
    let change = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: null } } });
    patch(client, machine, "clear annotation retry-plan of", change).await.map(drop)
}
