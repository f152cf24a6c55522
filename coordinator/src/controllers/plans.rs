//! Effects on a host that both engines have.

use coordinator_api::conditions::join_text;
use coordinator_api::inventory::MachineInventory;
use coordinator_core::assignment::{Assignment, allocation_of};
use coordinator_core::host::{HostRecord, facts};
use kube::ResourceExt as _;

use super::context::Context;
use crate::store::plan_record::PlanSecret;
use crate::store::{StoreError, host, plan_record};

/// Stores and announces a plan record of a host. The inventory is written first, so that a Secret
/// with an announced plan does not change if another replica has acted since the inventory was
/// read.
pub(super) async fn write_plan(
    context: &Context,
    inventory: &MachineInventory,
    assignment: &Assignment,
    secret: Option<&PlanSecret>,
) -> Result<(), StoreError> {
    let plan = &*assignment.plan;
    let state = allocation_of(plan);
    let begun = host::begin_plan(&context.client, inventory, &plan.id, state).await?;
    if let (Some(secret), Some(bytes)) = (secret, &assignment.bytes) {
        plan_record::write(&context.client, inventory, plan.kind, bytes, secret).await?;
    }
    if let Some(lost) = &assignment.lost {
        let message = format!("{}; recreated with plan {}", lost.message, plan.id);
        let note = join_text(&message, &lost.next_action);
        context.events.publish(inventory, lost.reason, &note);
    }
    let now = context.clock.now();
    host::change_status(&context.client, &begun, now, |status| {
        let (hash, not_kept) = (assignment.bootstrap_hash.as_ref(), &assignment.not_kept);
        facts::record_announcement(status, plan, hash, not_kept, now);
    })
    .await
}

/// The note of a released host.
pub(super) fn describe_release(inventory: &MachineInventory, available: &str) -> String {
    let record = HostRecord::parse(inventory);
    match record.as_ref().and_then(HostRecord::foreign_owner) {
        Some(owner) => format!(
            "{} is left as it is: it states that it carries the node of {owner}",
            inventory.name_any()
        ),
        None => format!("{} is available{available}", inventory.name_any()),
    }
}
