//! The status of a `MachineRegistration` after the admission of hosts: the places that were taken,
//! and the host that was refused last.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::registration::{LastRefusal, MachineRegistration, MachineRegistrationStatus};
use coordinator_core::inventory::admission::Quota;
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep};

use super::status::write_status;
use super::{StoreError, TRIES, is_conflict};

/// The time in which the cache shows an object that a write has met.
const CACHE_DEADLINE: Duration = Duration::from_secs(2);
const CACHE_INTERVAL: Duration = Duration::from_millis(20);

/// Takes a place by one compare-and-swap; `false` if there is none. `latest` is the registration in
/// the cache: after a conflict the decision waits until the cache has a newer one.
pub async fn reserve_place(
    client: &Client,
    latest: impl Fn() -> Arc<MachineRegistration>,
    check_quota: impl Fn(&MachineRegistration) -> Quota,
) -> Result<bool, StoreError> {
    let stopped = change_status(client, latest, |registration, status| match check_quota(registration) {
        Quota::Reserve(reservations) => {
            status.reservations = reservations;
            Ok(())
        }
        quota => Err(quota),
    });
    Ok(stopped.await?.is_none_or(|quota| quota == Quota::Free))
}

/// Records a refused host, if `decide` gives one.
pub async fn record_refusal(
    client: &Client,
    latest: impl Fn() -> Arc<MachineRegistration>,
    decide: impl Fn(&MachineRegistration) -> Option<LastRefusal>,
) -> Result<(), StoreError> {
    let stopped = change_status(client, latest, |registration, status| match decide(registration) {
        Some(refusal) => {
            status.last_refusal = Some(refusal);
            Ok(())
        }
        None => Err(()),
    });
    stopped.await.map(drop)
}

/// Writes the status after `change`. If `change` stops, its reason is the answer.
async fn change_status<T>(
    client: &Client,
    latest: impl Fn() -> Arc<MachineRegistration>,
    change: impl Fn(&MachineRegistration, &mut MachineRegistrationStatus) -> Result<(), T>,
) -> Result<Option<T>, StoreError> {
    for _ in 0..TRIES {
        let known = latest();
        let mut status = known.status.clone().unwrap_or_default();
        if let Err(stopped) = change(&known, &mut status) {
            return Ok(Some(stopped));
        }
        match write_status(client, &*known, &status).await {
            Ok(_) => return Ok(None),
            Err(StoreError::Request { source, .. }) if is_conflict(&source) => {
                await_newer(&known, &latest).await;
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Contended { kind: "MachineRegistration", name: latest().name_any() })
}

async fn await_newer(known: &MachineRegistration, latest: impl Fn() -> Arc<MachineRegistration>) {
    let start = Instant::now();
    while latest().resource_version() == known.resource_version() && start.elapsed() < CACHE_DEADLINE {
        sleep(CACHE_INTERVAL).await;
    }
}
