//! The finding of an object, by its kind.

use coordinator_api::conditions::Reason;
use jiff::Timestamp;
use proto::refusal::Refusal;

use super::finding::{Finding, find_in_conditions};
use super::host::find_host;
use super::metal3::{find_bare_metal_host, find_reported};
use super::pool::find_pool;
use crate::fleet::{Fleet, Kind, Object};

/// The statement of an object that matters most. `is_asked_for` also takes conditions into
/// account that do not keep the object from being ready.
pub(crate) fn find(fleet: &Fleet, object: &Object, is_asked_for: bool, now: Timestamp) -> Finding {
    match object.id.kind {
        Kind::MachineInventory => find_host(object, is_asked_for, now),
        Kind::MachineInventoryPool => find_pool(fleet, object),
        Kind::BareMetalHost => find_bare_metal_host(object),
        Kind::MachineRegistration => find_registration(object, is_asked_for),
        Kind::Cluster if object.is_paused() => {
            let message = "spec.paused is true: nothing of the cluster is reconciled";
            Finding::fine(message).refined(Reason::Paused.as_str(), None)
        }
        Kind::Metal3DataClaim | Kind::Metal3Data | Kind::IPClaim => find_reported(object),
        _ => find_in_conditions(object, is_asked_for),
    }
}

/// The finding of a registration. Its status names the last refusal, and each refusal has a next
/// action.
fn find_registration(object: &Object, is_asked_for: bool) -> Finding {
    let finding = find_in_conditions(object, is_asked_for);
    let refusal = object.status()["lastRefusal"]["reason"].as_str().and_then(Refusal::from_code);
    match refusal.filter(|_| finding.reason == Reason::HostRefused.as_str()) {
        Some(refusal) => finding.with_next_action(refusal.next_action()),
        None => finding,
    }
}

/// The finding of an object from its conditions alone: other objects are not read.
pub(crate) fn find_stated(object: &Object) -> Finding {
    find_in_conditions(object, true)
}
