mod allocate;
mod link;
mod node_id;
mod provision;
mod release;

use super::*;
use crate::demand::NodeDemand;
use crate::samples;
use coordinator_api::inventory::{MachineInventory, PlanState};
use coordinator_api::machine::Phase;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn outcome_at(
    demand: &Demand,
    inventory: Option<&MachineInventory>,
    secrets: &Secrets,
    now: Timestamp,
) -> Outcome {
    let record = inventory.map(samples::record);
    let host =
        record.as_ref().zip(inventory).map(|(record, inventory)| Host { record, spec: &inventory.spec });
    decide_outcome(&Situation { demand, host, secrets, now })
}

fn outcome(demand: &Demand, inventory: Option<&MachineInventory>, secrets: &Secrets) -> Outcome {
    outcome_at(demand, inventory, secrets, NOW)
}

fn free() -> MachineInventory {
    samples::inventory("host-1")
}

fn claimed() -> MachineInventory {
    let mut inventory = free();
    samples::claim(&mut inventory, AllocationState::Allocated, 0);
    inventory
}

/// Claimed, with a plan of that claim.
fn with_plan(kind: PlanType, state: Option<PlanState>) -> MachineInventory {
    let mut inventory = claimed();
    samples::announce(&mut inventory, kind, 1, state);
    inventory
}

fn running_host() -> MachineInventory {
    with_plan(PlanType::Reprovision, Some(PlanState::Applied))
}

fn read() -> Secrets {
    Secrets {
        bootstrap: SecretRead::Read(samples::bootstrap()),
        plan: Some(StoredPlan::Empty),
        ..Secrets::default()
    }
}

fn node(demand: &mut Demand) -> &mut NodeDemand {
    match &mut demand.want {
        Want::Node(node) => node,
        Want::Release => panic!("no node is wanted"),
    }
}

fn reason(outcome: &Outcome) -> Option<Reason> {
    outcome.state.as_ref()?.blocker.as_ref().map(|blocker| blocker.problem.reason)
}

fn phase(outcome: &Outcome) -> Option<Phase> {
    outcome.state.as_ref()?.phase
}

fn assignment(outcome: &Outcome) -> &Assignment {
    match &outcome.effect {
        Some(Effect::Assign(assignment)) => assignment,
        other => panic!("{other:?}"),
    }
}
