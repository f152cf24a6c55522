//! A plan that an operator wants run on a host: once, and never beside a plan of
//! its claim.

use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_api::names::annotation;
use jiff::Timestamp;

use super::{HostEffect, HostSituation};
use crate::assignment::{Wake, assign_rendered};
use crate::host::HostRecord;
use crate::problem::Problem;

/// Nothing announces a change of the Secret.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// When a request that is not granted is looked at again.
pub(super) fn next_look(now: Timestamp) -> Wake {
    now.checked_add(LOOK_AGAIN).map_or(Wake::OnChange, Wake::At)
}

/// The effect that is due for the request, or why there is none.
pub(super) fn check_request(situation: &HostSituation<'_>) -> (Option<HostEffect>, Option<Problem>) {
    let host = situation.host;
    let Some(name) = host.custom_plan.as_ref().filter(|_| !situation.is_paused) else { return (None, None) };
    let plan = match situation.custom {
        None => return (Some(HostEffect::ReadCustom(name.clone())), None),
        Some(Err(error)) => return (None, Some(invalid_plan(name, &error.to_string()))),
        Some(Ok(plan)) => plan,
    };
    if host.last_custom_plan.as_deref() == Some(plan.id.as_str()) {
        return (Some(HostEffect::ForgetCustom), None);
    }
    if let Some(cause) = find_obstacle(host) {
        let message = format!("the plan of Secret {name} waits: {cause}");
        return (None, Some(Problem::of_cause(Reason::CustomPlanWaiting, message)));
    }
    let Some(stored) = situation.plan else { return (Some(HostEffect::ReadPlan), None) };
    match assign_rendered(host, stored, |generation| plan.render(generation)) {
        Ok(assignment) => (Some(HostEffect::AssignCustom(assignment)), None),
        Err(error) => (None, Some(invalid_plan(name, &format!("cannot be executed: {error}")))),
    }
}

fn invalid_plan(secret: &str, cause: &str) -> Problem {
    let message = format!("Secret {secret}, which the annotation {} names, {cause}", annotation::CUSTOM_PLAN);
    Problem::new(Reason::CustomPlanInvalid, message, "correct it, or remove the annotation")
}

/// A free host has to carry nothing: the plan would hide the rest of an earlier one.
/// The host of a machine has to carry its node.
fn find_obstacle(host: &HostRecord) -> Option<&'static str> {
    if host.refusal().is_some() {
        return Some("the host is not admitted: see its condition Approved");
    }
    if host.plan.as_ref().is_some_and(|plan| plan.state.is_none()) {
        return Some("the host executes another plan");
    }
    if host.claim.is_none() {
        let is_free = host.carries_nothing();
        return (!is_free)
            .then_some("the host has to be attached and to carry no node, or be one of a machine");
    }
    let is_node = match host.claimed_plan() {
        Some(plan) => (plan.kind, plan.state) == (PlanType::Reprovision, Some(PlanState::Applied)),
        None => host.ran_custom_plan_in_claim(),
    };
    let is_node = is_node && host.is_known() && host.carried_node().is_some() && !host.is_abandoned;
    (!is_node).then_some("the host is not the node of its machine yet, or not any more")
}
