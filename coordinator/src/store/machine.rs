//! The infrastructure machine, of whatever kind: its choice, its finalizer,
//! its providerID.

use std::fmt::Debug;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::{annotation, finalizer};
use coordinator_core::assignment::is_claimed_by;
use coordinator_core::demand::Demand;
use coordinator_core::host::HostRecord;
use coordinator_core::ids::HostName;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{StoreError, patch, with_finalizer, without_finalizer};

/// A kind of infrastructure machine.
pub trait Machine:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K> Machine for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

/// Records which host the machine will claim, and adds the finalizer. From a
/// stale cache it cannot choose a second one, nor another one than the host that it
/// has claimed already.
///
/// # Errors
/// Conflict when the machine has changed, or its claim is there after all.
pub async fn choose<K: Machine>(
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
pub async fn protect<K: Machine>(client: &Client, machine: &K) -> Result<(), StoreError> {
    let finalizers = with_finalizer(machine.finalizers(), finalizer::BAREMETAL_MACHINE);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, machine, "protect", change).await.map(drop)
}

/// Removes the finalizer, unless the host that the machine names turns out to
/// be its own: the cache may not have seen the claim yet.
///
/// # Errors
/// Conflict when the claim is there after all, or the machine has changed.
pub async fn remove_finalizer<K: Machine>(
    client: &Client,
    machine: &K,
    demand: &Demand,
    change: Value,
) -> Result<(), StoreError> {
    check_unclaimed(client, machine, demand).await?;
    drop_finalizer(client, machine, change).await
}

/// Looks in the API server itself whether the machine holds the host that it names.
async fn check_unclaimed<K: Machine>(
    client: &Client,
    machine: &K,
    demand: &Demand,
) -> Result<(), StoreError> {
    let Some(host) = &demand.host else { return Ok(()) };
    let inventories: Api<MachineInventory> =
        Api::namespaced(client.clone(), &machine.namespace().unwrap_or_default());
    let found = inventories.get_opt(host.as_str()).await;
    let found = found.map_err(StoreError::request("get", "MachineInventory", host.as_str()))?;
    let is_owned = |record: HostRecord| !record.is_abandoned && is_claimed_by(&record, demand);
    if found.as_ref().and_then(HostRecord::parse).is_some_and(is_owned) {
        return Err(StoreError::Changed { kind: "MachineInventory", name: host.to_string() });
    }
    Ok(())
}

/// Removes the finalizer, and makes the change that belongs to it; the caller knows
/// that no host is lost by it.
///
/// # Errors
/// Conflict when the machine has changed.
pub async fn drop_finalizer<K: Machine>(
    client: &Client,
    machine: &K,
    mut change: Value,
) -> Result<(), StoreError> {
    let finalizers = without_finalizer(machine.finalizers(), finalizer::BAREMETAL_MACHINE);
    change["metadata"]["finalizers"] = json!(finalizers);
    patch(client, machine, "remove the finalizer of", change).await.map(drop)
}

/// Writes the providerID, once, by the change that is the kind's own.
///
/// # Errors
/// Terminal when the machine has another one.
pub async fn set_provider_id<K: Machine>(
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
pub async fn clear_retry<K: Machine>(client: &Client, machine: &K) -> Result<(), StoreError> {
    if !machine.annotations().contains_key(annotation::RETRY_PLAN) {
        return Ok(());
    }
    let change = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: null } } });
    patch(client, machine, "clear annotation retry-plan of", change).await.map(drop)
}
