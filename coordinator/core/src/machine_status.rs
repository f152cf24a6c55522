//! The status of a `BaremetalMachine`: a projection of its state.

use coordinator_api::conditions::{self, ConditionUpdate, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::{
    BaremetalMachine, BaremetalMachineStatus, Initialization, LocalRef, MachineAddress, Phase,
};
use coordinator_api::names::label;
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::assignment::State;
use crate::pause;

/// Every condition of a machine, but `Paused`.
const TYPES: [Type; 7] = [
    Type::Ready,
    Type::InventoryAllocated,
    Type::BootstrapReady,
    Type::ImageResolved,
    Type::PlanApplied,
    Type::HostReachable,
    Type::NodeLinked,
];

/// The status that follows from a state. `updates` are its conditions.
pub fn project_status(
    machine: &BaremetalMachine,
    state: &State,
    updates: &[ConditionUpdate],
    inventory: Option<&MachineInventory>,
    now: Timestamp,
) -> BaremetalMachineStatus {
    let mut status = machine.status.clone().unwrap_or_default();
    let is_paused = state.blocker.as_ref().is_some_and(|blocker| blocker.condition == Type::Paused);
    let generation = machine.metadata.generation;
    let mut shown = vec![pause::paused_condition(is_paused)];
    let cause = state.blocker.as_ref().filter(|_| is_paused);
    let cause = cause.map(|blocker| blocker.problem.condition_false(Type::Ready));
    let before = machine.status.as_ref().map_or(&[][..], |before| &before.conditions);
    shown.extend(pause::first_ready(before, cause));
    if !is_paused {
        shown.extend(updates.iter().cloned());
        status.phase = Some(choose_phase(machine, state, status.phase));
        project_host(&mut status, machine, state, inventory);
    }
    conditions::set_conditions(&mut status.conditions, &shown, generation, now);
    conditions::set_undecided(&mut status.conditions, &TYPES, generation, now);
    status
}

fn choose_phase(machine: &BaremetalMachine, state: &State, old: Option<Phase>) -> Phase {
    let default = if machine.spec.provider_id.is_some() { Phase::Running } else { Phase::Pending };
    state.phase.or(old).unwrap_or(default)
}

fn project_host(
    status: &mut BaremetalMachineStatus,
    machine: &BaremetalMachine,
    state: &State,
    inventory: Option<&MachineInventory>,
) {
    let is_provided = machine.spec.provider_id.is_some();
    status.provider_id.clone_from(&machine.spec.provider_id);
    // Never false again: Cluster API takes it as a one-way door.
    status.ready |= is_provided;
    if status.ready {
        status.initialization = Some(Initialization { provisioned: Some(true) });
    }
    status.failure_domain = inventory
        .filter(|_| state.host.is_some())
        .and_then(|inventory| inventory.labels().get(label::FAILURE_DOMAIN).cloned());
    status.machine_inventory_ref = state.host.as_ref().map(|host| LocalRef { name: host.to_string() });
    let Some(inventory) = inventory.filter(|_| state.host.is_some()) else {
        return;
    };
    let secret = inventory.plan().and_then(|plan| plan.secret_ref.as_ref()?.name.clone());
    status.plan_secret_ref = secret.map(|name| LocalRef { name });
    if state.plan_checksum.is_some() {
        status.last_applied_plan_checksum.clone_from(&state.plan_checksum);
    }
    if state.bootstrap_hash.is_some() {
        status.last_applied_bootstrap_hash.clone_from(&state.bootstrap_hash);
    }
    if is_provided {
        status.addresses = list_addresses(inventory);
    }
}

fn list_addresses(inventory: &MachineInventory) -> Vec<MachineAddress> {
    let Some(host) = inventory.status.as_ref().and_then(|status| status.host.as_ref()) else {
        return vec![];
    };
    let ips = host.addresses.iter().map(|address| ("InternalIP", address));
    let names = std::iter::once(("Hostname", &host.hostname)).filter(|(_, name)| !name.is_empty());
    ips.chain(names)
        .map(|(kind, address)| MachineAddress { kind: kind.to_owned(), address: address.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use coordinator_api::conditions::Reason;

    use super::*;
    use crate::problem::{Blocker, Problem};
    use crate::samples;

    #[test]
    fn new_paused_machine_shows_its_pause_as_ready() {
        let hold = Blocker::waiting_for(Type::Paused, Problem::of_cause(Reason::Paused, "paused"));
        let state = State { blocker: Some(hold), ..State::default() };
        let mut machine = samples::machine();
        machine.status = None;
        let project = |machine: &BaremetalMachine| {
            let status = project_status(machine, &state, &[], None, Timestamp::UNIX_EPOCH);
            let ready = conditions::find_condition(&status.conditions, Type::Ready).unwrap();
            (ready.status.clone(), ready.reason.clone(), status.conditions)
        };
        let (status, reason, shown) = project(&machine);
        assert_eq!((status.as_str(), reason.as_str()), ("False", Reason::Paused.as_str()));
        // A pause does not change what was shown before it.
        let mut shown = shown;
        let ready = shown.iter_mut().find(|shown| shown.type_ == Type::Ready.as_str()).unwrap();
        ready.reason = Reason::Running.as_str().to_owned();
        machine.status = Some(BaremetalMachineStatus { conditions: shown, ..Default::default() });
        assert_eq!(project(&machine).1, Reason::Running.as_str());
    }
}
