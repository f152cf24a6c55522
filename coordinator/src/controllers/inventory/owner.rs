//! Claims whose machine is gone or knows nothing of them.

use coordinator_api::inventory::{AllocationState, MachineInventory};
use coordinator_api::machine::BaremetalMachine;
use coordinator_core::inventory::owner::{Ownership, ownership};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};

use crate::controllers::Context;
use crate::store::{StoreError, claim};

/// Looks after the claim on `inventory`. The cache is asked first and can be
/// behind: nothing is done before the API server says the same.
pub(super) async fn look_after(inventory: &MachineInventory, context: &Context) -> Result<(), StoreError> {
    let Some(owner) = inventory.claim() else { return Ok(()) };
    let (name, namespace) = (owner.baremetal_machine, inventory.namespace().unwrap_or_default());
    let cached = context.caches.baremetal_machines.get(&ObjectRef::new(&name).within(&namespace));
    if ownership(inventory, cached.as_deref()) == Ownership::Settled {
        return Ok(());
    }
    let api: Api<BaremetalMachine> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(&name).await.map_err(StoreError::of("look at", "BaremetalMachine", &name))?;
    match ownership(inventory, found.as_ref()) {
        Ownership::Settled => Ok(()),
        Ownership::Stray => claim::release(&context.client, inventory, AllocationState::Available).await,
        Ownership::Forgotten => {
            claim::release(&context.client, inventory, AllocationState::Unavailable).await
        }
        Ownership::Orphaned => tell(inventory, &name, context).await,
    }
}

/// Once: the mark is what is left of it.
async fn tell(inventory: &MachineInventory, machine: &str, context: &Context) -> Result<(), StoreError> {
    if inventory.allocation_state() == AllocationState::Unavailable {
        return Ok(());
    }
    claim::mark(&context.client, inventory, AllocationState::Unavailable).await?;
    let note = format!(
        "BaremetalMachine {machine} held this host and is gone without having it cleaned; nothing is done to the host, and nobody gets it: to use it again, delete this MachineInventory and boot the seed ISO"
    );
    context.events.warning(inventory, "OwnerMissing", &note).await;
    Ok(())
}
