//! Whether the machine that a claim names is there and knows of it.

use coordinator_api::inventory::{MachineInventory, PlanState};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use kube::ResourceExt as _;

/// What is to be done about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Nothing: nobody holds the host, or a machine that knows it does.
    Settled,
    /// A claim that came late: its machine is gone or has chosen another host,
    /// and nothing of it is on this one. It is given back.
    Stray,
    /// The machine is gone, and nobody cleaned the host: a person must know.
    Orphaned,
    /// And a person deletes the inventory: there is nothing to wait for.
    Forgotten,
}

/// Judges the claim on an inventory by the machine that has its owner's name.
#[must_use]
pub fn ownership(inventory: &MachineInventory, machine: Option<&BaremetalMachine>) -> Ownership {
    let Some(claim) = inventory.claim() else {
        return Ownership::Settled;
    };
    // Only what was announced was ever given to a host, and a proven clean took
    // it off again.
    let touched = inventory.plan().is_some_and(|plan| {
        let is_clean = plan.id.as_deref().is_some_and(|id| id.starts_with("clean-"));
        plan.owner.as_ref() == Some(&claim.uid) && !(is_clean && plan.state == Some(PlanState::Applied))
    });
    let Some(machine) = machine.filter(|machine| machine.uid().as_ref() == Some(&claim.uid)) else {
        let deleting = inventory.metadata.deletion_timestamp.is_some();
        return match (touched, deleting) {
            (false, _) => Ownership::Stray,
            (true, true) => Ownership::Forgotten,
            (true, false) => Ownership::Orphaned,
        };
    };
    match machine.annotations().get(annotation::MACHINE_INVENTORY) {
        Some(chosen) if *chosen != inventory.name_any() && !touched => Ownership::Stray,
        Some(_) | None => Ownership::Settled,
    }
}

#[cfg(test)]
mod tests {
    use coordinator_api::inventory::AllocationState;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::samples;

    #[test]
    fn a_claim_stands_while_its_machine_is_there_and_knows_of_it() {
        let chose = |inventory: &str| {
            let mut machine = samples::machine();
            machine.annotations_mut().insert(annotation::MACHINE_INVENTORY.into(), inventory.into());
            machine
        };
        let mut reborn = chose("host-1");
        reborn.metadata.uid = Some("another".into());
        let mut claimed = samples::inventory("host-1");
        samples::claim(&mut claimed, AllocationState::Allocated);
        let mut touched = claimed.clone();
        touched.status.as_mut().unwrap().plan.as_mut().unwrap().owner = samples::machine().uid();
        let mut cleaned = touched.clone();
        let plan = cleaned.status.as_mut().unwrap().plan.as_mut().unwrap();
        (plan.id, plan.state) = (Some("clean-1".into()), Some(PlanState::Applied));
        let mut deleted = touched.clone();
        deleted.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        for (name, inventory, machine, want) in [
            ("free", &samples::inventory("host-1"), None, Ownership::Settled),
            ("held", &claimed, Some(chose("host-1")), Ownership::Settled),
            ("of a machine that chose another", &claimed, Some(chose("host-2")), Ownership::Stray),
            ("and has begun here", &touched, Some(chose("host-2")), Ownership::Settled),
            ("of nobody, who did nothing", &claimed, None, Ownership::Stray),
            ("of nobody, who has cleaned", &cleaned, None, Ownership::Stray),
            ("of nobody", &touched, None, Ownership::Orphaned),
            ("of a namesake", &touched, Some(reborn), Ownership::Orphaned),
            ("of nobody, deleted", &deleted, None, Ownership::Forgotten),
            ("held, deleted", &deleted, Some(chose("host-1")), Ownership::Settled),
        ] {
            assert_eq!(ownership(inventory, machine.as_ref()), want, "{name}");
        }
    }
}
