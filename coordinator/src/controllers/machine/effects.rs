//! What a decision does to the world, one effect at a time.

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::{AllocationState, Claim};
use coordinator_core::machine::{Decision, Failure};
use coordinator_core::plan::Stored;
use kube::ResourceExt;

use super::{Observed, Reading};
use crate::controllers::Context;
use crate::store::plan::Read;
use crate::store::{StoreError, claim, plan};

/// The one effect of a decision.
pub(super) async fn apply(
    context: &Context,
    observed: &Observed,
    decision: &Decision,
) -> Result<(), StoreError> {
    let (client, machine) = (&context.client, &*observed.machine);
    match decision {
        Decision::Choose { inventory } => claim::choose(client, machine, inventory).await,
        Decision::Claim { claim, .. } => make_own(context, observed, claim).await,
        Decision::Assign { stored, .. } => assign(context, observed, stored).await,
        Decision::Announce { stored, .. } => announce(context, observed, stored).await,
        Decision::Provide { provider_id, .. } => provide(context, observed, provider_id).await,
        Decision::Release { .. } => release(context, observed, AllocationState::Available).await,
        Decision::Abandon { .. } => release(context, observed, AllocationState::Unavailable).await,
        Decision::RemoveFinalizer if machine.finalizers().is_empty() => Ok(()),
        Decision::RemoveFinalizer => claim::remove_finalizer(client, machine).await,
        Decision::Fail(Failure::Plan { .. }) => mark(context, observed, AllocationState::Unavailable).await,
        Decision::Rest | Decision::Wait(_) | Decision::Fail(_) => Ok(()),
    }
}

async fn make_own(context: &Context, observed: &Observed, claim: &Claim) -> Result<(), StoreError> {
    let Some(inventory) = observed.inventory.as_deref() else { return Ok(()) };
    claim::claim(&context.client, inventory, claim).await?;
    let note = format!("claimed MachineInventory {}", inventory.name_any());
    context.events.normal(&*observed.machine, "InventoryAllocated", &note).await;
    Ok(())
}

async fn mark(context: &Context, observed: &Observed, state: AllocationState) -> Result<(), StoreError> {
    match observed.inventory.as_deref() {
        Some(inventory) => claim::mark(&context.client, inventory, state).await.map(drop),
        None => Ok(()),
    }
}

async fn provide(context: &Context, observed: &Observed, provider_id: &str) -> Result<(), StoreError> {
    mark(context, observed, AllocationState::Allocated).await?;
    claim::provide(&context.client, &observed.machine, provider_id).await?;
    let note = format!("the host runs as {provider_id}");
    context.events.normal(&*observed.machine, "Provisioned", &note).await;
    Ok(())
}

async fn release(context: &Context, observed: &Observed, state: AllocationState) -> Result<(), StoreError> {
    let Some(inventory) = observed.inventory.as_deref() else { return Ok(()) };
    claim::release(&context.client, inventory, state).await?;
    let name = inventory.name_any();
    if state == AllocationState::Available {
        context.events.normal(inventory, "Released", &format!("{name} is available again")).await;
        return Ok(());
    }
    let note = format!(
        "{name} was given up without a clean and may still hold a node's credentials: to use its host again, delete this MachineInventory and boot the seed ISO"
    );
    context.events.warning(inventory, "ReleasedWithoutClean", &note).await;
    Ok(())
}

async fn assign(context: &Context, observed: &Observed, stored: &Stored) -> Result<(), StoreError> {
    let Some(inventory) = observed.inventory.as_deref() else { return Ok(()) };
    let (read, lost) = match &observed.plan {
        Reading::NotAsked => return Ok(()),
        Reading::Missing => {
            (None, Some((Reason::PlanSecretMissing, "the plan Secret was missing".to_owned())))
        }
        Reading::Holds(read) => (Some(read), unusable(read)),
    };
    plan::write(&context.client, inventory, stored, read).await?;
    if let Some((reason, why)) = lost {
        let note = format!("{why}; it was made anew with plan {}", stored.plan.id);
        context.events.warning(inventory, reason.as_str(), &note).await;
    }
    announce(context, observed, stored).await?;
    let note = format!("plan {} for {}", stored.plan.id, inventory.name_any());
    context.events.normal(&*observed.machine, "PlanAssigned", &note).await;
    Ok(())
}

/// Why what the Secret held could not be gone on with.
fn unusable(read: &Read) -> Option<(Reason, String)> {
    let held = read.value.as_ref().map(|value| coordinator_core::plan::find(value.expose()))?;
    held.unusable
        .map(|error| (Reason::PlanSecretInvalid, format!("what the plan Secret held was no plan: {error}")))
}

async fn announce(context: &Context, observed: &Observed, stored: &Stored) -> Result<(), StoreError> {
    let Some(inventory) = observed.inventory.as_deref() else { return Ok(()) };
    plan::announce(&context.client, inventory, stored).await?;
    claim::forget_retry(&context.client, &observed.machine).await
}
