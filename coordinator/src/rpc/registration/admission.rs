//! Whether a new host is taken: its token, the quota of the registration, and
//! the approval of an operator.

use coordinator_api::explain::EventReason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::host::HostRecord;
use coordinator_core::inventory::admission::{self, Registered};
use kube::ResourceExt as _;
use proto::refusal::Refusal;

use super::Opening;
use crate::ca::HostKey;
use crate::rpc::{Context, RpcError, describe_inventory};
use crate::store::registration_admission;

/// A token that has expired opens nothing for a host that is not known.
pub(super) fn check_token(context: &Context, opening: &Opening) -> Result<(), RpcError> {
    match opening.registration.as_deref().filter(|_| !opening.is_known) {
        Some(registration) => refuse_expired(context, registration),
        None => Ok(()),
    }
}

fn refuse_expired(context: &Context, registration: &MachineRegistration) -> Result<(), RpcError> {
    if !admission::is_token_expired(registration, context.now()) {
        return Ok(());
    }
    let detail = format!("the token of the MachineRegistration {} has expired", registration.name_any());
    Err(RpcError::from_refusal(Refusal::TokenExpired, detail))
}

/// Takes a place for a host without an inventory.
pub(super) async fn admit_host(
    context: &Context,
    registration: &MachineRegistration,
    key: &HostKey,
) -> Result<(), RpcError> {
    refuse_expired(context, registration)?;
    let Some(quota) = registration.spec.max_hosts else { return Ok(()) };
    let name = registration.name_any();
    let notifications = &context.caches.notifications;
    let is_registered = |hash: &str| {
        let key = HostKey { namespace: key.namespace.clone(), tpm_hash: hash.to_owned() };
        notifications.is_registered(&name, &key)
    };
    let check_quota = |registration: &MachineRegistration| {
        let count = notifications.count_registered(&key.namespace, &name);
        let registered = Registered { count, contains: &is_registered };
        admission::check_quota(registration, &registered, &key.tpm_hash, context.now())
    };
    let _turn = context.quota_turn.lock().await;
    let latest = || context.latest_registration(registration);
    if registration_admission::reserve_place(&context.client, latest, check_quota).await? {
        return Ok(());
    }
    let detail = format!("the MachineRegistration {name} takes {quota} hosts, and has them");
    Err(RpcError::from_refusal(Refusal::QuotaExhausted, detail))
}

/// A host that waits asks again and again: nothing is read or written for it
/// when this boot is recorded.
pub(super) fn refuse_recorded(inventory: &MachineInventory, boot_id: &str) -> Result<(), RpcError> {
    let Some(record) = HostRecord::parse(inventory) else { return Ok(()) };
    let is_recorded = record.plan_secret.is_some() && record.live_boot_id.as_deref() == Some(boot_id);
    if is_recorded { refuse_unapproved(&record) } else { Ok(()) }
}

/// The inventory is there for an operator to see: the host gets no certificate.
pub(super) async fn refuse_pending(context: &Context, inventory: &MachineInventory) -> Result<(), RpcError> {
    let Some(record) = HostRecord::parse(inventory) else { return Ok(()) };
    let refused = refuse_unapproved(&record);
    if refused.is_err() {
        let note = format!("{} waits for approval; next: {}", record.name, record.approval_command());
        context.events.publish(inventory, EventReason::ApprovalPending, &note).await;
    }
    refused
}

fn refuse_unapproved(record: &HostRecord) -> Result<(), RpcError> {
    if record.refusal() != Some(Refusal::ApprovalPending) {
        return Ok(());
    }
    let next = format!("{}; the host continues by itself", record.approval_command());
    Err(RpcError::refused_with(Refusal::ApprovalPending, describe_inventory(record.name.as_str()), next))
}
