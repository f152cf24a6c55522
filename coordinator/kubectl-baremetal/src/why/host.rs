//! The finding of a host.

use std::fmt::Write as _;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::Attention;
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_core::host::{AnnouncedPlan, HostRecord};
use coordinator_core::problem::Problem;
use jiff::Timestamp;
use serde_json::Value;

use super::finding::{Finding, find_in_conditions};
use crate::fleet::{Object, holders_of};

/// The statement of a host that matters most.
pub(super) fn find_host(object: &Object, is_asked_for: bool, now: Timestamp) -> Finding {
    let finding = find_in_conditions(object, is_asked_for);
    let Some(record) = object.host() else { return finding };
    // A live system reports its install and has no session.
    let is_live = record.carried.is_none() || !record.is_attached();
    let installed = object.condition(Type::Installed.as_str());
    let installed = installed.filter(|one| is_live && one.status == "False");
    let is_left = record.is_abandoned && !record.is_attached();
    // A host that is being installed, or that was left by its machine, has no connection either:
    // the more exact reason counts.
    let counts = |reason: Reason| reason != Reason::HostUnreachable || (installed.is_none() && !is_left);
    if let Some(problem) = record.find_problem(now).filter(|problem| counts(problem.reason)) {
        return finding.refined(problem.reason.as_str(), Some(&problem.message));
    }
    if let Some(installed) = installed {
        return Finding::of_condition(&installed);
    }
    if is_left {
        let message = "its machine was removed without a clean; it is cleaned when it attaches";
        return finding.refined(Reason::Abandoned.as_str(), Some(message));
    }
    match record.plan.as_ref().map(|plan| (plan, plan.state)) {
        Some((plan, Some(PlanState::Failed))) if plan.problem.is_some() => {
            let failure = describe_failure(object, &record, plan);
            let finding = finding.refined(failure.reason.as_str(), Some(&failure.message));
            return finding.with_next_action(failure.next_action);
        }
        Some((_, None)) => {
            let running = describe_step(&object.status()["plan"]);
            return finding.refined(Reason::PlanRunning.as_str(), Some(&running));
        }
        _ => {}
    }
    if finding.attention == Attention::None && object.is_deleting() {
        return find_holder(&record).unwrap_or(finding);
    }
    finding
}

/// The finding of a deleted inventory that a machine still holds.
fn find_holder(record: &HostRecord) -> Option<Finding> {
    let holder = holders_of(record).pop()?.short();
    let message = format!("it is in deletion, and stays while it is the host of {holder}");
    let action = format!("delete {holder}: the host is cleaned, then this object is gone");
    Some(Finding::act("InUse", &message).with_next_action(action))
}

/// The cause of a failed plan, and the action that ends the failure. A clean is repeated on request;
/// another plan is deleted with its Machine.
fn describe_failure(object: &Object, record: &HostRecord, plan: &AnnouncedPlan) -> Problem {
    let mut failure = plan.failure();
    let end = match holders_of(record).pop() {
        _ if plan.kind == PlanType::Clean => {
            format!("`kubectl baremetal release {} --retry-clean`", object.id.name)
        }
        Some(holder) if plan.kind != PlanType::Custom => format!("delete {}", holder.short()),
        _ => return failure,
    };
    if failure.next_action.is_empty() {
        "correct the cause".clone_into(&mut failure.next_action);
    }
    failure.then_do(&end)
}

fn describe_step(plan: &Value) -> String {
    let kind = plan["type"].as_str().unwrap_or("plan");
    let mut text = format!("the host executes its {kind} plan");
    let step = &plan["step"];
    if let Some(name) = step["name"].as_str() {
        let _ = write!(text, ": step {name}");
        if let Some(attempt) = step["attempt"].as_u64().filter(|attempt| *attempt > 1) {
            let _ = write!(text, ", attempt {attempt}");
        }
        if let Some(failure) = step["lastFailure"].as_str() {
            let _ = write!(text, "; the attempt before failed: {failure}");
        }
    }
    text
}
