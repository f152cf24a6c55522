//! `Metal3Remediation`: the agent reboots the host of an unhealthy machine a number of times. If the
//! node stays unhealthy, the owner of the Machine replaces it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::names;
use coordinator_api::metal3::remediation::{Metal3Remediation, Metal3RemediationStatus, Phase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::host::reboot;
use crate::assignment::Wake;
use crate::host::HostRecord;
use crate::pause;
use crate::problem::Problem;

/// Value of CAPM3 for a host whose remediation failed.
const UNHEALTHY_NODE: &str = "capm3/UnhealthyNode";
/// Condition of a Machine of Cluster API.
const OWNER_REMEDIATED: &str = "OwnerRemediated";
/// Timeout of a strategy that names none.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Inputs of a decision about a remediation.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub remediation: &'a Metal3Remediation,
    /// The Machine that owns the remediation.
    pub owner: Option<&'a Machine>,
    pub cluster: Option<&'a Cluster>,
    /// The host of that Machine.
    pub host: Option<&'a BareMetalHost>,
    pub record: Option<&'a HostRecord>,
    pub now: Timestamp,
}

/// The one change that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Only the conditions are written.
    Rest,
    /// Add the finalizer before the host is changed.
    AddFinalizer,
    RemoveFinalizer,
    /// Write or remove annotations of the host.
    ChangeHost(Value),
    /// Write the status of the next phase.
    Enter(Metal3RemediationStatus),
    /// Request the replacement of the Machine from its owner, annotate the host, and write the status.
    GiveUp {
        host: Option<Value>,
        status: Metal3RemediationStatus,
    },
}

/// The change that is due, and the problem to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub step: Step,
    pub problem: Option<Problem>,
    pub wake: Wake,
}

impl Outcome {
    fn of_step(step: Step) -> Self {
        Self { step, problem: None, wake: Wake::OnChange }
    }

    fn show(problem: Problem) -> Self {
        Self { problem: Some(problem), ..Self::of_step(Step::Rest) }
    }

    fn show_cause(reason: Reason, message: impl Into<String>) -> Self {
        Self::show(Problem::of_cause(reason, message))
    }

    fn until(self, at: Timestamp) -> Self {
        Self { wake: Wake::At(at), ..self }
    }
}

pub fn decide_remediation(situation: &Situation<'_>) -> Outcome {
    let Situation { remediation, host, .. } = *situation;
    if pause::is_paused(remediation, situation.cluster) {
        return Outcome::show_cause(Reason::Paused, pause::PAUSED_MESSAGE);
    }
    if remediation.metadata.deletion_timestamp.is_some() {
        let release = if is_held(remediation) { Step::RemoveFinalizer } else { Step::Rest };
        return Outcome::of_step(withdraw(situation).unwrap_or(release));
    }
    let status = remediation.status.clone().unwrap_or_default();
    match status.phase {
        Some(Phase::Failed) => {
            let message = "spec.online of the BareMetalHost is false, so that it is not rebooted";
            let action = "set it to true, then delete this Metal3Remediation";
            return Outcome::show(Problem::new(Reason::RemediationRefused, message, action));
        }
        Some(Phase::Deleting) => return Outcome::show(exhausted()),
        Some(Phase::Running | Phase::Waiting) | None => {}
    }
    let Some(owner) = situation.owner else {
        let message = "no Machine owns this object, or its Machine does not exist";
        return Outcome::show_cause(Reason::OwnerWaiting, message);
    };
    if owner.metadata.deletion_timestamp.is_some() {
        let ended = Outcome::show_cause(Reason::RemediationEnded, "the Machine is in deletion");
        return withdraw(situation).map_or(ended, Outcome::of_step);
    }
    let Some(host) = host else {
        let action = "delete the Machine, or wait until it has one";
        let message = "the Machine has no BareMetalHost";
        return Outcome::show(Problem::new(Reason::RemediationHostMissing, message, action));
    };
    if !host.spec.online {
        return enter(&status, Phase::Failed);
    }
    match status.phase {
        Some(Phase::Running) => remediate(situation, host, &status),
        Some(Phase::Waiting) => await_health(situation, host, &status),
        Some(Phase::Failed | Phase::Deleting) | None => {
            let begun =
                Metal3RemediationStatus { last_remediated: Some(Time(situation.now)), ..status.clone() };
            enter(&begun, Phase::Running)
        }
    }
}

/// CAPM3's annotation that requests a reboot of the host.
pub fn request_name(remediation: &Metal3Remediation) -> String {
    format!("{}/metal3-remediation-{}", names::REBOOT, remediation.uid().unwrap_or_default())
}

fn enter(status: &Metal3RemediationStatus, phase: Phase) -> Outcome {
    Outcome::of_step(Step::Enter(Metal3RemediationStatus { phase: Some(phase), ..status.clone() }))
}

fn is_held(remediation: &Metal3Remediation) -> bool {
    remediation.finalizers().iter().any(|held| held == names::REMEDIATION_FINALIZER)
}

/// Removes the request from the host, if the host has it.
fn withdraw(situation: &Situation<'_>) -> Option<Step> {
    let request = request_name(situation.remediation);
    let is_asked = situation.host?.annotations().contains_key(&request);
    is_asked.then(|| Step::ChangeHost(annotate(&request, None)))
}

fn annotate(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// Requests the reboot. The request stays on the host until it is done, or the attempt is over. A request
/// of an earlier attempt has to be removed first, because it would count as done.
fn remediate(situation: &Situation<'_>, host: &BareMetalHost, status: &Metal3RemediationStatus) -> Outcome {
    let request = request_name(situation.remediation);
    if reboot::is_done(host, &request) && host.annotations().contains_key(&request) {
        return enter(status, Phase::Waiting);
    }
    let end = end_of_try(situation.remediation, status);
    if situation.now >= end {
        return end_try(situation, status);
    }
    if !is_held(situation.remediation) {
        return Outcome::of_step(Step::AddFinalizer);
    }
    if !host.annotations().contains_key(&request) && reboot::is_forgotten(host, &request) {
        return Outcome::of_step(Step::ChangeHost(annotate(&request, Some("{\"mode\":\"hard\"}"))));
    }
    let shown = match reboot::project_reboot(host, situation.record, situation.now) {
        Some(update) if update.reason != Reason::RebootDone => {
            Outcome::show(Problem::new(update.reason, update.message, update.next_action))
        }
        _ => Outcome::show_cause(Reason::RemediationRunning, "the reboot of the host is requested next"),
    };
    shown.until(end)
}

fn await_health(
    situation: &Situation<'_>,
    host: &BareMetalHost,
    status: &Metal3RemediationStatus,
) -> Outcome {
    if let Some(step) = withdraw(situation) {
        return Outcome::of_step(step);
    }
    let end = end_of_try(situation.remediation, status);
    let is_forgotten = reboot::is_forgotten(host, &request_name(situation.remediation));
    if situation.now >= end && is_forgotten {
        return end_try(situation, status);
    }
    let message =
        "the host has rebooted, and the MachineHealthCheck deletes this object when the node is healthy";
    Outcome::show_cause(Reason::RemediationWaiting, message).until(end)
}

fn end_of_try(remediation: &Metal3Remediation, status: &Metal3RemediationStatus) -> Timestamp {
    let named = remediation.spec.strategy.timeout.as_ref();
    let named = named.map(|named| Duration::from(*named)).filter(|named| !named.is_zero());
    let begun = status.last_remediated.as_ref().map_or(Timestamp::UNIX_EPOCH, |begun| begun.0);
    begun.saturating_add(named.unwrap_or(TIMEOUT)).unwrap_or(Timestamp::MAX)
}

/// Begins the next attempt, or gives up.
fn end_try(situation: &Situation<'_>, status: &Metal3RemediationStatus) -> Outcome {
    let count = status.retry_count.unwrap_or(0);
    if count < situation.remediation.spec.strategy.retry_limit {
        let next = Metal3RemediationStatus {
            retry_count: Some(count + 1),
            last_remediated: Some(Time(situation.now)),
            ..status.clone()
        };
        return enter(&next, Phase::Running);
    }
    let request = request_name(situation.remediation);
    let host = situation.host.map(|_| {
        json!({ "metadata": { "annotations": {
            names::HOST_UNHEALTHY[1]: UNHEALTHY_NODE,
            request: null,
        } } })
    });
    let status = Metal3RemediationStatus { phase: Some(Phase::Deleting), ..status.clone() };
    Outcome::of_step(Step::GiveUp { host, status })
}

fn exhausted() -> Problem {
    let message = "the node did not become healthy, and the owner of the Machine replaces it";
    let annotation = names::HOST_UNHEALTHY[1];
    let action = format!("remove the annotation {annotation} of the BareMetalHost to let machines choose it");
    Problem::new(Reason::RemediationExhausted, message, action)
}

/// The conditions of a Machine, with the condition that requests its replacement; `None` if the Machine
/// has it already. Cluster API v1beta1 has conditions of another form.
pub fn request_replacement(conditions: &[Value], version: &str, now: Timestamp) -> Option<Vec<Value>> {
    let (ours, others): (Vec<_>, Vec<_>) =
        conditions.iter().cloned().partition(|condition| condition["type"] == OWNER_REMEDIATED);
    if ours.iter().any(|condition| condition["status"] == "False") {
        return None;
    }
    let mut requested = json!({
        "type": OWNER_REMEDIATED,
        "status": "False",
        "reason": "WaitingForRemediation",
        "message": "the node stayed unhealthy after reboots of its host, and the owner of the Machine replaces it",
        "lastTransitionTime": Time(now),
    });
    if version == "v1beta1" {
        requested["severity"] = json!("Warning");
    }
    Some(others.into_iter().chain([requested]).collect())
}

/// The status with its conditions.
pub fn project_status(
    remediation: &Metal3Remediation,
    problem: Option<&Problem>,
    failure: Option<ConditionUpdate>,
    now: Timestamp,
) -> Metal3RemediationStatus {
    let mut status = remediation.status.clone().unwrap_or_default();
    let is_paused = problem.is_some_and(|problem| problem.reason == Reason::Paused);
    let mut shown = vec![pause::paused_condition(is_paused)];
    shown.extend(failure.or_else(|| problem.map(|problem| problem.condition_false(Type::Ready))));
    conditions::set_conditions(&mut status.conditions, &shown, remediation.metadata.generation, now);
    status
}
