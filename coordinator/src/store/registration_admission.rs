//! What the admission of hosts leaves in the status of a `MachineRegistration`:
//! the places that were given away, and the host that was refused last.

use coordinator_api::registration::{LastRefusal, MachineRegistration, MachineRegistrationStatus};
use coordinator_core::inventory::admission::Place;
use kube::{Api, Client, ResourceExt as _};

use super::status::write_status;
use super::{StoreError, TRIES, is_conflict};

const KIND: &str = "MachineRegistration";

/// Takes a place by one compare-and-swap; `false` when there is none. `known`
/// may be stale: a conflict reads the registration and decides again.
///
/// # Errors
/// [`StoreError::Contended`], [`StoreError::Request`].
pub async fn reserve_place(
    client: &Client,
    known: &MachineRegistration,
    find_place: impl Fn(&MachineRegistration) -> Place,
) -> Result<bool, StoreError> {
    let stopped = change_status(client, known, |registration, status| match find_place(registration) {
        Place::Reserve(reservations) => {
            status.reservations = reservations;
            Ok(())
        }
        place => Err(place),
    });
    Ok(stopped.await?.is_none_or(|place| place == Place::Given))
}

/// Records a refused host, where `decide` says so.
///
/// # Errors
/// [`StoreError::Contended`], [`StoreError::Request`].
pub async fn record_refusal(
    client: &Client,
    known: &MachineRegistration,
    decide: impl Fn(&MachineRegistration) -> Option<LastRefusal>,
) -> Result<(), StoreError> {
    let stopped = change_status(client, known, |registration, status| match decide(registration) {
        Some(refusal) => {
            status.last_refusal = Some(refusal);
            Ok(())
        }
        None => Err(()),
    });
    stopped.await.map(drop)
}

/// Writes what `change` makes of the status. Where it stops, the answer is why.
async fn change_status<T>(
    client: &Client,
    known: &MachineRegistration,
    change: impl Fn(&MachineRegistration, &mut MachineRegistrationStatus) -> Result<(), T>,
) -> Result<Option<T>, StoreError> {
    let name = known.name_any();
    let api: Api<MachineRegistration> =
        Api::namespaced(client.clone(), &known.namespace().unwrap_or_default());
    let mut known = known.clone();
    for _ in 0..TRIES {
        let mut status = known.status.clone().unwrap_or_default();
        if let Err(stopped) = change(&known, &mut status) {
            return Ok(Some(stopped));
        }
        match write_status(client, &known, &status).await {
            Ok(_) => return Ok(None),
            Err(StoreError::Request { source, .. }) if is_conflict(&source) => {
                known = api.get(&name).await.map_err(StoreError::request("get", KIND, &name))?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Contended { kind: KIND, name })
}
