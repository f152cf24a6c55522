//! Ownership of an inventory: chosen, claimed, released, each in one write.

use coordinator_api::inventory::{AllocationState, Claim, MachineInventory};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{annotation, finalizer};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::StoreError;

/// Holds the machine and notes which inventory it will claim. The machine's
/// `resourceVersion` is the precondition: from a stale cache it cannot choose
/// a second one.
///
/// # Errors
/// Conflict when the machine has changed.
pub async fn choose(client: &Client, machine: &BaremetalMachine, inventory: &str) -> Result<(), StoreError> {
    let held = with(machine.finalizers(), finalizer::BAREMETAL_MACHINE);
    let patch = metadata(machine, &json!({ annotation::MACHINE_INVENTORY: inventory }), &held);
    patch_machine(client, machine, "choose a host for", &patch).await
}

/// Makes `inventory` the machine's own: one compare-and-swap. The finalizer
/// comes with it, so that nobody deletes the only record of who owns a host.
///
/// # Errors
/// Conflict when the inventory has changed: somebody else may own it now.
pub async fn claim(client: &Client, inventory: &MachineInventory, claim: &Claim) -> Result<(), StoreError> {
    let state: &str = AllocationState::Allocated.into();
    let annotations = json!({
        annotation::OWNER_BAREMETAL_MACHINE: claim.baremetal_machine,
        annotation::OWNER_UID: claim.uid,
        annotation::OWNER_MACHINE: claim.machine,
        annotation::OWNER_CLUSTER: claim.cluster,
        annotation::POOL: claim.pool,
        annotation::ALLOCATION_STATE: state,
    });
    let held = with(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch_inventory(client, inventory, "claim", &metadata(inventory, &annotations, &held)).await.map(drop)
}

/// Takes the claim off the inventory and leaves it in `state`. The annotation
/// of the pool stays, as people expect.
///
/// # Errors
/// Conflict when the inventory has changed.
pub async fn release(
    client: &Client,
    inventory: &MachineInventory,
    state: AllocationState,
) -> Result<(), StoreError> {
    let state: &str = state.into();
    let annotations = json!({
        annotation::OWNER_BAREMETAL_MACHINE: null,
        annotation::OWNER_UID: null,
        annotation::OWNER_MACHINE: null,
        annotation::OWNER_CLUSTER: null,
        annotation::ALLOCATION_STATE: state,
    });
    let free = without(inventory.finalizers(), finalizer::MACHINE_INVENTORY);
    patch_inventory(client, inventory, "release", &metadata(inventory, &annotations, &free)).await.map(drop)
}

/// Says on the inventory what its host works on; the answer is the inventory
/// as it is then.
///
/// # Errors
/// Conflict when the inventory has changed: from a stale cache a host that was
/// given back long ago must not be marked.
pub async fn mark(
    client: &Client,
    inventory: &MachineInventory,
    state: AllocationState,
) -> Result<MachineInventory, StoreError> {
    if inventory.allocation_state() == state {
        return Ok(inventory.clone());
    }
    let text: &str = state.into();
    let patch = json!({
        "metadata": {
            "resourceVersion": inventory.resource_version(),
            "annotations": { annotation::ALLOCATION_STATE: text },
        }
    });
    patch_inventory(client, inventory, "mark", &patch).await
}

/// Lets the machine go, unless the inventory that it chose turns out to be its
/// own: the cache may not have seen the claim yet, and a host claimed by
/// nobody could never be used again.
///
/// # Errors
/// Conflict when the claim is there after all, or the machine has changed.
pub async fn remove_finalizer(client: &Client, machine: &BaremetalMachine) -> Result<(), StoreError> {
    if let Some(chosen) = machine.annotations().get(annotation::MACHINE_INVENTORY) {
        let found = inventories(client, machine).get_opt(chosen).await;
        let found = found.map_err(StoreError::of("look at", "MachineInventory", chosen))?;
        let claim = found.and_then(|inventory| inventory.claim());
        if claim.is_some_and(|claim| Some(claim.uid) == machine.uid()) {
            let conflict =
                kube::core::Status::failure("the claim was not in the cache yet", "Conflict").with_code(409);
            let source = Box::new(kube::Error::Api(conflict.boxed()));
            return Err(StoreError {
                verb: "release",
                kind: "MachineInventory",
                name: chosen.clone(),
                source,
            });
        }
    }
    let free = without(machine.finalizers(), finalizer::BAREMETAL_MACHINE);
    patch_machine(client, machine, "let go", &metadata(machine, &json!({}), &free)).await
}

/// Writes the providerID, once.
///
/// # Errors
/// Terminal when the machine has another one.
pub async fn provide(
    client: &Client,
    machine: &BaremetalMachine,
    provider_id: &str,
) -> Result<(), StoreError> {
    patch_machine(client, machine, "provide", &json!({ "spec": { "providerID": provider_id } })).await
}

/// Takes a person's wish for another try off the machine.
///
/// # Errors
/// As every write.
pub async fn forget_retry(client: &Client, machine: &BaremetalMachine) -> Result<(), StoreError> {
    if !machine.annotations().contains_key(annotation::RETRY_PLAN) {
        return Ok(());
    }
    let patch = json!({ "metadata": { "annotations": { annotation::RETRY_PLAN: null } } });
    patch_machine(client, machine, "take the retry off", &patch).await
}

fn inventories(client: &Client, of: &impl ResourceExt) -> Api<MachineInventory> {
    Api::namespaced(client.clone(), &of.namespace().unwrap_or_default())
}

fn metadata(object: &impl ResourceExt, annotations: &Value, finalizers: &[String]) -> Value {
    json!({
        "metadata": {
            "resourceVersion": object.resource_version(),
            "annotations": annotations,
            "finalizers": finalizers,
        }
    })
}

fn with(finalizers: &[String], name: &str) -> Vec<String> {
    let mut finalizers = without(finalizers, name);
    finalizers.push(name.to_owned());
    finalizers
}

fn without(finalizers: &[String], name: &str) -> Vec<String> {
    finalizers.iter().filter(|held| *held != name).cloned().collect()
}

async fn patch_machine(
    client: &Client,
    machine: &BaremetalMachine,
    verb: &'static str,
    patch: &Value,
) -> Result<(), StoreError> {
    let api: Api<BaremetalMachine> =
        Api::namespaced(client.clone(), &machine.namespace().unwrap_or_default());
    let name = machine.name_any();
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    done.map(drop).map_err(StoreError::of(verb, "BaremetalMachine", &name))
}

async fn patch_inventory(
    client: &Client,
    inventory: &MachineInventory,
    verb: &'static str,
    patch: &Value,
) -> Result<MachineInventory, StoreError> {
    let name = inventory.name_any();
    let done =
        inventories(client, inventory).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    done.map_err(StoreError::of(verb, "MachineInventory", &name))
}
