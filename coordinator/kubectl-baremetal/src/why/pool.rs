//! The finding of a `MachineInventoryPool`, and the state of its members.

use std::collections::BTreeMap;

use coordinator_api::conditions::Reason;
use coordinator_api::explain::Attention;
use coordinator_core::pool::{Availability, Exclusion, host_availability};

use super::finding::{Finding, find_in_conditions};
use crate::fleet::{Fleet, Id, Kind, Object};

/// Exclusions that an operator does not end, because another user holds the host.
const HELD: [Exclusion; 2] = [Exclusion::OtherPool, Exclusion::BareMetalHost];

pub(super) fn find_pool(fleet: &Fleet, object: &Object) -> Finding {
    let finding = find_in_conditions(object, true);
    let Some(pool) = object.pool() else { return finding };
    let mut counts = BTreeMap::<&str, usize>::new();
    for name in fleet.members_of(&pool) {
        *counts.entry(describe_availability(availability_of(fleet, object, &name))).or_default() += 1;
    }
    let is_cause = finding.attention == Attention::Act && !finding.is_advice();
    if counts.contains_key(AVAILABLE) || is_cause {
        return finding;
    }
    // A machine waits for a free member, whatever is advised.
    let finding = if finding.is_advice() { find_in_conditions(object, false) } else { finding };
    let counts: Vec<_> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let members = if counts.is_empty() { "no members".to_owned() } else { counts.join(", ") };
    let message = format!("no member is available: {members}");
    finding.refined(Reason::PoolExhausted.as_str(), Some(&message))
}

/// Members that an operator may make available.
pub(super) fn list_recoverable(fleet: &Fleet, object: &Object) -> Vec<Id> {
    let Some(pool) = object.pool() else { return vec![] };
    let members = fleet.members_of(&pool).into_iter();
    let recoverable = members.filter(|name| {
        let availability = availability_of(fleet, object, name);
        matches!(availability, Availability::Unavailable(exclusion) if !HELD.contains(&exclusion))
    });
    recoverable.map(|name| Id::new(Kind::MachineInventory, &object.id.namespace, &name)).collect()
}

fn availability_of(fleet: &Fleet, pool: &Object, host: &str) -> Availability {
    let id = Id::new(Kind::MachineInventory, &pool.id.namespace, host);
    let record = fleet.get(&id).and_then(Object::host);
    host_availability(&pool.id.name, record.as_ref())
}

const AVAILABLE: &str = "available";

fn describe_availability(availability: Availability) -> &'static str {
    match availability {
        Availability::Available => AVAILABLE,
        Availability::Allocated => "held by machines",
        Availability::Preparing => "being cleaned",
        Availability::Reprovisioning => "being provisioned",
        Availability::Unavailable(exclusion) => exclusion.into(),
    }
}
