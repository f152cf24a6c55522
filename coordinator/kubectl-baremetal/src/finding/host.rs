//! What a host says about itself.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::Attention;
use coordinator_api::inventory::PlanType;
use coordinator_core::host::HostRecord;
use jiff::Timestamp;
use serde_json::Value;

use super::{Finding, find_any};
use crate::fleet::{Object, holders_of};

/// What a host says of itself; `why` looks also at what keeps nothing from going on.
pub(super) fn find_host(object: &Object, is_asked_for: bool, now: Timestamp) -> Finding {
    let finding = find_any(object, is_asked_for);
    let Some(record) = object.host() else { return finding };
    // A live system reports its install and has no session.
    let is_live = record.carried.is_none() || !record.is_attached();
    let installed = object.condition(Type::Installed.as_str());
    let installed = installed.filter(|one| is_live && one.status == "False");
    let is_left = record.is_abandoned && !record.is_attached();
    // That it has no connection follows from either.
    let is_told = |reason: Reason| reason != Reason::HostUnreachable || (installed.is_none() && !is_left);
    if let Some(problem) = record.find_problem(now).filter(|problem| is_told(problem.reason)) {
        return finding.refined(problem.reason.as_str(), Some(&problem.message));
    }
    if let Some(installed) = installed {
        return Finding::of_condition(&installed);
    }
    if is_left {
        let message = "its machine was removed without a clean; it is cleaned when it attaches";
        return finding.refined(Reason::Abandoned.as_str(), Some(message));
    }
    let plan = &object.status()["plan"];
    let failed = plan["reason"].as_str().filter(|_| plan["state"] == "Failed");
    if let Some(reason) = failed {
        return finding.refined(reason, Some(&describe_failure(object, &record, plan)));
    }
    if record.plan.as_ref().is_some_and(|announced| announced.state.is_none()) {
        let reason = Reason::PlanRunning.as_str();
        return finding.refined(reason, Some(&describe_step(plan)));
    }
    if finding.attention == Attention::None && object.is_deleting() {
        return find_holder(&record).unwrap_or(finding);
    }
    finding
}

/// What a deleted inventory waits for.
fn find_holder(record: &HostRecord) -> Option<Finding> {
    let holder = holders_of(record).pop()?.short();
    let message = format!(
        "it is in deletion, and stays while it is the host of {holder}; next: delete {holder}: the host is cleaned, then this object is gone"
    );
    Some(Finding { attention: Attention::Act, reason: "InUse".to_owned(), ..Finding::fine(&message) })
}

/// What ends it, after what the host asks for: a clean is repeated on request, another plan
/// goes with its Machine.
fn describe_failure(object: &Object, record: &HostRecord, plan: &Value) -> String {
    let message = plan["message"].as_str().unwrap_or_default();
    let is_clean = plan["type"] == Into::<&str>::into(PlanType::Clean);
    let is_custom = plan["type"] == Into::<&str>::into(PlanType::Custom);
    let end = match holders_of(record).pop() {
        _ if is_clean => format!("`kubectl baremetal release {} --retry-clean`", object.id.name),
        Some(holder) if !is_custom => format!("delete {}", holder.short()),
        _ => return message.to_owned(),
    };
    let (cause, action) = message.split_once("; next: ").unwrap_or((message, "correct the cause"));
    format!("{cause}; next: {action}, then {end}")
}

/// What the plan that runs does.
fn describe_step(plan: &Value) -> String {
    let kind = plan["type"].as_str().unwrap_or("plan");
    let Some(step) = plan["step"]["name"].as_str() else {
        return format!("the host executes its {kind} plan");
    };
    let attempt = plan["step"]["attempt"].as_u64().filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
    let failure = plan["step"]["lastFailure"].as_str();
    let failure = failure.map(|failure| format!("; the one before failed: {failure}")).unwrap_or_default();
    format!("the host executes its {kind} plan: step {step}{attempt}{failure}")
}
