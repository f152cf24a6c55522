//! Admission of a new host: its token, the quota of the registration, and the approval of an
//! operator.

use coordinator_api::explain::EventReason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::host::HostRecord;
use coordinator_core::inventory::admission::{self, Registered};
use kube::ResourceExt as _;
use proto::refusal::Refusal;

use super::MatchedRegistration;
use crate::ca::HostKey;
use crate::key::Key;
use crate::rpc::{Context, RpcError, describe_inventory};
use crate::store::registration_admission;

/// Refuses a new host with an expired token.
pub(super) fn check_token(context: &Context, matched: &MatchedRegistration) -> Result<(), RpcError> {
    match matched.registration.as_deref().filter(|_| !matched.is_known) {
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

/// Reserves a place of the quota for a host without an inventory.
pub(super) async fn admit_host(
    context: &Context,
    registration: &MachineRegistration,
    key: &HostKey,
) -> Result<(), RpcError> {
    refuse_expired(context, registration)?;
    let Some(quota) = registration.spec.max_hosts else { return Ok(()) };
    let name = registration.name_any();
    let notifications = &context.caches.notifications;
    let registration_key = Key::new(key.namespace.clone(), name.as_str());
    let check_quota = |registration: &MachineRegistration| {
        let count = notifications.count_registered(&registration_key);
        let contains = &|hash: &str| {
            let key = HostKey { namespace: key.namespace.clone(), tpm_hash: hash.to_owned() };
            notifications.is_registered(&name, &key)
        };
        admission::check_quota(registration, &Registered { count, contains }, &key.tpm_hash, context.now())
    };
    let _turn = context.quota_turn.lock().await;
    let reserved = registration_admission::reserve_place(
        &context.client,
        || context.latest_registration(registration),
        check_quota,
    );
    if reserved.await? {
        return Ok(());
    }
    let detail = format!("the MachineRegistration {name} takes {quota} hosts, and has them");
    Err(RpcError::from_refusal(Refusal::QuotaExhausted, detail))
}

/// Refuses a waiting host whose boot is recorded. Such a host asks again and again, so that this check
/// comes before every read and write.
pub(super) fn refuse_recorded(inventory: &MachineInventory, boot_id: &str) -> Result<(), RpcError> {
    let Some(record) = HostRecord::parse(inventory) else { return Ok(()) };
    let is_recorded = record.plan_secret.is_some() && record.live_boot_id.as_deref() == Some(boot_id);
    if is_recorded { refuse_unapproved(&record) } else { Ok(()) }
}

/// Refuses a waiting host after its inventory was created for the operator, so that the host gets no
/// certificate.
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
