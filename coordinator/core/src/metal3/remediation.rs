//! `Metal3Remediation`: the host of an unhealthy machine is rebooted by its agent, a
//! number of times; after that the owner of the Machine replaces it.

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
use crate::cluster;
use crate::host::HostRecord;
use crate::problem::Problem;

/// What CAPM3 writes of a host that a remediation gave up.
const UNHEALTHY_NODE: &str = "capm3/UnhealthyNode";
/// Condition of a Machine of Cluster API.
const OWNER_REMEDIATED: &str = "OwnerRemediated";
/// Of a strategy that names none.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Inputs of a decision about a remediation.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub remediation: &'a Metal3Remediation,
    /// The Machine that owns it.
    pub owner: Option<&'a Machine>,
    pub cluster: Option<&'a Cluster>,
    /// The host of that Machine.
    pub host: Option<&'a BareMetalHost>,
    /// The inventory of the host.
    pub record: Option<&'a HostRecord>,
    pub now: Timestamp,
}

/// The one change that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing but the conditions.
    Rest,
    /// Hold it by its finalizer, before the host is asked for anything.
    Hold,
    Forget,
    /// Write or remove annotations of the host.
    ChangeHost(Value),
    Enter(Metal3RemediationStatus),
    /// The owner of the Machine replaces it; the host gets these annotations, and
    /// the status follows.
    GiveUp {
        host: Option<Value>,
        status: Metal3RemediationStatus,
    },
}

/// What is due, and what is told.
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

    fn told(reason: Reason, message: impl Into<String>) -> Self {
        let problem = Some(Problem::of_cause(reason, message.into()));
        Self { problem, ..Self::of_step(Step::Rest) }
    }

    fn until(self, at: Timestamp) -> Self {
        Self { wake: Wake::At(at), ..self }
    }
}

pub fn decide_remediation(situation: &Situation<'_>) -> Outcome {
    let Situation { remediation, host, .. } = *situation;
    if cluster::is_paused(remediation, situation.cluster) {
        return Outcome::told(Reason::Paused, cluster::PAUSED_MESSAGE);
    }
    if remediation.metadata.deletion_timestamp.is_some() {
        let release = if is_held(remediation) { Step::Forget } else { Step::Rest };
        return Outcome::of_step(withdraw(situation).unwrap_or(release));
    }
    let status = remediation.status.clone().unwrap_or_default();
    match status.phase {
        Some(Phase::Failed) => {
            let message = "spec.online of the BareMetalHost is false: it is left as it is; set it to true, then delete this Metal3Remediation";
            return Outcome::told(Reason::RemediationRefused, message);
        }
        Some(Phase::Deleting) => return give_up_told(),
        Some(Phase::Running | Phase::Waiting) | None => {}
    }
    let Some(owner) = situation.owner else {
        return Outcome::told(Reason::OwnerWaiting, "no Machine owns this object, or it does not exist");
    };
    if owner.metadata.deletion_timestamp.is_some() {
        let ended = Outcome::told(Reason::RemediationEnded, "the Machine is in deletion");
        return withdraw(situation).map_or(ended, Outcome::of_step);
    }
    let Some(host) = host else {
        return Outcome::told(
            Reason::RemediationHostMissing,
            "the Machine has no BareMetalHost: delete the Machine, or wait until it has one",
        );
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

/// The annotation by which the host is asked to reboot: CAPM3's.
pub fn request_name(remediation: &Metal3Remediation) -> String {
    format!("{}/metal3-remediation-{}", names::REBOOT, remediation.uid().unwrap_or_default())
}

fn enter(status: &Metal3RemediationStatus, phase: Phase) -> Outcome {
    Outcome::of_step(Step::Enter(Metal3RemediationStatus { phase: Some(phase), ..status.clone() }))
}

fn is_held(remediation: &Metal3Remediation) -> bool {
    remediation.finalizers().iter().any(|held| held == names::REMEDIATION_FINALIZER)
}

/// Removes the request from the host, where it is there.
fn withdraw(situation: &Situation<'_>) -> Option<Step> {
    let request = request_name(situation.remediation);
    let is_asked = situation.host?.annotations().contains_key(&request);
    is_asked.then(|| Step::ChangeHost(annotate(&request, None)))
}

fn annotate(key: &str, value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// The request stays on the host until it was carried out, or the try is over. A
/// request of an earlier try has to be forgotten first: it would count for this one.
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
        return Outcome::of_step(Step::Hold);
    }
    if !host.annotations().contains_key(&request) && reboot::is_forgotten(host, &request) {
        return Outcome::of_step(Step::ChangeHost(annotate(&request, Some("{\"mode\":\"hard\"}"))));
    }
    let problem = reboot::project_reboot(host, situation.record, situation.now);
    let told = match problem {
        Some(update) if update.reason != Reason::RebootDone => Outcome::told(update.reason, update.text()),
        _ => Outcome::told(Reason::RemediationRunning, "the host is about to be asked to reboot"),
    };
    told.until(end)
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
        "the host has rebooted: the MachineHealthCheck deletes this object when the node is healthy";
    Outcome::told(Reason::RemediationWaiting, message).until(end)
}

fn end_of_try(remediation: &Metal3Remediation, status: &Metal3RemediationStatus) -> Timestamp {
    let named = remediation.spec.strategy.timeout.as_ref();
    let named = named.map(|named| Duration::from(*named)).filter(|named| !named.is_zero());
    let begun = status.last_remediated.as_ref().map_or(Timestamp::UNIX_EPOCH, |begun| begun.0);
    begun.saturating_add(named.unwrap_or(TIMEOUT)).unwrap_or(Timestamp::MAX)
}

/// Another try, or the end.
fn end_try(situation: &Situation<'_>, status: &Metal3RemediationStatus) -> Outcome {
    let count = status.retry_count.unwrap_or_default();
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

fn give_up_told() -> Outcome {
    Outcome::told(
        Reason::RemediationExhausted,
        format!(
            "the node did not become healthy: the owner of the Machine replaces it, and no machine chooses the BareMetalHost until the annotation {} is removed",
            names::HOST_UNHEALTHY[1]
        ),
    )
}

/// The conditions of a Machine, with the one by which its owner replaces it; `None`
/// where it is there. Cluster API v1beta1 has conditions of another form.
pub fn request_replacement(conditions: &[Value], version: &str, now: Timestamp) -> Option<Vec<Value>> {
    let is_ours = |found: &&Value| found["type"] == OWNER_REMEDIATED;
    if conditions.iter().filter(is_ours).any(|found| found["status"] == "False") {
        return None;
    }
    let mut requested = json!({
        "type": OWNER_REMEDIATED,
        "status": "False",
        "reason": "WaitingForRemediation",
        "message": "the host was rebooted in vain: the owner of the Machine replaces it",
        "lastTransitionTime": Time(now),
    });
    if version == "v1beta1" {
        requested["severity"] = json!("Warning");
    }
    let others = conditions.iter().filter(|found| !is_ours(found)).cloned();
    Some(others.chain([requested]).collect())
}

/// The status with the conditions that follow.
pub fn project_status(
    remediation: &Metal3Remediation,
    problem: Option<&Problem>,
    failure: Option<ConditionUpdate>,
    now: Timestamp,
) -> Metal3RemediationStatus {
    let mut status = remediation.status.clone().unwrap_or_default();
    let is_paused = problem.is_some_and(|problem| problem.reason == Reason::Paused);
    let mut shown = vec![cluster::paused_condition(is_paused)];
    let told = problem.map(|problem| problem.condition_false(Type::Ready));
    shown.extend(failure.or(told));
    conditions::set_conditions(&mut status.conditions, &shown, remediation.metadata.generation, now);
    status
}
