//! Admission of a new host: its token, the quota of the registration, and the approval of an
//! operator.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use coordinator_api::explain::EventReason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::host::HostRecord;
use coordinator_core::inventory::admission::{self, NewHosts, Registered};
use kube::ResourceExt as _;
use proto::refusal::Refusal;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{MatchedRegistration, refuse_call};
use crate::ca::HostKey;
use crate::key::Key;
use crate::rpc::{Buckets, Context, Rate, RpcError, describe_inventory};
use crate::store::registration_admission;

/// State of admissions, by registration, so that no registration waits for the hosts of another one.
#[derive(Default)]
pub(in crate::rpc) struct Admissions {
    /// Held while a place of a quota is reserved.
    turns: Mutex<HashMap<Key, Weak<AsyncMutex<()>>>>,
    new_hosts: Buckets<Key>,
}

impl Admissions {
    fn find_turn(&self, registration: &Key) -> Arc<AsyncMutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(registration).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::<AsyncMutex<()>>::default();
        turns.insert(registration.clone(), Arc::downgrade(&turn));
        turn
    }

    /// Counts a new host; `false` if too many came.
    fn take_token(&self, registration: &Key, new_hosts: NewHosts) -> bool {
        let interval = Duration::from_mins(1) / new_hosts.per_minute;
        self.new_hosts.take_token(
            registration.clone(),
            Rate { interval, burst: new_hosts.at_once },
            Instant::now(),
        )
    }
}

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
    let turn = context.admissions.find_turn(&registration_key);
    let _turn = turn.lock().await;
    let reserved = registration_admission::reserve_place(
        &context.client,
        || context.latest_registration(registration),
        check_quota,
    );
    if !reserved.await? {
        let quota = admission::max_hosts(registration);
        let detail = format!("the MachineRegistration {name} takes {quota} hosts, and has them");
        return Err(RpcError::from_refusal(Refusal::QuotaExhausted, detail));
    }
    let new_hosts = admission::new_hosts(registration);
    if context.admissions.take_token(&registration_key, new_hosts) {
        return Ok(());
    }
    let NewHosts { per_minute, at_once } = new_hosts;
    Err(RpcError::refused_with(
        Refusal::QuotaExhausted,
        format!(
            "the MachineRegistration {name} takes {per_minute} new hosts a minute after the first {at_once}"
        ),
        "raise spec.newHostsPerMinute of the MachineRegistration, or wait; the host continues by itself",
    ))
}

/// Refuses a host that states no boot while neither its live system nor an installed one is known: nothing
/// would tell the first boot of the installed system from this one, and no TPM would be recorded.
pub(super) fn refuse_unstated_boot(inventory: Option<&MachineInventory>) -> Result<(), RpcError> {
    let record = inventory.and_then(HostRecord::parse);
    if record.is_some_and(|record| record.live_boot_id.is_some() || record.carried.is_some()) {
        return Ok(());
    }
    refuse_call(Refusal::BadRequest, "a live system states its boot when it registers")
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
pub(super) fn refuse_pending(context: &Context, inventory: &MachineInventory) -> Result<(), RpcError> {
    let Some(record) = HostRecord::parse(inventory) else { return Ok(()) };
    let refused = refuse_unapproved(&record);
    if refused.is_err() {
        let note = format!("{} waits for approval; next: {}", record.name, record.approval_command());
        context.events.publish(inventory, EventReason::ApprovalPending, &note);
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
