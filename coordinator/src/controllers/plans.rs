//! Effects on a host that both engines have: a plan, and the words for a release.

use coordinator_api::conditions::join_text;
use coordinator_api::inventory::MachineInventory;
use coordinator_core::assignment::{Assignment, allocation_of};
use coordinator_core::host::{HostRecord, facts};
use kube::ResourceExt as _;

use super::context::Context;
use crate::store::plan_record::StoredSecret;
use crate::store::{StoreError, host, plan_record};

/// Stores and announces a plan record of a host. The inventory comes first: where another replica
/// has acted since it was read, the Secret, which may hold a plan that was announced, stays as it is.
pub(super) async fn write_plan(
    context: &Context,
    inventory: &MachineInventory,
    assignment: &Assignment,
    secret: Option<&StoredSecret>,
) -> Result<(), StoreError> {
    let plan = &assignment.record.plan;
    let state = allocation_of(&assignment.record);
    let begun = host::begin_plan(&context.client, inventory, &plan.id, state).await?;
    if let (Some(secret), false) = (secret, assignment.is_stored) {
        plan_record::write(&context.client, inventory, &assignment.record, secret).await?;
    }
    if let Some(lost) = &assignment.lost {
        let message = format!("{}; recreated with plan {}", lost.message, plan.id);
        let note = join_text(&message, &lost.next_action);
        context.events.publish(inventory, lost.reason, &note).await;
    }
    let now = context.clock.now();
    let announce = |status: &mut _| facts::record_announcement(status, plan, now);
    host::change_status(&context.client, &begun, now, announce).await
}

/// What a host that is released is now.
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
