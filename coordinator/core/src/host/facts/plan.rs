//! The plan in the status, and the node that it leaves on the host.

use coordinator_api::inventory::{
    CarriedNode, CarriedPlan, MachineInventoryStatus, PlanState, PlanStatus, PlanType, StepStatus,
};
use coordinator_api::names::plan_secret;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::plan::{Checksum, Kind, Plan, Step};
use proto::v1alpha1::SystemState;

use super::{bound_items, record_running_system};
use crate::plan::{PlanEnd, plan_type};
use crate::problem::Problem;
use crate::text::truncate_text;

/// A plan record was written: the streams send it. The hash of its bootstrap data, and what a reboot
/// takes away of it, are part of the announcement, so that the status of the machine has it even if the coordinator is killed before
/// that status is written.
pub fn record_announcement(
    status: &mut MachineInventoryStatus,
    plan: &Plan,
    bootstrap_hash: Option<&Checksum>,
    not_kept: &[String],
    now: Timestamp,
) {
    set_plan(status, plan, Some(Time(now)));
    if let Some(plan) = &mut status.plan {
        plan.bootstrap_hash = bootstrap_hash.map(ToString::to_string);
        plan.not_kept = bound_items(not_kept);
    }
}

fn set_plan(status: &mut MachineInventoryStatus, plan: &Plan, announced: Option<Time>) {
    let old = status.plan.take().unwrap_or_default();
    let checksum = plan.checksum.to_string();
    let is_same = old.checksum.as_ref() == Some(&checksum);
    status.plan = Some(PlanStatus {
        secret_ref: old.secret_ref,
        bootstrap_hash: old.bootstrap_hash.filter(|_| is_same),
        not_kept: if is_same { old.not_kept } else { vec![] },
        checksum: Some(checksum),
        id: Some(plan.id.to_string()),
        kind: Some(plan_type(plan.kind)),
        generation: Some(plan.generation.to_status()),
        owner: written_node(plan).map(|node| node.owner).filter(|owner| !owner.is_empty()),
        announced,
        ..PlanStatus::default()
    });
    keep_custom_plan(status);
}

/// It is not announced again when another plan has followed.
pub(super) fn keep_custom_plan(status: &mut MachineInventoryStatus) {
    let custom = status.plan.as_ref().filter(|plan| plan.kind == Some(PlanType::Custom));
    if let Some(id) = custom.and_then(|plan| plan.id.clone()) {
        status.last_custom_plan = Some(id);
    }
}

/// Fills in the state that upstream shows for a host that never had a plan, or the plan
/// that the host reports and the status does not have.
pub(super) fn restore_plan(plan: &mut PlanStatus, carried: Option<&CarriedPlan>, now: Timestamp) {
    let Some(carried) = carried.filter(|carried| plan.generation.unwrap_or(0) < carried.generation) else {
        if plan.generation.is_none() && plan.state.is_none() {
            plan.state = Some(PlanState::Applied);
            plan.checksum = Some(Checksum::of(plan_secret::EMPTY.as_bytes()).to_string());
        }
        return;
    };
    let failed = carried.state == Some(PlanState::Failed);
    *plan = PlanStatus {
        secret_ref: plan.secret_ref.take(),
        checksum: Some(carried.checksum.clone()),
        state: carried.state,
        id: Some(carried.id.clone()),
        kind: Some(carried.kind),
        generation: Some(carried.generation),
        // Now and not earlier, so that a wait that begins with the end has its whole time.
        ended: carried.state.map(|_| Time(now)),
        message: failed.then(|| "the host states that this plan failed".to_owned()),
        next_action: failed.then(|| "see its console or its agent's log for the cause".to_owned()),
        ..PlanStatus::default()
    };
}

/// A plan ended; a newer one that was announced meanwhile stays. The node of the
/// host follows from the plan, until the host reports it again.
pub fn record_plan_end(
    status: &mut MachineInventoryStatus,
    plan: &Plan,
    end: &PlanEnd,
    system: Option<&SystemState>,
    now: Timestamp,
) {
    let generation = plan.generation.to_status();
    if status.plan.as_ref().and_then(|plan| plan.generation).is_some_and(|announced| announced > generation) {
        return;
    }
    let (state, problem) = match end {
        PlanEnd::Applied => (PlanState::Applied, None),
        PlanEnd::Failed(problem) => (PlanState::Failed, Some(problem)),
    };
    let known = status.plan.as_ref().filter(|known| known.generation == Some(generation));
    let announced = known.and_then(|known| known.announced.clone());
    set_plan(status, plan, announced);
    if let Some(status) = &mut status.plan {
        status.state = Some(state);
        status.ended = Some(Time(now));
        show_problem(status, problem);
    }
    let host = status.host.get_or_insert_default();
    if let Some(system) = system {
        record_running_system(host, system);
    }
    let carried = host.carried.get_or_insert_default();
    carried.plan = Some(CarriedPlan {
        id: plan.id.to_string(),
        generation,
        checksum: plan.checksum.to_string(),
        kind: plan_type(plan.kind),
        state: Some(state),
    });
    carried.node = carried_after(plan, state, carried.node.take());
}

/// The node that the plan makes of the host.
fn written_node(plan: &Plan) -> Option<CarriedNode> {
    plan.steps.iter().find_map(|step| match step {
        Step::WriteNodeIdentity(node) => Some(CarriedNode {
            provider_id: node.provider_id.clone(),
            uuid: node.uuid.clone(),
            owner: node.owner.clone(),
        }),
        _ => None,
    })
}

fn carried_after(plan: &Plan, state: PlanState, before: Option<CarriedNode>) -> Option<CarriedNode> {
    match (plan.kind, state) {
        (Kind::Reprovision, PlanState::Applied) => written_node(plan),
        (Kind::Clean, PlanState::Applied) => None,
        (Kind::Reprovision | Kind::Clean | Kind::Custom, _) => before,
    }
}

/// A plan that is in flight cannot be sent.
pub fn record_plan_problem(status: &mut MachineInventoryStatus, problem: Option<&Problem>) {
    if let Some(plan) = status.plan.as_mut().filter(|plan| plan.state.is_none()) {
        show_problem(plan, problem);
    }
}

fn show_problem(plan: &mut PlanStatus, problem: Option<&Problem>) {
    plan.reason = problem.map(|problem| problem.reason.as_str().to_owned());
    plan.message = problem.map(|problem| truncate_text(&problem.message));
    let next_action = problem.map(|problem| truncate_text(&problem.next_action));
    plan.next_action = next_action.filter(|action| !action.is_empty());
}

/// The step of the plan in flight that runs.
pub fn record_step(
    status: &mut MachineInventoryStatus,
    plan: &Plan,
    step: usize,
    attempt: u32,
    last_failure: &str,
) {
    let name = plan.steps.get(step).map(Step::name);
    let generation = Some(plan.generation.to_status());
    let announced = status.plan.as_mut();
    if let (Some(name), Some(announced)) = (name, announced)
        && announced.generation == generation
        && announced.state.is_none()
    {
        let last_failure = Some(truncate_text(last_failure)).filter(|text| !text.is_empty());
        announced.step = Some(StepStatus { name: name.to_owned(), attempt, last_failure });
    }
}
